//! Parameters of policies, declared once: name, type, range, default, unit and a help text. The
//! help, the documents, the configuration's schema and its errors all use these declarations.

use std::{collections::BTreeMap, fmt, time::Duration};

use levada_types::{format_duration, parse_duration};
use serde::{Deserialize, Serialize};

/// One parameter of one policy.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name in a `[policy]` table.
    pub name: &'static str,
    /// The type and the range.
    pub kind: Kind,
    /// The value if none is given.
    pub default: Setting,
    /// The unit of a number, such as "requests"; empty where there is none.
    pub unit: &'static str,
    /// One sentence, with the paper's section if there is one.
    pub help: &'static str,
}

/// The type and range of a parameter. Ranges include both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number.
    Integer(u64, u64),
    /// A whole number, or one of these words.
    IntegerOr(u64, u64, &'static [&'static str]),
    /// Any number.
    Number(f64, f64),
    /// A duration, written as in "20s".
    Duration(Duration, Duration),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
}

/// The value of a parameter: the declared default or the given value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// A whole number.
    Integer(u64),
    /// Any number.
    Number(f64),
    /// A duration.
    Duration(Duration),
    /// One of the choices.
    Choice(&'static str),
    /// On or off.
    Switch(bool),
    /// Computed from the deployment when the policy is built; the text says how.
    Derived(&'static str),
}

/// The value of a policy's parameter; the policy declares its type.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "config", derive(schemars::JsonSchema), schemars(inline))]
#[serde(untagged)]
pub enum ParameterValue {
    /// On or off.
    Switch(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A word or a duration.
    Text(String),
}

/// The error in one given parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The policy has no such parameter.
    #[error("policy `{policy}` has no parameter `{name}`{}", suggestion(.known))]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// The name given.
        name: String,
        /// The names of its parameters.
        known: Vec<&'static str>,
    },
    /// The value is of another type or out of range.
    #[error("`{name}` must be {expected}, not {given}")]
    Wrong {
        /// The parameter.
        name: &'static str,
        /// The declared type and range.
        expected: String,
        /// The given value.
        given: String,
    },
}

impl ParameterError {
    /// The name of the parameter that is wrong.
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown { name, .. } => name,
            Self::Wrong { name, .. } => name,
        }
    }
}

fn suggestion(known: &[&str]) -> String {
    if known.is_empty() {
        "; it takes none".to_owned()
    } else {
        format!("; it has {}", known.join(", "))
    }
}

/// The checked parameters of one policy, with defaults filled in; derived ones stay open.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    values: BTreeMap<&'static str, Setting>,
}

impl Parameters {
    /// Checks `given` against `declared`.
    ///
    /// # Errors
    /// All unknown names and all values of a wrong type or out of range, not only the first.
    pub fn check(
        policy: &'static str,
        declared: &'static [Parameter],
        given: &BTreeMap<String, ParameterValue>,
    ) -> Result<Self, Vec<ParameterError>> {
        let mut errors = Vec::new();
        for name in given.keys().filter(|name| !declared.iter().any(|p| p.name == **name)) {
            let known = declared.iter().map(|p| p.name).collect();
            errors.push(ParameterError::Unknown { policy, name: name.clone(), known });
        }
        let mut values = BTreeMap::new();
        for parameter in declared {
            let value = match given.get(parameter.name) {
                None => parameter.default,
                Some(value) => match parameter.read(value) {
                    Ok(value) => value,
                    Err(error) => {
                        errors.push(error);
                        continue;
                    }
                },
            };
            values.insert(parameter.name, value);
        }
        if errors.is_empty() { Ok(Self { values }) } else { Err(errors) }
    }

    /// A whole number; `None` if it must be derived.
    ///
    /// # Panics
    /// When the policy did not declare `name` as a whole number, which is a mistake in the policy.
    pub fn integer(&self, name: &str) -> Option<u64> {
        match self.values.get(name) {
            Some(Setting::Integer(value)) => Some(*value),
            Some(Setting::Derived(_)) => None,
            other => panic!("{name} is declared as {other:?}, not as an integer"),
        }
    }

    /// The value of a parameter of any kind; `None` if the policy did not declare it.
    pub fn setting(&self, name: &str) -> Option<Setting> {
        self.values.get(name).copied()
    }

