//! A policy as the front-end of a lab runs it and as the simulator runs it for comparison.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use levada_policy::{Deployment, ParameterValue, Policy, PolicyEntry, Setting, build};
use levada_types::format_duration;

/// A policy, and its parameters that differ from the defaults.
#[derive(Clone)]
pub struct Strategy {
    /// The policy.
    pub policy: &'static PolicyEntry,
    /// The parameters that differ, by name.
    pub set: BTreeMap<String, ParameterValue>,
}

impl Strategy {
    /// The policy `name` with its defaults.
    ///
    /// # Errors
    /// When there is none that runs on an edge.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let policy = levada_policy::find(name).filter(|entry| entry.runs_on_an_edge());
        let policy = policy.with_context(|| {
            format!("--policy {name}: there is no such policy that runs on an edge; `levada policies` lists them")
        })?;
        Ok(Self { policy, set: BTreeMap::new() })
    }

    /// The same with a parameter set.
    pub fn with(mut self, parameter: &str, value: &str) -> Self {
        self.set.insert(parameter.to_owned(), ParameterValue::Text(value.to_owned()));
        self
    }

    /// The same with the thresholds of ASPLOS'98 Sec. 2.3, if the policy is LARD: for a paper's prototype.
    pub fn as_published(mut self) -> Self {
        for (name, requests) in [("t_low", 25), ("t_high", 65)] {
            if self.policy.parameters.iter().any(|parameter| parameter.name == name) {
                self.set.insert(name.to_owned(), ParameterValue::Integer(requests));
            }
        }
        self
    }

    /// The same for one of several front-ends, which cannot know of each other: they agree where a new object begins.
    pub fn of_several(mut self) -> Self {
        if self.policy.parameters.iter().any(|parameter| parameter.name == "first") {
            self.set.insert("first".to_owned(), ParameterValue::Text("hash".to_owned()));
        }
        self
    }

    /// The policy for simulations, in emulated time.
    ///
    /// # Errors
    /// When a parameter is wrong.
    pub fn build(&self) -> anyhow::Result<Box<dyn Policy>> {
        Ok(build(self.policy.name, &self.set, &Deployment::default())?)
    }

    /// An inline table of a configuration whose clock runs `time_scale` times slower: durations in
    /// emulated time are stretched by it.
    pub fn table(&self, time_scale: f64) -> String {
        let mut table = format!("name = {}", quoted(self.policy.name));
        for parameter in self.policy.parameters {
            let given = self.set.get(parameter.name);
            let duration = match (given, parameter.default) {
                (Some(ParameterValue::Text(text)), _) => levada_types::parse_duration(text).ok(),
                (None, Setting::Duration(duration)) => Some(duration),
                _ => None,
            };
            let value = match (duration, given) {
                (Some(duration), _) => stretched(duration, time_scale),
                (None, Some(ParameterValue::Text(word))) => quoted(word),
                (None, Some(value)) => value.to_string(),
                (None, None) => continue,
            };
            table += &format!(", {} = {value}", parameter.name);
        }
        format!("{{ {table} }}")
    }
}

/// Round to milliseconds: shorter times do not matter to a policy.
fn stretched(duration: Duration, time_scale: f64) -> String {
    let milliseconds = (duration.as_secs_f64() * 1e3 * time_scale).round().max(1.0);
    let duration = Duration::from_millis(milliseconds as u64);
    quoted(&format!("{}", format_duration(duration)))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_stretched_with_the_clock() {
        let strategy = Strategy::named("lard/r").unwrap();
        assert_eq!(strategy.table(1.0), r#"{ name = "lard/r", k = "20s" }"#);
        assert_eq!(strategy.table(0.5), r#"{ name = "lard/r", k = "10s" }"#);
        let published = strategy.as_published().table(1.0);
        assert_eq!(published, r#"{ name = "lard/r", t_low = 25, t_high = 65, k = "20s" }"#);
        let strategy = Strategy::named("weighted_round_robin").unwrap();
        let strategy = strategy.with("weights", "active_connections").with("refresh", "10s");
        let table = strategy.table(0.1);
        assert!(table.contains(r#"refresh = "1s""#), "{table}");
        assert!(table.contains(r#"weights = "active_connections""#), "{table}");
        assert!(strategy.build().is_ok());
    }

    #[test]
    fn policy_that_needs_a_simulator_is_refused() {
        assert!(Strategy::named("wrr/gms").is_err());
        assert!(Strategy::named("lrad").is_err());
    }
}
