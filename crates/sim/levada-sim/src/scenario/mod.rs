//! A scenario: the description of a simulation, as a file states it.
//!
//! [`Scenario`] is plain data with a default for every key: the normal workload of OSDI'02 on 64
//! servers. A file gives the keys that differ; `key=value` pairs, as sweeps and `--set` use them,
//! change one key each. [`Scenario::prepare`] checks it.

mod cache;
mod failure;
mod growth;
mod origin;
mod prepare;
mod read;

use std::{collections::BTreeMap, time::Duration};

use levada_policy::{DEFAULT_POLICY, ParameterValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Fidelity, regions};

pub use levada_outcome::{Share, Size, Time};
pub use prepare::Prepared;
pub use read::{Problem, Problems};

/// A whole scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// A title for reports.
    pub title: String,
    /// The seed of all random numbers: the same seed gives the same results.
    pub seed: u64,
    /// The network that connects clients and servers.
    pub topology: TopologyChoice,
    /// The servers.
    pub servers: Servers,
    /// The origin that servers fetch from. Without it, they read all documents from their disks.
    pub origin: Option<Origin>,
    /// Documents that expire and are purged. By default all are fresh for ever.
    pub freshness: Freshness,
    /// The workload: clients, documents and the times of requests.
    pub workload: Workload,
    /// The policy and its parameters, as in a node's configuration.
    pub policy: Policy,
    /// The cache of a server in memory and on disk, as in a node's configuration.
    pub cache: Cache,
    /// Front-ends that hold documents themselves, and answer before the policy is asked. Without it they hold none.
    pub front_ends: Option<FrontEnds>,
    /// How the network is simulated.
    pub network: NetworkModel,
    /// Measurement, and the end of a run.
    pub measure: Measure,
    /// Simulates sessions on a cluster of Web servers instead, as in WWW10. Of the other tables,
    /// only the number of servers, the policy and the eviction apply.
    pub cap: Option<levada_cap::Settings>,
    /// Simulates nodes in regions far from each other instead. The tables `topology`, `servers` but for the
    /// limits of a server, and `network` but for segments and their windows do not apply then.
    pub regions: Option<regions::Regions>,
}

/// The network that connects clients and servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TopologyChoice {
    /// A network from `levada sim list topologies`.
    pub name: String,
    /// A JSON or GraphML file instead, whose places are marked as client, redirector or server.
    pub file: Option<String>,
    /// The parameters of a listed network, such as `redirectors`.
    #[serde(flatten)]
    pub parameters: BTreeMap<String, ParameterValue>,
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
    /// Number of servers.
    pub count: usize,
    /// Requests that a server serves at a time; further requests wait.
    pub active: u32,
    /// Requests that may wait. A server with more has failed.
    pub queue: u32,
    /// Speed of the CPU; 1 is the CPU of the papers.
    pub cpu: f64,
    /// Disks per server.
    pub disks: u32,
    /// Speed of a disk; 1 is the disk of the papers.
    pub disk: f64,
    /// Time that a disk takes for each read before the first byte, instead of the seeks of the papers' disk. A
    /// device that works on several reads at a time is as many disks.
    pub disk_latency: Option<Time>,
    /// Bytes that a disk reads or writes in a second, instead of those of the papers' disk.
    pub disk_bytes_per_second: Option<u64>,
    /// Speeds of the first servers, by which `cpu` and `disk` are multiplied; all others have 1.
    pub speeds: Vec<f64>,
    /// How long each of these speeds stays at its server: then it moves on to the next one, as the load of other
    /// programs does. Without it, it stays.
    pub speeds_for: Option<Time>,
    /// The part of the servers behind slow links (OSDI'02 Sec. 5.4.1).
    pub slow: Share,
    /// Capacity of these links, in bits per second.
    pub slow_bits_per_second: u64,
    /// Names of the first servers in hash orders, as nodes have them. The names of others follow from the
    /// seed.
    pub names: Vec<String>,
    /// How often a request is tried while servers fail, each time at another one, as long as no byte of
    /// its answer has come.
    pub tries: u32,
    /// Time until front-ends know that a server has failed, and that it is back. Three requests in a row
    /// that find no server tell them at once.
    pub noticed_after: Time,
    /// How often front-ends share their loads with each other, for policies that need the loads over all of them
    /// (`fdr-global`). Without it they know them at once.
    pub loads_shared_every: Option<Time>,
    /// Servers that fail and return.
    pub failure: Vec<Failure>,
}

/// The origin of all servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Origin {
    /// Time from a request to the first byte of its answer, once the origin works on it.
    pub latency: Time,
    /// Requests that it works on or sends to at a time; others wait, first come, first served. Without it
    /// there is no limit.
    pub at_once: Option<u32>,
    /// Requests that it begins to work on in a second, at equal intervals; others wait. Without it there is
    /// no limit.
    pub requests_per_second: Option<f64>,
    /// Capacity of its link, in bits per second, which all bodies share block by block. Without it they
    /// take no time.
    pub bits_per_second: Option<u64>,
    /// The rate at which it sends one body, in bits per second, whatever else it sends. Without it a body may have
    /// the whole link.
    pub body_bits_per_second: Option<u64>,
    /// Requests that one server may have at the origin at a time. It refuses further ones that miss: they are lost.
    /// Without it there is no limit.
    pub misses_per_server: Option<u32>,
}

