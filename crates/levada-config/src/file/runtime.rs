//! `[runtime]`: how the node uses its cores.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the node uses its cores.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Runtime {
    /// Whether all threads share their work.
    pub mode: RuntimeMode,
    /// Threads. One per core when not given.
    #[schemars(range(min = 1, max = 1024), extend("examples" = [4]))]
    pub threads: Option<u32>,
    /// Whether the system moves long bodies from a server's connection to its client's (splice), where both are plain HTTP/1. They do not enter this process then.
    pub splice: bool,
}

impl Default for Runtime {
    fn default() -> Self {
        Self { mode: RuntimeMode::default(), threads: None, splice: true }
    }
}

/// How the threads share their work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeMode {
    /// `shared` up to four threads, `per_core` beyond.
    #[default]
    Auto,
    /// One scheduler; an idle thread takes work from a busy one.
    Shared,
    /// Each thread keeps the connections that it accepted.
    PerCore,
}
