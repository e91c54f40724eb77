//! `[runtime]`: the threads of the node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The threads of the node.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Runtime {
    /// The assignment of connections to threads.
    pub mode: RuntimeMode,
    /// Number of threads. The default is one per core.
    #[schemars(range(min = 1, max = 1024), extend("examples" = [4]))]
    pub threads: Option<u32>,
    /// Whether the system moves long bodies from a server's connection to its client's (splice), where both
    /// are plain HTTP/1. Such bodies do not enter this process.
    pub splice: bool,
    /// The user that the node becomes when root starts it, once its listeners are open. By default it stays
    /// root.
    #[schemars(length(min = 1, max = 256), extend("examples" = ["levada"]))]
    pub user: Option<String>,
    /// The group of the node, in addition to those that the user has. The default is the user's own.
    #[schemars(length(min = 1, max = 256), extend("examples" = ["levada"]))]
    pub group: Option<String>,
}

impl Default for Runtime {
    fn default() -> Self {
        Self { mode: RuntimeMode::default(), threads: None, splice: true, user: None, group: None }
    }
}

/// The assignment of connections to threads.
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
