//! `[site.large]`: files that are fetched in pieces.

use levada_edge::settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{Size, Time};

/// How large files are fetched: in pieces, each an object of its own to the cluster (CoDeploy).
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Large {
    /// Whether large files are fetched in pieces. Without, they are objects like all others, kept in blocks by one node.
    pub enabled: bool,
    /// Where `chunk_size` and `window` come from when they are not given.
    pub profile: LargeProfile,
    /// How long a file is that is fetched in pieces, or longer. `"8MiB"` when not given.
    #[schemars(extend("examples" = ["64MiB"]))]
    pub threshold: Option<Size>,
    /// Bytes in a piece; at most `cache.block`. By the profile when not given.
    #[schemars(extend("examples" = ["512KiB"], "x-minimum" = "1KiB"))]
    pub chunk_size: Option<Size>,
    /// Pieces of one transfer at once: it holds so many times `chunk_size` in memory. By the profile when not given.
    #[schemars(range(min = 1, max = 1024))]
    pub window: Option<u32>,
    /// Nodes that each piece is kept by, chosen by the hash of its URL (`r-hrw`). The site's policy chooses when not given.
    #[schemars(range(min = 1, max = 64))]
    pub replicas: Option<u32>,
    /// What is done about slow pieces, beside the timeout.
    pub retry: LargeRetry,
    /// How many times the average a piece may take before another node is asked. 5 when not given, as published.
    #[schemars(range(min = 1, max = 100))]
    pub timeout_factor: Option<f64>,
    /// How long the first piece of a transfer may take, while there is no average. `"10s"` when not given.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "10m"))]
    pub first_timeout: Option<Time>,
    /// A piece is never given up sooner than this, however quick the others were. By the profile when not given.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub min_timeout: Option<Time>,
    /// How often a piece is asked for before the transfer fails. 8 when not given.
    #[schemars(range(min = 1, max = 100))]
    pub tries: Option<u32>,
}

/// Values for the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LargeProfile {
    /// 16 pieces of 512 KiB.
    #[default]
    Default,
    /// As CoDeploy was published: 10 pieces of 60 kB; what takes five times the average is asked for again under another name.
    Paper,
}

/// What is done about slow pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LargeRetry {
    /// Nothing more: a late piece is given up and asked of another node.
    #[default]
    Timeout,
    /// A piece that the client and all others of a window wait for is asked of a second node; the first answer wins.
    Hedge,
    /// Requests just in time: of the window no more is used than fills the client's link.
    Deadline,
}

impl From<&Large> for settings::LargeSettings {
    fn from(file: &Large) -> Self {
        let base = match file.profile {
            LargeProfile::Default => Self::default(),
            LargeProfile::Paper => Self::paper(),
        };
        let patience = settings::Patience {
            factor: file.timeout_factor.unwrap_or(base.plan.patience.factor),
            first: file.first_timeout.map_or(base.plan.patience.first, |time| time.0),
            least: file.min_timeout.map_or(base.plan.patience.least, |time| time.0),
            ..base.plan.patience
        };
        let plan = settings::Plan {
            chunk: file.chunk_size.map_or(base.plan.chunk, |size| size.0),
            window: file.window.map_or(base.plan.window, |window| window as usize),
            mode: match file.retry {
                LargeRetry::Timeout => settings::Mode::Timeout,
                LargeRetry::Hedge => settings::Mode::Hedge,
                LargeRetry::Deadline => settings::Mode::Deadline,
            },
            patience,
            tries: file.tries.unwrap_or(base.plan.tries),
            salted: base.plan.salted,
        };
        let threshold = file.threshold.map_or(base.threshold, |size| size.0);
        Self { threshold, plan, replicas: file.replicas }
    }
}
