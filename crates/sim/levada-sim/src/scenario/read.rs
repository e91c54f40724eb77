//! Reads scenarios from text and changes single keys. All errors are reported at once.
//!
//! A scenario is held as a tree of values over the tree of the defaults: a key that the defaults do
//! not have is unknown, and a key whose value does not fit by itself is wrong. No error hides
//! another.

use std::fmt;

use serde_json::{Map, Value};

use super::{Origin, Scenario};
use crate::regions;

/// A problem of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its place: a key such as `workload.clients`, or a line of the file.
    pub place: String,
    /// The problem and the remedy.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// All problems of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    pub(crate) fn add(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.0.push(Problem { place: place.into(), what: what.into() });
    }

    pub(crate) fn add_if(&mut self, wrong: bool, place: &str, what: &str) {
        if wrong {
            self.add(place, what);
        }
    }

    pub(crate) fn or<T>(self, good: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(good) } else { Err(self) }
    }
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// The line of a syntax error; otherwise every unknown key and every value of the wrong kind.
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        let (scenario, problems) = Self::read_toml(text);
        problems.or(scenario)
    }

    /// Reads a scenario file as far as it can be read, so that one mistake does not hide the next:
    /// the scenario has the default where a problem names a key.
    pub fn read_toml(text: &str) -> (Self, Problems) {
        match toml::from_str(text) {
            Ok(given) => Self::default().changed_by(&leaves(&given)),
            Err(error) => {
                let start = error.span().map_or(0, |span| span.start);
                let line = text[..start].matches('\n').count() + 1;
                let what = error.message().to_owned();
                let problem = Problem { place: format!("line {line}"), what };
                (Self::default(), Problems(vec![problem]))
            }
        }
    }

    /// A copy with some keys changed: `("workload.clients", "100")`. A value is written as in a
    /// file; otherwise it is taken as text.
    ///
    /// # Errors
    /// Every unknown key and every value of the wrong kind.
    pub fn with(
        &self,
        changes: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
    ) -> Result<Self, Problems> {
        let changes: Vec<_> = changes
            .into_iter()
            .map(|(key, value)| (key.as_ref().to_owned(), written(value.as_ref())))
            .collect();
        let (scenario, problems) = self.changed_by(&changes);
        problems.or(scenario)
    }

    /// A key with a problem is reported and left unchanged.
    fn changed_by(&self, changes: &[(String, Value)]) -> (Self, Problems) {
        let mut problems = Problems::default();
        let tree = serde_json::to_value(self).expect("a scenario is data");
        let mut changed = tree.clone();
        for (key, value) in changes {
            if is_without_number(value) {
                problems
                    .add(key, "`nan` and `inf` are no values here: write a number, such as 250.0");
                continue;
            }
            let mut alone = tree.clone();
            if let Err(what) = put(&mut alone, key, value.clone(), false) {
                problems.add(key, what);
                continue;
            }
            match serde_json::from_value::<Self>(alone) {
                // A value that fits alone fits here; the table may have been empty at first.
                Ok(_) => put(&mut changed, key, value.clone(), true).unwrap_or_default(),
                Err(error) => problems.add(key, error.to_string()),
            }
        }
        let scenario = serde_json::from_value(changed).unwrap_or_else(|error| {
            problems.add("scenario", error.to_string());
            self.clone()
        });
        (scenario, problems)
    }
}

/// Whether a number is infinite or none. JSON has no such numbers, so they were read as null, which TOML
/// does not have.
fn is_without_number(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().any(is_without_number),
        Value::Object(table) => table.values().any(is_without_number),
        _ => false,
    }
}

/// Every value with its dotted key.
fn leaves(tree: &Value) -> Vec<(String, Value)> {
    let Value::Object(table) = tree else { return Vec::new() };
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            Value::Object(inner) if !inner.is_empty() => found.extend(
                leaves(value).into_iter().map(|(rest, leaf)| (format!("{key}.{rest}"), leaf)),
            ),
            _ => found.push((key.clone(), value.clone())),
        }
    }
    found
}

/// A value in a file's notation, or a text.
fn written(text: &str) -> Value {
    toml::from_str::<Map<String, Value>>(&format!("value = {text}"))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::from(text))
}

/// Puts `value` at the dotted `key` of a scenario's tree. Keys must exist unless the table is
/// `open`.
fn put(tree: &mut Value, key: &str, value: Value, mut open: bool) -> Result<(), String> {
    let (mut at, mut rest, mut within) = (tree, key, "");
    loop {
        let (name, inner) = rest.split_once('.').map_or((rest, None), |(a, b)| (a, Some(b)));
        if at.is_null() {
            *at = match within {
                "cap" => serde_json::to_value(levada_cap::Settings::default()),
                "regions" => serde_json::to_value(regions::Regions::default()),
                "origin" => serde_json::to_value(Origin::default()),
                _ => {
                    // This table begins empty; its own type knows its keys.
                    open = true;
                    Ok(Value::Object(Map::new()))
                }
            }
            .expect("settings are data");
        }
        let Value::Object(table) = at else {
            return Err("this is a value, not a table".to_owned());
        };
        if !table.contains_key(name) && !open {
            return Err(unknown(name, table));
        }
        let next = table.entry(name).or_insert(Value::Null);
        let Some(inner) = inner else {
            *next = value;
            return Ok(());
        };
        // Policies and topologies declare and check their own parameters.
        open =
            open || (matches!(name, "policy" | "shield_policy" | "topology") && next.is_object());
        (at, rest, within) = (next, inner, name);
    }
}

