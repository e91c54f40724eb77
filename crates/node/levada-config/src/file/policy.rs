//! `[policy]`: a policy and the values of its parameters.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A policy and its parameters. `levada policies` and docs/policies/reference.md list them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct Policy {
    /// Its name.
    #[schemars(extend("examples" = ["adaptive"]))]
    pub name: Option<String>,
    /// Parameters of this policy.
    #[serde(flatten)]
    pub parameters: BTreeMap<String, Scalar>,
}

/// The value of a policy's parameter; the policy declares its type.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Scalar {
    /// On or off.
    Switch(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A word or a duration.
    Text(String),
}
