//! What a node is told: a configuration that has been read, checked and cannot be wrong any more.
//!
//! The binary makes it from a TOML file (its `config` module), tests make it by hand. Field names are
//! those of the file; docs/operate/configuration.md describes them for operators.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

pub use levada_cache::{CacheRules, CookieStorage};
pub use levada_fetch::{Mode, Patience, Plan};
pub use levada_handoff::{AfterHandoff, HandoffBackendSettings, HandoffControl, HandoffSettings};
use levada_policy::ParameterValue;
pub use levada_policy::classify::{ClassRule, ClassRules};
pub use levada_store::{CacheSettings, DiskCache};
pub use levada_upstream::HealthCheck;

/// Everything one node needs to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node's name: in `Cache-Status`, `Via`, logs, and in the hash order of every redirector.
    pub name: String,
    /// How the node uses its cores.
    pub runtime: Runtime,
    /// Whether the system moves long bodies from servers to clients, instead of this process.
    pub splice: bool,
    /// Where clients come in.
    pub listeners: Vec<Listener>,
    /// The cluster that this node belongs to; `None` when it stands alone.
    pub peering: Option<Peering>,
    /// Where operators come in: metrics, health, explain. Never a public address.
    pub admin: Option<SocketAddr>,
    /// The memory tier.
    pub cache: CacheSettings,
    /// Who may purge, and what becomes of tags.
    pub purge: PurgeSettings,
    /// How connections are handed over, to back-ends or from a front-end; `None`: not at all.
    pub handoff: Option<HandoffSettings>,
    /// What is served, by host.
    pub sites: Vec<SiteSettings>,
    /// What a client may cost.
    pub limits: Limits,
    /// Where and how requests are logged.
    pub access_log: Option<AccessLog>,
    /// What becomes of the route to this node; `None`: somebody else's business.
    pub route: Option<RouteSettings>,
    /// Seeds every random choice, so that a run can be repeated; `None` takes one from the system.
    pub seed: Option<u64>,
}

/// Reads the settings anew, or says why they cannot be used, in lines for an operator.
pub struct SettingsReader(pub Box<dyn Fn() -> Result<Settings, String> + Send + Sync>);

impl std::fmt::Debug for SettingsReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SettingsReader")
    }
}

/// The route to a node, and the BGP daemon that announces it.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSettings {
    /// Who is told.
    pub speaker: Speaker,
    /// When it changes.
    pub rules: RouteRules,
    /// How long routers may take to notice a withdrawal.
    pub settle: Duration,
    /// Decisions are shown and not carried out.
    pub dry_run: bool,
}

/// A BGP daemon, and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// BIRD, over its control socket.
    Bird {
        /// The socket.
        socket: PathBuf,
        /// The protocol that has the route.
        protocol: String,
        /// The one that has it less preferred.
        backup: Option<String>,
    },
    /// ExaBGP, by a process that asks the node.
    ExaBgp {
        /// What is announced.
        prefixes: Vec<String>,
        /// What stands behind a prefix: next hop and attributes, in ExaBGP's words.
        attributes: String,
        /// The same for a backup.
        backup: Option<String>,
    },
}

/// When a route changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteRules {
    /// The least time between changes for load, and until a node that was unwell is back.
    pub dwell: Duration,
    /// The load from which the route is a backup; never without.
    pub load_high: Option<f64>,
    /// The load at which it is one no longer.
    pub load_low: Option<f64>,
    /// What becomes of the route when all servers of a site are down.
    pub unwell: RouteLevel,
}

/// How a route is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteLevel {
    /// Not at all.
    Withdrawn,
    /// For what no other node takes.
    Backup,
    /// As usual.
    Announced,
}

impl RouteLevel {
    /// The name used in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawn => "withdrawn",
            Self::Backup => "backup",
            Self::Announced => "announced",
        }
    }
}

/// How a node uses its cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// One scheduler over this many threads, with work stealing.
    Shared(usize),
    /// One scheduler, listener socket and pool per thread; connections stay where they were accepted.
    PerCore(usize),
}

/// One address for clients.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Certificates by SNI; plain text when empty.
    pub tls: Vec<Certificate>,
    /// Whether HTTP/2 without TLS (prior knowledge) is spoken as well as HTTP/1.1.
    pub h2c: bool,
    /// How many retransmissions after timeouts may go unacknowledged before a connection is given up
    /// with a reset; `None` leaves it to the kernel, which takes a quarter of an hour.
    pub dormant_retries: Option<u8>,
}

impl Listener {
    /// A listener for plain HTTP/1.1, with the default for all else.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: Vec::new(), h2c: false, dormant_retries: Some(DORMANT_RETRIES) }
    }
}

/// What WWW'09 found to tell lost clients from poor paths (Sec. 4.2).
pub const DORMANT_RETRIES: u8 = 1;