    /// Any number; `None` if it must be derived.
    ///
    /// # Panics
    /// When the policy did not declare `name` as one.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.values.get(name) {
            Some(Setting::Number(value)) => Some(*value),
            Some(Setting::Derived(_)) => None,
            other => panic!("{name} is declared as {other:?}, not as a number"),
        }
    }

    /// A duration.
    ///
    /// # Panics
    /// When the policy did not declare `name` as one.
    pub fn duration(&self, name: &str) -> Duration {
        match self.values.get(name) {
            Some(Setting::Duration(value)) => *value,
            other => panic!("{name} is declared as {other:?}, not as a duration"),
        }
    }

    /// One of the declared words.
    ///
    /// # Panics
    /// When the policy did not declare `name` as a choice.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.values.get(name) {
            Some(Setting::Choice(value)) => value,
            other => panic!("{name} is declared as {other:?}, not as a choice"),
        }
    }

    /// On or off.
    ///
    /// # Panics
    /// When the policy did not declare `name` as a switch.
    pub fn switch(&self, name: &str) -> bool {
        match self.values.get(name) {
            Some(Setting::Switch(value)) => *value,
            other => panic!("{name} is declared as {other:?}, not as a switch"),
        }
    }
}

impl Parameter {
    fn read(&self, value: &ParameterValue) -> Result<Setting, ParameterError> {
        let read = match (self.kind, value) {
            (
                Kind::Integer(low, high) | Kind::IntegerOr(low, high, _),
                ParameterValue::Integer(n),
            ) => u64::try_from(*n).ok().filter(|n| (low..=high).contains(n)).map(Setting::Integer),
            (Kind::Number(low, high), ParameterValue::Number(n)) => {
                Some(*n).filter(|n| (low..=high).contains(n)).map(Setting::Number)
            }
            (Kind::Number(low, high), ParameterValue::Integer(n)) => {
                Some(*n as f64).filter(|n| (low..=high).contains(n)).map(Setting::Number)
            }
            (Kind::Duration(low, high), ParameterValue::Text(text)) => parse_duration(text)
                .ok()
                .filter(|d| (low..=high).contains(d))
                .map(Setting::Duration),
            (Kind::IntegerOr(_, _, words) | Kind::Choice(words), ParameterValue::Text(text)) => {
                words.iter().find(|word| *word == text).map(|word| Setting::Choice(word))
            }
            (Kind::Switch, ParameterValue::Switch(on)) => Some(Setting::Switch(*on)),
            _ => None,
        };
        read.ok_or_else(|| ParameterError::Wrong {
            name: self.name,
            expected: self.kind.to_string(),
            given: value.to_string(),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(low, high) => write!(f, "a whole number from {low} to {high}"),
            Self::IntegerOr(low, high, words) => {
                write!(f, "a whole number from {low} to {high}, or \"{}\"", words.join("\" or \""))
            }
            Self::Number(low, high) => write!(f, "a number from {low} to {high}"),
            Self::Duration(low, high) => {
                write!(f, "a duration from {} to {}", format_duration(*low), format_duration(*high))
            }
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Switch => write!(f, "true or false"),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Duration(value) => write!(f, "{}", format_duration(*value)),
            Self::Choice(value) => write!(f, "{value}"),
            Self::Switch(value) => write!(f, "{value}"),
            Self::Derived(how) => write!(f, "{how}"),
        }
    }
}

impl fmt::Display for ParameterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Switch(value) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Parameter] = &[
        Parameter {
            name: "replicas",
            kind: Kind::Integer(1, 10),
            default: Setting::Integer(2),
            unit: "nodes",
            help: "How many.",
        },
        Parameter {
            name: "shrink_after",
            kind: Kind::Duration(Duration::ZERO, Duration::from_secs(60)),
            default: Setting::Duration(Duration::from_secs(20)),
            unit: "",
            help: "How long.",
        },
    ];

    fn given(pairs: &[(&str, ParameterValue)]) -> BTreeMap<String, ParameterValue> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect()
    }

    #[test]
    fn defaults_fill_what_is_not_given() {
        let all =
            Parameters::check("p", DECLARED, &given(&[("replicas", ParameterValue::Integer(3))]))
                .unwrap();
        assert_eq!(all.integer("replicas"), Some(3));
        assert_eq!(all.duration("shrink_after"), Duration::from_secs(20));
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let wrong = given(&[
            ("replicas", ParameterValue::Integer(0)),
            ("replica", ParameterValue::Integer(1)),
            ("shrink_after", ParameterValue::Text("5 parsecs".into())),
        ]);
        let errors = Parameters::check("p", DECLARED, &wrong).unwrap_err();
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "policy `p` has no parameter `replica`; it has replicas, shrink_after",
                "`replicas` must be a whole number from 1 to 10, not 0",
                "`shrink_after` must be a duration from 0s to 1m, not \"5 parsecs\"",
            ]
        );
    }
}
