//! Forms of values that several tables of a configuration share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::Path;

/// One or several values; one may be written without brackets.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// Several.
    Many(#[schemars(length(min = 1))] Vec<T>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    /// All of them.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    /// All of them with their places.
    pub fn placed(&self, path: &Path) -> Vec<(Path, &T)> {
        match self {
            Self::One(one) => vec![(path.clone(), one)],
            Self::Many(many) => (0..).map(|at| path.index(at)).zip(many).collect(),
        }
    }
}

/// A table, or `"off"` in the place of an inherited one.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OrOff<T> {
    /// As a table says.
    On(T),
    /// Off.
    Off(Off),
}

impl<T> OrOff<T> {
    /// The table, unless it is off.
    pub fn on(&self) -> Option<&T> {
        match self {
            Self::On(table) => Some(table),
            Self::Off(Off::Off) => None,
        }
    }
}

/// A setting that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Off {
    /// Off.
    Off,
}
