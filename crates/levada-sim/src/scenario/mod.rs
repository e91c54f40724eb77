//! What is to be simulated, as a file says it.
//!
//! [`Scenario`] is plain data with a default for every key: the normal workload of OSDI'02 on 64
//! servers. A file gives what differs; `key=value` pairs, as sweeps and `--set` use them, change one
//! key each. [`Scenario::prepare`] holds it against reality.

mod prepare;
mod read;
mod value;

use std::{collections::BTreeMap, time::Duration};

use levada_policy::ParameterValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Fidelity, cap};

pub use prepare::Prepared;
pub use read::{Problem, Problems};
pub use value::{Scalar, Share, Size, Time};

/// A whole scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// A line for reports.
    pub title: String,
    /// Where all chance begins: the same seed gives the same numbers.
    pub seed: u64,
    /// Which network connects clients and servers.
    pub topology: TopologyChoice,
    /// The servers.
    pub servers: Servers,
    /// Who asks for what, and when.
    pub workload: Workload,
    /// The policy and its parameters, as in a node's configuration.
    pub policy: Policy,
    /// The memory of a server, as in a node's configuration.
    pub cache: Cache,
    /// How the network is simulated.
    pub network: NetworkModel,
    /// What is measured, and when a run ends.
    pub measure: Measure,
    /// Sessions on a cluster of Web servers instead, as in WWW10. Of the other tables this takes the
    /// number of servers, the policy and the eviction.
    pub cap: Option<cap::Settings>,
}

/// Which network connects clients and servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TopologyChoice {
    /// A network from `levada sim list topologies`.
    pub name: String,
    /// A file instead, JSON or GraphML, whose places say who is a client, a redirector, a server.
    pub file: Option<String>,
    /// The parameters of a listed one, such as `redirectors`.
    #[serde(flatten)]
    pub parameters: BTreeMap<String, Scalar>,
}

impl Default for TopologyChoice {
    fn default() -> Self {
        Self { name: "nsfnet_t3".to_owned(), file: None, parameters: BTreeMap::new() }
    }
}

/// The servers (OSDI'02 Sec. 4.1, ASPLOS'98 Sec. 3.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Servers {
    /// How many.
    pub count: usize,
    /// Requests that one serves at a time; further ones wait.
    pub active: u32,
    /// Requests that may wait: with more the server has failed.
    pub queue: u32,
    /// How fast the CPU is; 1 is that of the papers.
    pub cpu: f64,
    /// Disks per server.
    pub disks: u32,
    /// How fast a disk is; 1 is that of the papers.
    pub disk: f64,
    /// The part of the servers behind slow links (OSDI'02 Sec. 5.4.1).
    pub slow: Share,
    /// What these links carry, in bits per second.
    pub slow_bits_per_second: u64,
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            count: 64,
            active: 512,
            queue: 5 * 512,
            cpu: 1.0,
            disks: 1,
            disk: 1.0,
            slow: Share(0.0),
            slow_bits_per_second: 10_000_000,
        }
    }
}

/// Who asks for what, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// A generated trace, `rice`, `ibm` or `specweb99`, or the path of an access log or a trace.
    /// Relative paths begin at the scenario file's directory.
    pub trace: String,
    /// How many clients share it.
    pub clients: usize,
    /// When requests are sent.
    pub arrivals: Arrivals,
    /// Requests per second: at the beginning of a ramp, or throughout.
    pub rate: f64,
    /// By which part the rate of a ramp grows at each step.
    pub growth: f64,
    /// How long a step of the ramp is.
    pub step: Time,
    /// Requests outstanding at most in a closed loop. LARD's limit for the servers and the policy's
    /// thresholds when not given.
    pub outstanding: Option<u32>,
    /// Some clients ask for hot documents only (OSDI'02 Sec. 4.3). Nobody does without this table.
    pub flash: Option<Flash>,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            trace: "rice".to_owned(),
            clients: 1000,
            arrivals: Arrivals::Ramp,
            rate: 1000.0,
            growth: 0.01,
            step: Time(Duration::from_secs(6)),
            outstanding: None,
            flash: None,
        }
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// At a rate that grows until a server fails (OSDI'02 Sec. 4.3), whatever becomes of earlier
    /// ones. Random clients at exponentially distributed intervals.
    #[default]
    Ramp,
    /// The same at one rate.
    Constant,
    /// A new one whenever one is finished (ASPLOS'98 Sec. 3.1).
    Closed,
    /// When the trace says.
    Recorded,
}