/// A certificate chain and its key, both PEM files.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The chain, leaf first. Its names are the server names it answers to.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The cluster: every node decides alone which of them serves a request.
#[derive(Clone, Debug)]
pub struct Peering {
    /// Where peers come in, and nobody else may.
    pub listen: SocketAddr,
    /// How a peer proves to be one.
    pub trust: PeerTrust,
    /// Whether peers speak HTTP/2 with each other (one connection) instead of HTTP/1.1 (a pool).
    pub h2: bool,
    /// Every node, this one included.
    pub peers: Vec<Peer>,
    /// How peers are watched.
    pub health: HealthCheck,
    /// How long a peer that came up takes to reach its full share; zero: at once.
    pub slow_start: Duration,
}

/// How a peer proves to be one.
#[derive(Clone, Debug)]
pub enum PeerTrust {
    /// All peers know this secret (at least 16 bytes).
    Secret(String),
    /// Both sides show certificates of one authority; `secret` still signs redirects.
    Mtls {
        /// This node's certificate.
        identity: Certificate,
        /// The authority, PEM.
        authority: PathBuf,
        /// Signs 307 redirects; needed for `delivery = "redirect"` only.
        secret: Option<String>,
    },
}

/// One node of the cluster.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name, equal to `name` in its own configuration.
    pub name: String,
    /// Its peer listener, as host:port.
    pub address: String,
    /// Relative capacity.
    pub weight: f64,
    /// Round-trip time from here, where known: `distance` is relative to the nearest peer.
    pub rtt: Option<Duration>,
    /// Where clients reach it, such as `https://b.cdn.example`: the target of a 307.
    pub client_url: Option<String>,
}

/// One site: the hosts it answers to and how it is served.
#[derive(Clone, Debug)]
pub struct SiteSettings {
    /// Host names, `*.example.com` for all below one, `*` for whatever no other site has.
    pub hosts: Vec<String>,
    /// Where content comes from; the first that is up is asked. Empty where there is a switch.
    pub origins: Vec<Origin>,
    /// Servers that the policy chooses among, instead of the nodes of the cluster.
    pub switch: Option<SwitchSettings>,
    /// Which service class a request is of.
    pub classes: ClassSettings,
    /// The `Host` sent to the origin; the client's own when `None`.
    pub origin_host: Option<String>,
    /// How a chosen peer's answer reaches the client.
    pub delivery: Delivery,
    /// Which node serves a request.
    pub policy: PolicyChoice,
    /// How origins are watched.
    pub health: HealthCheck,
    /// What may be stored and for how long, where the RFCs leave a choice.
    pub rules: CacheRules,
    /// How many requests may be at the origins at once.
    pub misses: MissLimits,
    /// Whether the reason for the choice of a node is shown to clients in `Proxy-Status` details.
    pub debug: bool,
    /// Whether responses are stored at all; off, the site is only distributed.
    pub cache: bool,
    /// How large files are served; `None`: as all others.
    pub large: Option<LargeSettings>,
}

/// How large files are served: in pieces, each an object of its own to the cluster (CoDeploy).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LargeSettings {
    /// Files of at least so many bytes. No less than a piece.
    pub threshold: u64,
    /// The window, its pieces, and what is done about slow ones. A piece is at most a block.
    pub plan: Plan,
    /// Nodes that each piece is kept by, chosen by hash; `None`: the site's policy chooses.
    pub replicas: Option<u32>,
}

impl LargeSettings {
    /// As published: ten pieces of 60 KB at once (WORLDS'04, Sec. 4); what takes five times the average
    /// is asked for again, under another name (Sec. 3).
    pub fn paper() -> Self {
        let large = Self::default();
        let patience = Patience::PAPER;
        let plan = Plan { chunk: 60_000, window: 10, patience, salted: true, ..large.plan };
        Self { plan, ..large }
    }
}

impl Default for LargeSettings {
    fn default() -> Self {
        Self { threshold: 8 << 20, plan: Plan::default(), replicas: None }
    }
}

/// Servers that are not Levada, before which this node is the front-end: a web switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchSettings {
    /// At least one; no two have the same name.
    pub servers: Vec<SwitchServer>,
    /// By what the policy tells requests apart.
    pub key: KeyFrom,
    /// How long a server that came up takes to reach its full share; zero: at once.
    pub slow_start: Duration,
    /// How many requests may be at the servers at once.
    pub admission: AdmissionLimits,
}

/// A server of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchServer {
    /// By which policies, logs and operators know it.
    pub name: String,
    /// Where it is.
    pub origin: Origin,
    /// Relative capacity.
    pub weight: f64,
    /// Requests that it gets at once.
    pub max_conns: u32,
    /// Where connections can be handed to it.
    pub handoff: Option<HandoffControl>,
}

/// What the key of a request is the hash of. The URL where a request does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFrom {
    /// The whole URL.
    Url,
    /// The host.
    Host,
    /// The first field of this name.
    Header(String),
    /// The cookie of this name.
    Cookie(String),
    /// The query argument of this name, as it is written.
    Query(String),
    /// The beginning of the body.
    Body {
        /// So many bytes of it.
        bytes: usize,
        /// How long they may take.
        wait: Duration,
    },
}

