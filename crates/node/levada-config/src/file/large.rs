//! `[site.large]`: files that are fetched in pieces.

use levada_fetch::{Mode, Patience, Plan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{Size, Time};

/// Large files, fetched in pieces. Each piece is an object of its own to the cluster (CoDeploy).
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Large {
    /// Whether large files are fetched in pieces. Otherwise one node keeps them in blocks, like all other
    /// objects.
    pub enabled: bool,
    /// The defaults of the keys below.
    pub profile: LargeProfile,
    /// Minimum size of a file that is fetched in pieces. The default is `"8MiB"`.
    #[schemars(extend("examples" = ["64MiB"]))]
    pub threshold: Option<Size>,
    /// Size of a piece; at most `cache.block`. The profile has the default.
    #[schemars(extend("examples" = ["512KiB"], "x-minimum" = "1KiB"))]
    pub chunk_size: Option<Size>,
    /// Pieces that one transfer fetches at once: it holds this many times `chunk_size` in memory. The profile
    /// has the default.
    #[schemars(range(min = 1, max = 1024))]
    pub window: Option<u32>,
    /// Number of nodes that keep each piece, chosen by the hash of its URL (`r-hrw`). By default the site's
    /// policy chooses.
    #[schemars(range(min = 1, max = 64))]
    pub replicas: Option<u32>,
    /// Measures against slow pieces, in addition to the timeout.
    pub retry: LargeRetry,
    /// A piece that takes this many times the average is requested from another node. The default is 5, as
    /// published.
    #[schemars(range(min = 1, max = 100))]
    pub timeout_factor: Option<f64>,
    /// Timeout of the first piece of a transfer, while there is no average. The default is `"10s"`.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "10m"))]
    pub first_timeout: Option<Time>,
    /// Minimum timeout of a piece, however quick the others were. The profile has the default.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub min_timeout: Option<Time>,
    /// Tries of a piece before the transfer fails. The default is 8.
    #[schemars(range(min = 1, max = 100))]
    pub tries: Option<u32>,
}

/// Default values of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LargeProfile {
    /// 16 pieces of 512 KiB.
    #[default]
    Default,
    /// As CoDeploy was published: 10 pieces of 60 kB; a piece that takes five times the average is requested
    /// again under another name.
    Paper,
}

/// Measures against slow pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LargeRetry {
    /// Only the timeout: a late piece is given up and requested from another node.
    #[default]
    Timeout,
    /// A piece that blocks the client and the whole window is requested from a second node; the first answer
    /// wins.
    Hedge,
    /// Just-in-time requests: a transfer uses only as much of the window as fills the client's
    /// link.
    Deadline,
}

impl From<&Large> for LargeSettings {
    fn from(file: &Large) -> Self {
        let base = match file.profile {
            LargeProfile::Default => Self::default(),
            LargeProfile::Paper => Self::paper(),
        };
        let patience = Patience {
            factor: file.timeout_factor.unwrap_or(base.plan.patience.factor),
            first: file.first_timeout.map_or(base.plan.patience.first, |time| time.0),
            least: file.min_timeout.map_or(base.plan.patience.least, |time| time.0),
            ..base.plan.patience
        };
        let plan = Plan {
            chunk: file.chunk_size.map_or(base.plan.chunk, |size| size.0),
            window: file.window.map_or(base.plan.window, |window| window as usize),
            mode: match file.retry {
                LargeRetry::Timeout => Mode::Timeout,
                LargeRetry::Hedge => Mode::Hedge,
                LargeRetry::Deadline => Mode::Deadline,
            },
            patience,
            tries: file.tries.unwrap_or(base.plan.tries),
            published: base.plan.published,
        };
        let threshold = file.threshold.map_or(base.threshold, |size| size.0);
        Self { threshold, plan, replicas: file.replicas }
    }
}

/// How large files are served: in pieces, each of which is an object of its own to the cluster
/// (CoDeploy).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LargeSettings {
    /// The least size of a large file in bytes, at least one piece.
    pub threshold: u64,
    /// The window, the size of pieces, and the rules for slow ones. A piece is at most a block.
    pub plan: Plan,
    /// The number of nodes that keep each piece, chosen by hash; `None`: the site's policy chooses.
    pub replicas: Option<u32>,
}

impl LargeSettings {
    /// The published settings: ten pieces of 60 KB at once (WORLDS'04, Sec. 4); a piece that takes five
    /// times the average is requested again, under another name (Sec. 3).
    pub fn paper() -> Self {
        let large = Self::default();
        let patience = Patience::PAPER;
        let plan = Plan { chunk: 60_000, window: 10, patience, published: true, ..large.plan };
        Self { plan, ..large }
    }
}

impl Default for LargeSettings {
    fn default() -> Self {
        Self { threshold: 8 << 20, plan: Plan::default(), replicas: None }
    }
}
