//! `[policy]`: a policy and the values of its parameters.

use std::collections::BTreeMap;

use levada_policy::ParameterValue;
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
    pub parameters: BTreeMap<String, ParameterValue>,
}