impl std::fmt::Display for KeyFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url => f.write_str("url"),
            Self::Host => f.write_str("host"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Cookie(name) => write!(f, "cookie {name}"),
            Self::Query(name) => write!(f, "query {name}"),
            Self::Body { bytes, .. } => write!(f, "body, {bytes} bytes"),
        }
    }
}

/// How many requests may be at the servers of a switch at once, over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// `None`: as many as the servers together may have, and with LARD no more than its S.
    pub at_once: Option<u32>,
    /// Requests that may wait for a place.
    pub queue: usize,
    /// How long they may wait.
    pub wait: Duration,
}

/// Which service class a request is of, for policies that go by it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassSettings {
    /// The first that matches counts.
    pub rules: ClassRules,
    /// Whether classes are learned for what no rule is about.
    pub learn: bool,
}

/// How many requests of a site may be at its origins at once, over all origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissLimits {
    /// Requests at the origins; one client's at most half of them.
    pub at_once: usize,
    /// Requests that may wait for a place.
    pub queue: usize,
    /// How long they may wait.
    pub wait: Duration,
}

/// A policy with its parameters, checked against its declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyChoice {
    /// A name of `levada policies`.
    pub name: String,
    /// Parameters as given.
    pub parameters: BTreeMap<String, ParameterValue>,
}

/// Where an origin server is, or a server of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the network.
    Tcp {
        /// `https` rather than `http`.
        tls: bool,
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// On this machine, at a Unix socket: `http` without TLS.
    Unix(PathBuf),
}

/// How a chosen peer's answer reaches the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Through this node.
    Proxy,
    /// From the peer itself, by a 307 that only this cluster can have made.
    Redirect,
}

/// Purging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeSettings {
    /// What those who purge must know; `None` switches the `PURGE` method off.
    pub token: Option<String>,
    /// Whether clients receive `Surrogate-Key` and `Cache-Tag`.
    pub expose_tags: bool,
}

/// What a client, or all together, may cost.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests this node can hold at once as a server; beyond it peers and clients get 503. The
    /// policies' busy thresholds are derived from it.
    pub capacity: u32,
    /// Bytes per second this node serves as a server (its own hits and fills, not what it relays from
    /// a peer); `None`: as fast as it can.
    pub serve_rate: Option<u64>,
    /// Client connections at once.
    pub connections: usize,
    /// From the first byte of a request head to its last.
    pub head_timeout: Duration,
    /// A connection without a request.
    pub idle_timeout: Duration,
    /// Between two pieces of a request body.
    pub body_timeout: Duration,
    /// Without the client taking a byte of what is being sent.
    pub send_timeout: Duration,
    /// Bytes of a request head.
    pub head_size: usize,
    /// Header fields of a request.
    pub header_count: usize,
    /// To connect to an origin or peer.
    pub connect_timeout: Duration,
    /// From a request sent to the head of its response.
    pub response_timeout: Duration,
    /// Between two pieces of a response body from an origin or peer.
    pub response_body_timeout: Duration,
    /// Connections to one origin or peer.
    pub server_connections: usize,
    /// Requests that may wait for one of them.
    pub queue: usize,
    /// How long they may wait.
    pub queue_timeout: Duration,
    /// Tries of one request, the first included.
    pub tries: u32,
    /// Retries allowed, as a part of all requests (0.2 is one in five), plus ten a second.
    pub retry_budget: f64,
    /// How often a request may pass nodes of this CDN (RFC 8586).
    pub max_hops: usize,
    /// How long a stop waits for running requests.
    pub drain_timeout: Duration,
    /// Downloads that a drain ends in the middle, a second.
    pub drain_rate: u32,
}

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// A file, appended to; standard output when `None`.
    pub path: Option<PathBuf>,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Apache's and nginx's combined format, with times, cache status and decision appended.
    Combined,
    /// One JSON object a line, nginx's variable names where they exist.
    Json,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            capacity: 3072,
            serve_rate: None,
            connections: 10_000,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_secs(60),
            head_size: 32 << 10,
            header_count: 100,
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_secs(60),
            response_body_timeout: Duration::from_secs(60),
            server_connections: 1024,
            queue: 1024,
            queue_timeout: Duration::from_secs(5),
            tries: 3,
            retry_budget: 0.2,
            max_hops: 3,
            drain_timeout: Duration::from_secs(30),
            drain_rate: 50,
        }
    }
}

impl Default for MissLimits {
    fn default() -> Self {
        Self { at_once: 512, queue: 1024, wait: Duration::from_secs(5) }
    }
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self { at_once: None, queue: 1024, wait: Duration::from_secs(5) }
    }
}

impl Default for PolicyChoice {
    /// FDR: a set of nodes per object that grows under load.
    fn default() -> Self {
        Self { name: "fdr".to_owned(), parameters: BTreeMap::new() }
    }
}