impl Default for Origin {
    fn default() -> Self {
        Self {
            latency: Time(Duration::from_millis(40)),
            at_once: None,
            requests_per_second: None,
            bits_per_second: None,
            body_bits_per_second: None,
            misses_per_server: None,
        }
    }
}

/// Documents that expire and are purged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Freshness {
    /// Classes of documents; those of no class never expire.
    pub class: Vec<FreshnessClass>,
    /// Purges.
    pub purge: Vec<Purge>,
}

/// Documents with the same directives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FreshnessClass {
    /// Its part of all documents.
    pub share: Share,
    /// `Cache-Control` as the origin sends it: servers decide by it as nodes do. With `"no-store"` the
    /// documents are fetched for each request.
    pub cache_control: String,
    /// Mean time between changes at the origin, which come at random. A copy that has expired is fetched again
    /// if its document has changed, and confirmed without a body if not. Without it nothing changes.
    pub changes: Option<Time>,
}

/// A purge, which all servers carry out at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Purge {
    /// When it comes.
    pub at: Time,
    /// Time from one to the next, each of other documents. Without it there is one.
    pub every: Option<Time>,
    /// The part of all documents that it names.
    pub share: Share,
}

impl Default for Purge {
    fn default() -> Self {
        Self { at: Time(Duration::from_secs(60)), every: None, share: Share(1.0) }
    }
}

/// Servers that fail, one after the other, and return.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Failure {
    /// Numbers of the servers that fail in turn, from 0. Without it, all of them do.
    pub servers: Vec<u32>,
    /// When the first one fails.
    pub at: Time,
    /// How long a server is away. It returns with its disk and an empty memory.
    pub r#for: Time,
    /// Time from one failure to the next. Without it, there is one failure.
    pub every: Option<Time>,
}

impl Default for Failure {
    fn default() -> Self {
        let (at, r#for) = (Time(Duration::from_secs(60)), Time(Duration::from_secs(10)));
        Self { servers: Vec::new(), at, r#for, every: None }
    }
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
            disk_latency: None,
            disk_bytes_per_second: None,
            speeds: Vec::new(),
            speeds_for: None,
            slow: Share(0.0),
            slow_bits_per_second: 10_000_000,
            names: Vec::new(),
            tries: 3,
            noticed_after: Time(Duration::from_secs(3)),
            loads_shared_every: None,
            failure: Vec::new(),
        }
    }
}

/// The workload: clients, documents and the times of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// A generated trace, `rice`, `ibm`, `specweb99`, `cdn` or `regions`, or the path of an access log
    /// or a trace. Relative paths begin at the scenario file's directory.
    pub trace: String,
    /// Number of clients that share the trace.
    pub clients: usize,
    /// The rule for the times of requests.
    pub arrivals: Arrivals,
    /// Requests per second: at the beginning of a ramp, or throughout.
    pub rate: f64,
    /// Growth of a ramp's rate at each step, as a part of the rate.
    pub growth: f64,
    /// Length of a step of the ramp, or of `steps`.
    pub step: Time,
    /// Rates in requests per second, each for the length of a step; the last one stays. With them,
    /// a constant rate is the sequence of these rates.
    pub steps: Vec<f64>,
    /// Requests per second at the end of `measure.duration`. With it, a constant rate changes evenly from `rate` to
    /// this one.
    pub rate_at_end: Option<f64>,
    /// Requests outstanding at most. In a closed loop the default is LARD's limit for the number of
    /// servers and the policy's thresholds. In other loops there is no limit by default; further
    /// requests wait at the front-ends, which have equal parts of the limit (ASPLOS'98 Sec. 2.3).
    pub outstanding: Option<u32>,
    /// Whether the trace begins again at its end. Generated traces do by default, logs do not.
    pub repeat: Option<bool>,
    /// The part of the documents that exchange their popularity each minute, with others of about
    /// the same size.
    pub drift: Share,
    /// Documents that appear in the course of the run. Without this table all are there from the beginning.
    pub catalogue: Option<CatalogueGrowth>,
    /// Some clients ask for hot documents only (OSDI'02 Sec. 4.3). Without this table there is no
    /// flash crowd.
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
            steps: Vec::new(),
            rate_at_end: None,
            outstanding: None,
            repeat: None,
            drift: Share(0.0),
            catalogue: None,
            flash: None,
        }
    }
}

/// The rule for the times of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Random clients at exponentially distributed intervals, at a rate that grows until a server
    /// fails (OSDI'02 Sec. 4.3), independent of the state of earlier requests.
    #[default]
    Ramp,
    /// The same at a constant rate.
    Constant,
    /// A new request each time one finishes (ASPLOS'98 Sec. 3.1).
    Closed,
    /// At the times of the trace.
    Recorded,
}

