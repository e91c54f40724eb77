//! The result of one check, as operators read it.

use serde::Serialize;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing is to be done.
    Ok,
    /// It was not checked, because the system does not show it or the node does not need it.
    Skip,
    /// A node runs, but may reach this limit.
    Warn,
    /// A node does not start, or does not serve as configured.
    Fail,
}

impl Level {
    /// The word in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How serious it is.
    pub level: Level,
    /// The name of the check.
    pub check: String,
    /// The observed state.
    pub seen: String,
    /// The consequence for a node.
    pub meaning: Option<String>,
    /// A command, or a change of the configuration.
    pub remedy: Option<String>,
}

impl Finding {
    /// Nothing is to be done.
    pub fn ok(check: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, seen)
    }

    /// It was not checked.
    pub fn skip(check: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::new(Level::Skip, check, seen)
    }

    /// A node may reach this limit.
    pub fn warn(check: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::new(Level::Warn, check, seen)
    }

    /// A node does not serve as configured.
    pub fn fail(check: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::new(Level::Fail, check, seen)
    }

    fn new(level: Level, check: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { level, check: check.into(), seen: seen.into(), meaning: None, remedy: None }
    }

    /// With its meaning.
    #[must_use]
    pub fn meaning(self, meaning: impl Into<String>) -> Self {
        Self { meaning: Some(meaning.into()), ..self }
    }

    /// With its remedy.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}