fn unknown(name: &str, table: &Map<String, Value>) -> String {
    let near = table
        .keys()
        .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
    match near.filter(|near| strsim::jaro_winkler(near, name) > 0.8) {
        Some(near) => format!("there is no such key; did you mean `{near}`?"),
        None => {
            let known: Vec<_> = table.keys().map(String::as_str).collect();
            format!("there is no such key; there are {}", known.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_policy::ParameterValue;

    use crate::Arrivals;

    #[test]
    fn a_file_gives_what_differs() {
        let text = "seed = 7\n[servers]\ncount = 16\n[workload]\narrivals = \"closed\"\n\
                    [workload.flash]\nurls = 1\n[policy]\nname = \"cdr\"\nbusy = 200\n";
        let scenario = Scenario::from_toml(text).unwrap();
        assert_eq!((scenario.seed, scenario.servers.count, scenario.servers.active), (7, 16, 512));
        assert_eq!(scenario.workload.arrivals, Arrivals::Closed);
        assert_eq!(scenario.workload.flash.unwrap().urls, 1);
        assert_eq!(scenario.policy.parameters["busy"], ParameterValue::Integer(200));
    }

    #[test]
    fn every_error_is_said_at_once() {
        let text = "[servers]\ncount = -1\nactiv = 5\n[cache]\nmemory = \"5 furlongs\"\n[measures]\na = 1\n";
        let Problems(problems) = Scenario::from_toml(text).unwrap_err();
        let places: Vec<_> = problems.iter().map(|p| p.place.as_str()).collect();
        assert_eq!(places, ["cache.memory", "measures.a", "servers.activ", "servers.count"]);
        assert!(problems[2].what.contains("did you mean `active`"), "{}", problems[2]);
        assert!(problems[0].what.contains("64MiB"), "{}", problems[0]);
    }

    #[test]
    fn number_that_is_none_is_refused_with_the_remedy() {
        let text = "[workload]\nrate = nan\nsteps = [1.0, -inf]\n";
        let Problems(problems) = Scenario::from_toml(text).unwrap_err();
        let places: Vec<_> = problems.iter().map(|p| p.place.as_str()).collect();
        assert_eq!(places, ["workload.rate", "workload.steps"]);
        assert!(problems.iter().all(|p| p.what.contains("such as 250.0")), "{problems:?}");
        assert!(Scenario::default().with([("workload.rate", "nan")]).is_err());
    }

    #[test]
    fn a_line_that_is_no_toml_is_named() {
        let Problems(problems) = Scenario::from_toml("seed = 1\ncount =\n").unwrap_err();
        assert_eq!(problems[0].place, "line 2");
    }

    #[test]
    fn single_keys_are_changed() {
        let scenario = Scenario::default()
            .with([
                ("policy.name", "lr-hrw"),
                ("policy.replicas", "5"),
                ("workload.flash.urls", "3"),
            ])
            .unwrap();
        assert_eq!(scenario.policy.name, "lr-hrw");
        assert_eq!(scenario.policy.parameters["replicas"], ParameterValue::Integer(5));
        assert_eq!(scenario.workload.flash.as_ref().unwrap().urls, 3);
        let Problems(problems) = scenario.with([("seed", "x"), ("a.b", "1")]).unwrap_err();
        assert_eq!(problems.len(), 2);
    }

    #[test]
    fn sessions_begin_with_their_defaults() {
        let text = "[cap.sessions]\nthink = { k = 3.0 }\n[cap.mix]\ndisk_bond = 1.0\n";
        let Problems(problems) = Scenario::from_toml(text).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].what.contains("did you mean `disk_bound`"), "{}", problems[0]);
        let scenario = Scenario::from_toml(&text.replace("bond", "bound")).unwrap();
        let cap = scenario.cap.unwrap();
        assert_eq!((cap.sessions.think.alpha, cap.sessions.think.k), (1.4, 3.0));
        assert_eq!((cap.mix.r#static, cap.mix.disk_bound), (1.0, 1.0));
    }

    #[test]
    fn a_scenario_survives_writing() {
        let scenario = Scenario::default().with([("workload.flash.urls", "3")]).unwrap();
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
        let toml = toml::to_string(&scenario).unwrap();
        assert_eq!(Scenario::from_toml(&toml).unwrap(), scenario);
    }
}