/// Documents that appear in the course of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogueGrowth {
    /// Documents of the trace that are there at the beginning.
    pub start: usize,
    /// Documents at the end. The default is all of the trace.
    pub end: Option<usize>,
    /// The time until all are there. The default is `measure.duration`.
    pub over: Option<Time>,
    /// The place of a new document in the order of popularity.
    pub enter: Entrance,
}

/// The place of a new document in the order of popularity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entrance {
    /// Anywhere, each place with the same probability.
    #[default]
    Anywhere,
    /// Before all others: the newest document is the most popular.
    First,
}

/// A flash crowd (OSDI'02 Sec. 4.3): some clients request only a few hot documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Flash {
    /// The part of the clients that are intensive requesters.
    pub clients: Share,
    /// Number of hot documents.
    pub urls: usize,
    /// Mean size of the hot documents.
    pub mean_size: Size,
    /// When the crowd appears. Before that, its clients are as the others.
    pub begin: Time,
    /// Whether these documents exist. If not, the origin is asked for each request of the crowd, and nothing is kept:
    /// an attack with invalid URLs (OSDI'02 Sec. 5.2.4).
    pub exist: bool,
}

impl Default for Flash {
    fn default() -> Self {
        Self {
            clients: Share(0.25),
            urls: 10,
            mean_size: Size(6000),
            begin: Time(Duration::ZERO),
            exist: true,
        }
    }
}

/// The policy and its parameters, as in an edge's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Policy {
    /// Name of the policy. Its parameters are keys of the same table.
    pub name: String,
    /// Its parameters.
    #[serde(flatten)]
    pub parameters: BTreeMap<String, ParameterValue>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { name: DEFAULT_POLICY.to_owned(), parameters: BTreeMap::new() }
    }
}

/// The cache of a server, as in an edge's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// Capacity of the memory.
    pub memory: Size,
    /// Capacity of the disk tier below the memory, at least 16 MiB and as much as the memory. It needs an
    /// `[origin]`. Without the key there is none.
    pub disk: Option<Size>,
    /// The eviction algorithm of both tiers: `levada sim list evictions` lists them.
    pub eviction: String,
    /// Which documents are kept.
    pub admission: Admission,
    /// Memory that a document takes in addition to its body: some 500 bytes on a node, with its head and all
    /// bookkeeping. The papers count none.
    pub head: Size,
    /// The largest object that is kept. The default is the capacity of each tier.
    pub max_object: Option<Size>,
    /// Requests of the trace that fill memories and disk tiers before the run, in no time and without load. The
    /// run goes on with the request after them.
    pub warm_requests: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            memory: Size(32 << 20),
            disk: None,
            eviction: "gds-packets".to_owned(),
            admission: Admission::Always,
            head: Size(0),
            max_object: None,
            warm_requests: 0,
        }
    }
}

/// The admission rule of a cache, as in a node's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// Every document that is fetched.
    #[default]
    Always,
    /// Documents that are fetched for the second time.
    SecondHit,
}

/// Front-ends that hold documents themselves, each its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FrontEnds {
    /// Capacity of the memory of each. A document takes `cache.head` in addition to its body.
    pub memory: Size,
    /// The eviction algorithm: `levada sim list evictions` lists them.
    pub eviction: String,
    /// The largest object that is kept. The default is the capacity.
    pub max_object: Option<Size>,
}

impl Default for FrontEnds {
    fn default() -> Self {
        let Cache { memory, eviction, max_object, .. } = Cache::default();
        Self { memory, eviction, max_object }
    }
}

/// How the network is simulated. The defaults are NS-2's of the time (specs of OSDI'02, 1.7 e).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkModel {
    /// Level of detail.
    pub fidelity: Fidelity,
    /// TCP's segment, in bytes without headers.
    pub segment: u32,
    /// The initial window of a connection, in segments.
    pub initial_window: u32,
    /// The largest window, in segments.
    pub window: u32,
    /// Packets only: segments that a client acknowledges at a time.
    pub segments_per_ack: u32,
    /// Packets only: how long an acknowledgement waits for these segments.
    pub ack_delay: Time,
    /// Packets only: TCP's retransmission timeout before the first round trip is measured.
    pub first_timeout: Time,
    /// Packets only: TCP's minimum retransmission timeout.
    pub least_timeout: Time,
    /// Size of a request, without headers.
    pub request: Size,
    /// Size of the head of a response, which is sent before its body.
    pub response_head: Size,
    /// Connections are there before the first request, as a proxy keeps them: there is no handshake, and a
    /// request reaches the server after half a round trip.
    pub persistent: bool,
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
            response_head: Size(0),
            persistent: false,
        }
    }
}

/// Measurement, and the end of a run: at these limits, or when a server fails. A trace that is played
/// as recorded or in a closed loop ends with its last request at the latest, unless a limit of
/// requests is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Measure {
    /// Ends the run after this simulated time.
    pub duration: Option<Time>,
    /// Ends the run after this many requests.
    pub requests: Option<u64>,
    /// The run is not measured before this time. A ramp is its own warm-up.
    pub warm_up: Time,
    /// Offered rates of a ramp around which latencies are collected.
    pub latency_at: Vec<u32>,
    /// Sampling interval of curves over time.
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
