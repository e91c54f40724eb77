//! `[log]`: the access log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The access log.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `"off"`, `"stdout"`, or a file to which lines are appended.
    #[schemars(length(min = 1))]
    pub access: String,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a line of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Apache's and nginx's combined format, followed by times, cache status and decision.
    #[default]
    Combined,
    /// One JSON object per line, with nginx's variable names where they exist.
    Json,
}

impl Default for Log {
    /// On standard output, where containers and service managers pick it up.
    fn default() -> Self {
        Self { access: "stdout".to_owned(), format: LogFormat::default() }
    }
}