/// A flash crowd (OSDI'02 Sec. 4.3): some clients draw from a few hot documents instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Flash {
    /// The part of the clients that are intensive requesters.
    pub clients: Share,
    /// How many hot documents there are.
    pub urls: usize,
    /// How large they are on average.
    pub mean_size: Size,
}

impl Default for Flash {
    fn default() -> Self {
        Self { clients: Share(0.25), urls: 10, mean_size: Size(6000) }
    }
}

/// The policy and its parameters, as in an edge's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Policy {
    /// The policy. Its parameters stand beside it.
    pub name: String,
    /// Its parameters.
    #[serde(flatten)]
    pub parameters: BTreeMap<String, Scalar>,
}

impl Policy {
    /// Its parameters as levada-policy takes them.
    pub(crate) fn given(&self) -> BTreeMap<String, ParameterValue> {
        self.parameters.iter().map(|(name, value)| (name.clone(), value.into())).collect()
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { name: "fdr".to_owned(), parameters: BTreeMap::new() }
    }
}

/// The memory of a server, as in an edge's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// What it holds.
    pub memory: Size,
    /// What goes first when it is full: `levada sim list evictions`.
    pub eviction: String,
    /// The largest object that is kept; any that fits when not given.
    pub max_object: Option<Size>,
}

impl Default for Cache {
    fn default() -> Self {
        Self { memory: Size(32 << 20), eviction: "gds-packets".to_owned(), max_object: None }
    }
}

/// How the network is simulated. The defaults are NS-2's of the time (specs of OSDI'02, 1.7 e).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkModel {
    /// How finely.
    pub fidelity: Fidelity,
    /// TCP's segment, in bytes without headers.
    pub segment: u32,
    /// The window that a connection begins with, in segments.
    pub initial_window: u32,
    /// The largest window, in segments.
    pub window: u32,
    /// Packets only: segments that a client acknowledges at a time.
    pub segments_per_ack: u32,
    /// Packets only: how long an acknowledgement waits for these segments.
    pub ack_delay: Time,
    /// Packets only: TCP's retransmission timeout before it knows of any round trip.
    pub first_timeout: Time,
    /// Packets only: TCP's least retransmission timeout.
    pub least_timeout: Time,
    /// How large a request is, without headers.
    pub request: Size,
}

impl Default for NetworkModel {
    fn default() -> Self {
        Self {
            fidelity: Fidelity::Flow,
            segment: 536,
            initial_window: 1,
            window: 20,
            segments_per_ack: 1,
            ack_delay: Time(Duration::from_millis(100)),
            first_timeout: Time(Duration::from_secs(3)),
            least_timeout: Time(Duration::from_secs(1)),
            request: Size(300),
        }
    }
}

/// What is measured, and when a run ends: by these limits, or when a server fails. A trace that is
/// played as recorded or in a closed loop ends with its last request at the latest, unless a limit of
/// requests says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Measure {
    /// Ends after so much simulated time.
    pub duration: Option<Time>,
    /// Ends after so many requests.
    pub requests: Option<u64>,
    /// What happens before that time is not measured. A ramp is its own warm-up.
    pub warm_up: Time,
    /// Offered rates around which latencies are collected during a ramp.
    pub latency_at: Vec<u32>,
    /// How often curves over time are sampled.
    pub sample: Time,
}

impl Default for Measure {
    fn default() -> Self {
        Self {
            duration: None,
            requests: None,
            warm_up: Time(Duration::ZERO),
            latency_at: Vec::new(),
            sample: Time(Duration::from_secs(30)),
        }
    }
}
