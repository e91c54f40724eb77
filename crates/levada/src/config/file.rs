//! The configuration file: every table and key, declared once.
//!
//! The comments here are what users read: the JSON Schema, the tables of
//! docs/operate/configuration.md and the errors are made from these declarations. Defaults are those
//! of [`levada_edge::settings`].
//!
//! Every field has a default, required or not, so that a file with mistakes can still be read without
//! the wrong values and be checked for everything else. What is required is in the schema.

use std::{collections::BTreeMap, time::Duration};

use levada_edge::settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{Address, HostField, HostPattern, HostPort, NodeName, Rate, Root, Size, Time};

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Levada configuration", extend("required" = ["name", "listen", "site"]))]
pub struct File {
    /// This node's name: in `Cache-Status`, `Via` and logs. In a cluster it is one of the `[[peer]]` names.
    #[schemars(extend("examples" = ["a"]))]
    pub name: Option<NodeName>,
    /// Seeds every random choice, so that a run can be repeated. Taken from the system when not given.
    #[schemars(range(min = 0), extend("examples" = [42]))]
    pub seed: Option<i64>,
    /// How the node uses its cores.
    pub runtime: Runtime,
    /// Where clients come in, one table per address.
    #[schemars(length(min = 1))]
    pub listen: Vec<Listen>,
    /// Where operators come in.
    pub admin: Admin,
    /// What this node has in common with its cluster. Without it, the node stands alone.
    pub peering: Option<Peering>,
    /// The nodes of the cluster, this one included: the same list on every node.
    pub peer: Vec<Peer>,
    /// The cache in memory.
    pub cache: Cache,
    /// Who may purge what is stored.
    pub purge: Purge,
    /// Connections that are handed to back-ends, or taken from a front-end.
    pub handoff: Option<Handoff>,
    /// Which node serves a request, for sites without a policy of their own.
    pub policy: Option<Policy>,
    /// What is served, one table per group of hosts.
    #[schemars(length(min = 1))]
    pub site: Vec<Site>,
    /// What a client, or all together, may cost.
    pub limits: Limits,
    /// The route by which clients reach this node, where it is anycast: docs/operate/anycast.md.
    pub route: Option<Route>,
    /// The access log. The log of events is chosen with `--log-level` and goes to standard error.
    pub log: Log,
}

/// How the node uses its cores.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Runtime {
    /// Whether all threads share their work.
    pub mode: RuntimeMode,
    /// Threads. One per core when not given.
    #[schemars(range(min = 1, max = 1024), extend("examples" = [4]))]
    pub threads: Option<u32>,
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

/// An address for clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub struct Listen {
    /// Where to listen. Port 0 takes a free port.
    #[schemars(extend("examples" = ["0.0.0.0:8080"]))]
    pub address: Option<Address>,
    /// Certificates, chosen by the server name that the client asks for; the first one is for clients that name none. Without any, the address speaks plain HTTP.
    #[schemars(extend("examples" = [[{"certificate": "a.pem", "key": "a.key"}]]))]
    pub tls: Vec<Certificate>,
    /// Whether HTTP/2 without TLS is spoken beside HTTP/1.1, for clients that begin with it (prior knowledge).
    pub h2c: bool,
    /// After how many retransmissions that nobody acknowledges a connection is given up with a reset, or `"off"`: docs/operate/anycast.md.
    pub dormant_retries: DormantRetries,
}

/// When a connection is given up whose data is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum DormantRetries {
    /// When so many retransmissions after timeouts have gone unanswered; 1 takes some 600 ms.
    After(#[schemars(range(max = 15))] u8),
    /// Not before the kernel does.
    Word(Off),
}

/// A setting that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Off {
    /// Off.
    Off,
}

impl Default for DormantRetries {
    fn default() -> Self {
        Self::After(settings::DORMANT_RETRIES)
    }
}

impl From<DormantRetries> for Option<u8> {
    fn from(file: DormantRetries) -> Self {
        match file {
            DormantRetries::After(retries) => Some(retries),
            DormantRetries::Word(Off::Off) => None,
        }
    }
}

/// A certificate and its key.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["certificate", "key"]))]
pub struct Certificate {
    /// A PEM file with the chain, the node's own certificate first.
    #[schemars(extend("examples" = ["/etc/levada/cdn.pem"]))]
    pub certificate: Option<String>,
    /// A PEM file with the private key.
    #[schemars(extend("examples" = ["/etc/levada/cdn.key"]))]
    pub key: Option<String>,
}

/// Where operators come in.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Metrics, health and explanations. Never a public address: it asks for no password.
    #[schemars(extend("examples" = ["127.0.0.1:9180"]))]
    pub listen: Option<Address>,
}

/// What the nodes of a cluster have in common.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["listen"]))]
pub struct Peering {
    /// Where peers come in, and nobody else may.
    #[schemars(extend("examples" = ["10.0.0.1:7070"]))]
    pub listen: Option<Address>,
    /// What all peers know and nobody else does, at least 16 bytes. Better given by `${NAME}` or `secret_file`.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_SECRET}"]))]
    pub secret: Option<String>,
    /// A file that holds the secret; white space around it does not count.
    #[schemars(extend("examples" = ["/etc/levada/secret"]))]
    pub secret_file: Option<String>,
    /// Certificates by which peers know each other, instead of a secret. Redirects are still signed with a secret.
    pub tls: Option<PeerTls>,
    /// What peers speak with each other.
    pub protocol: Protocol,
    /// How long a node that came up takes to reach its full share; `"0s"` is at once.
    #[schemars(extend("x-maximum" = "1h"))]
    pub slow_start: Time,
    /// How peers are watched.
    pub health_check: HealthCheck,
}

/// Certificates by which peers know each other.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["certificate", "key", "authority"]))]
pub struct PeerTls {
    /// A PEM file with this node's chain.
    #[schemars(extend("examples" = ["/etc/levada/node.pem"]))]
    pub certificate: Option<String>,
    /// A PEM file with its private key.
    #[schemars(extend("examples" = ["/etc/levada/node.key"]))]
    pub key: Option<String>,
    /// A PEM file with the authority that signed every node's certificate.
    #[schemars(extend("examples" = ["/etc/levada/cluster-ca.pem"]))]
    pub authority: Option<String>,
}

/// What peers speak with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1 over a pool of connections: the least work per byte.
    #[default]
    Http1,
    /// HTTP/2 over one connection: the fewest connections.
    H2,
}

/// A node of the cluster.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "address"]))]
pub struct Peer {
    /// The `name` in that node's own configuration. It decides which objects are the node's: renaming a node empties its cache.
    #[schemars(extend("examples" = ["b"]))]
    pub name: Option<NodeName>,
    /// Where it listens for peers.
    #[schemars(extend("examples" = ["10.0.0.2:7070"]))]
    pub address: Option<HostPort>,
    /// Its capacity, relative to the other nodes.
    #[schemars(range(min = 0.001, max = 1000))]
    pub weight: f64,
    /// The round-trip time from this node to it, for policies that prefer near nodes. Measured by `ping`, for example.
    #[schemars(extend("examples" = ["12ms"], "x-maximum" = "1m"))]
    pub rtt: Option<Time>,
    /// Where clients reach it: where `delivery = "redirect"` sends them.
    #[schemars(extend("examples" = ["https://b.cdn.example"]))]
    pub client_url: Option<Root>,
}

/// The cache: in memory, and on disk where `disk` says so.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// What the memory may hold, heads and bookkeeping included.
    #[schemars(extend("x-minimum" = "1MiB"))]
    pub memory: Size,
    /// The largest object that is kept whole; larger ones are passed on, and only parts that are asked for by range are kept. It fits into `memory` or `disk.size`, which lowers the default; with `disk` the default is `"1GiB"`.
    pub max_object: Size,
    /// What is longer is kept in blocks of this size, each fetched and evicted by itself: a range costs the blocks that it touches. A small `memory` lowers the default.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "16MiB"))]
    pub block: Size,
    /// What goes first when it is full.
    pub eviction: String,
    /// What is kept.
    pub admission: Admission,
    /// What is kept on disk as well.
    pub disk: Option<DiskCache>,
}

/// The cache on disk: what leaves the memory is still there, and so it is after a restart. See docs/operate/disk-cache.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path", "size"]))]
pub struct DiskCache {
    /// A directory of its own, which is made if it is missing. No two nodes may have the same.
    #[schemars(length(min = 1), extend("examples" = ["/var/cache/levada"]))]
    pub path: Option<String>,
    /// What it may take: files, directories and index.
    #[schemars(extend("x-minimum" = "16MiB", "examples" = ["100GiB"]))]
    pub size: Option<Size>,
}

/// What the cache keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// Whatever may be stored.
    #[default]
    Always,
    /// What is fetched for the second time: for sites where most objects are asked for once.
    SecondHit,
}

/// Who may purge what is stored: docs/operate/purging.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Purge {
    /// What those who purge must know, at least 16 bytes. Without it the `PURGE` method is off, and the admin listener asks for nothing. Better given by `${NAME}` or `token_file`.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_PURGE_TOKEN}"]))]
    pub token: Option<String>,
    /// A file that holds the token; white space around it does not count.
    #[schemars(extend("examples" = ["/etc/levada/purge-token"]))]
    pub token_file: Option<String>,
    /// Whether clients receive `Surrogate-Key` and `Cache-Tag`, as another cache in front may need them.
    pub expose_tags: bool,
}

/// TCP handoff: docs/operate/handoff.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["interfaces"]))]
pub struct Handoff {
    /// What front-ends and back-ends know and nobody else does, at least 16 bytes. Better given by `${NAME}` or `secret_file`.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_SECRET}"]))]
    pub secret: Option<String>,
    /// A file that holds the secret; white space around it does not count.
    #[schemars(extend("examples" = ["/etc/levada/handoff-secret"]))]
    pub secret_file: Option<String>,
    /// The network interfaces by which clients' packets come in.
    #[schemars(extend("examples" = ["eth0"]))]
    pub interfaces: OneOrMany<String>,
    /// What becomes of a connection when its client sends another request.
    pub after: After,
    /// Where front-ends come in, on a back-end. An address on the network that it has in common with them.
    #[schemars(extend("examples" = ["10.0.1.1:7072"]))]
    pub listen: Option<Address>,
    /// The service addresses whose connections a back-end takes. This machine must have them, on `lo` for example.
    #[schemars(extend("examples" = ["192.0.2.10:80"]))]
    pub services: OneOrMany<Address>,
}

/// What becomes of a connection that was handed off when its client sends another request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// It stays with its back-end.
    #[default]
    Stay,
    /// It goes back to the front-end, which decides anew.
    Back,
    /// The back-end asks the front-end, and hands it on only if another is to answer.
    On,
}

/// A policy and its parameters: `levada policies` lists them, docs/policies/reference.md as well.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct Policy {
    /// Its name.
    #[schemars(extend("examples" = ["fdr"]))]
    pub name: Option<String>,
    /// Parameters of this policy.
    #[serde(flatten)]
    pub parameters: BTreeMap<String, Scalar>,
}

/// The value of a policy's parameter; the policy's own declaration says which of these it is.
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

/// One or several values; one may be written without brackets.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// Several.
    Many(#[schemars(length(min = 1))] Vec<T>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    /// All of them.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// A group of hosts and how they are served.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["hosts"]))]
pub struct Site {
    /// The hosts it answers to; `*.example.com` is all below one, `*` whatever no other site has. The most exact one wins.
    #[schemars(extend("examples" = [["www.example.com", "*.img.example.com"]]))]
    pub hosts: Option<OneOrMany<HostPattern>>,
    /// Where content comes from; with several, the first that is up. Either this or servers must be given.
    #[schemars(extend("examples" = ["http://10.0.1.1:8000"]))]
    pub origin: Option<OneOrMany<Root>>,
    /// Servers that the policy chooses among, instead of the nodes of the cluster; in short, for those of which there is no more to say. See docs/operate/web-switch.md.
    #[schemars(extend("examples" = [["http://10.0.1.1:8000", "http://10.0.1.2:8000"]]))]
    pub servers: Option<OneOrMany<Root>>,
    /// The same, one table per server.
    #[schemars(length(min = 1))]
    pub server: Vec<Server>,
    /// By what the policy tells requests to servers apart.
    pub key: KeyFrom,
    /// How long a server that came up, or joined, takes to reach its full share; `"0s"` is at once.
    #[schemars(extend("x-maximum" = "1h"))]
    pub slow_start: Time,
    /// How many requests may be at the servers at once.
    pub admission: ServerAdmission,
    /// Rules by which a request is of a service class, for policies that go by it; the first that matches counts. See docs/operate/classes.md.
    pub class: Vec<ClassRule>,
    /// Whether classes are learned from service times for what no rule is about, by the first segment of the path.
    pub learn_classes: bool,
    /// The `Host` that the origin is sent; the client's own when not given.
    #[schemars(extend("examples" = ["origin.example.com"]))]
    pub origin_host: Option<HostField>,
    /// How the answer of the chosen node reaches the client.
    pub delivery: Delivery,
    /// Which node serves a request. The top-level `[policy]` when not given; `fdr` without either.
    pub policy: Option<Policy>,
    /// How long a response is fresh that does not say so itself. HTTP's own heuristic (RFC 9111, 4.2.2) when not given.
    #[schemars(extend("examples" = ["10m"]))]
    pub default_ttl: Option<Time>,
    /// How long an error is fresh that does not say so itself: 404, 405, 410, 414, 451 and 501. As other responses when not given.
    #[schemars(extend("examples" = ["10s"]))]
    pub negative_ttl: Option<Time>,
    /// HTTP's heuristic: the part of the time since `Last-Modified` that a response stays fresh that does not say how long, in percent; 0 switches it off.
    #[schemars(range(max = 100))]
    pub heuristic_percent: u32,
    /// The longest that it makes a response fresh.
    pub heuristic_max: Time,
    /// How long a response that has become stale is served while it is fetched anew, where it does not say so itself (RFC 5861).
    pub stale_while_revalidate: Time,
    /// How long a stale response stands in for a 500, 502, 503 or 504 of the origin, where it does not say so itself (RFC 5861).
    pub stale_if_error: Time,
    /// How long a stale response stands in for an origin that cannot be reached at all, where it does not say so itself by `stale-if-error`.
    pub stale_if_unreachable: Time,
    /// Whether responses with `s-maxage` may be served stale, too. By RFC 9111, 5.2.2.10, they may not; many applications that send it mean otherwise.
    pub s_maxage_allows_stale: bool,
    /// Whether responses that set cookies are stored.
    pub store_cookies: Cookies,
    /// How many requests may be at the origins at once.
    pub misses: Misses,
    /// Whether responses are stored at all; without, the site is only distributed.
    pub cache: bool,
    /// How origins are watched.
    pub health_check: HealthCheck,
    /// Large files, fetched in pieces through the whole cluster.
    pub large: Large,
    /// Whether clients may see in `Proxy-Status` why a node was chosen.
    pub debug: bool,
}

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
    /// 8 pieces of 512 KiB.
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
    /// A piece that takes longer than 95 of 100 is asked of a second node; the first answer wins.
    Hedge,
    /// Requests just in time: of the window no more is used than fills the client's link.
    Deadline,
}

/// A server that is not Levada.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url"]))]
pub struct Server {
    /// Where it is.
    #[schemars(extend("examples" = ["http://10.0.1.1:8000"]))]
    pub url: Option<Root>,
    /// By which policies, logs and operators know it. Its host and port when not given. A server that is renamed is another one.
    #[schemars(extend("examples" = ["web-1"]))]
    pub name: Option<NodeName>,
    /// Its capacity, relative to the other servers.
    #[schemars(range(min = 0.001, max = 1000))]
    pub weight: f64,
    /// Requests that it gets at once. `limits.server_connections` when not given.
    #[schemars(range(min = 1, max = 1_000_000), extend("examples" = [200]))]
    pub max_conns: Option<u32>,
    /// Where connections can be handed to it: what `levada handoff-backend` listens on beside it, or a node's `handoff.listen`. Needs `[handoff]`.
    #[schemars(extend("examples" = ["10.0.1.1:7072"]))]
    pub handoff: Option<Address>,
}

/// By what the policy tells requests apart.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeyFrom {
    /// What the key is made of. A request that does not have it goes by its URL.
    pub from: KeyKind,
    /// The name of the header, the cookie or the query argument.
    #[schemars(length(min = 1, max = 256), extend("examples" = ["X-Session"]))]
    pub name: Option<String>,
    /// How much of the body counts.
    #[schemars(extend("x-minimum" = "1B", "x-maximum" = "1MiB"))]
    pub bytes: Size,
    /// How long that much of the body may take to come; then the request goes by its URL.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub wait: Time,
}

/// What a key is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// The URL, query and all.
    #[default]
    Url,
    /// The host that was asked for.
    Host,
    /// A header of the request.
    Header,
    /// A cookie.
    Cookie,
    /// An argument of the query, as it is written.
    Query,
    /// The beginning of the body, such as a prompt.
    Body,
}

/// How many requests may be at the servers of a site at once; the rest waits in the order in which it came.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerAdmission {
    /// Requests at all servers together. When not given: the sum of their `max_conns`, and with `lard` and `lard/r` no more than S = (n - 1) T_high + T_low - 1 for n servers that are up.
    #[schemars(range(min = 1, max = 10_000_000), extend("examples" = [400]))]
    pub at_once: Option<u32>,
    /// Requests that may wait. Beyond it, clients get 503.
    #[schemars(range(max = 1_000_000))]
    pub queue: u32,
    /// How long they may wait.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub wait: Time,
}

/// Which requests are of a service class: those for which everything holds that is given.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClassRule {
    /// The class. Learned from service times when not given.
    pub class: Option<ServiceClass>,
    /// What the path begins with.
    #[schemars(regex(pattern = "^/"), extend("examples" = ["/search"]))]
    pub prefix: Option<String>,
    /// What the path ends with.
    #[schemars(length(min = 1), extend("examples" = [".php"]))]
    pub suffix: Option<String>,
    /// A regular expression that is found in the path.
    #[schemars(length(min = 1, max = 4096), extend("examples" = ["^/v[12]/"]))]
    pub regex: Option<String>,
    /// The method, or one of several.
    #[schemars(extend("examples" = ["POST"]))]
    pub method: Option<OneOrMany<String>>,
    /// The type of the request's body, or one of several.
    #[schemars(extend("examples" = ["application/json"]))]
    pub content_type: Option<OneOrMany<String>>,
    /// Whether the client came over TLS.
    #[schemars(extend("examples" = [true]))]
    pub tls: Option<bool>,
}

/// Which resources a request wears (WWW10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceClass {
    /// Static or lightly dynamic: none to speak of.
    Normal,
    /// The disk.
    Disk,
    /// The processor.
    Cpu,
    /// Both.
    DiskAndCpu,
}

/// How the answer of the chosen node reaches the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Through the node that the client asked.
    #[default]
    Proxy,
    /// From the chosen node itself: the client is sent there with a 307. Needs `client_url` of every peer and a secret.
    Redirect,
}

/// Whether responses that set cookies are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cookies {
    /// If the origin says how long they are fresh, or that they are `public`: then it knew.
    #[default]
    Explicit,
    /// Never.
    Never,
    /// Like all others: one client's cookie is then everybody's.
    Always,
}

/// How many requests of a site may be at its origins at once, so that what is not stored cannot overload them.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Misses {
    /// Requests at the origins. One client's are at most half of them; an IPv6 network of 64 bits is one client.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub at_once: u32,
    /// Requests that may wait for a place. Clients take turns; when the queue is full, the one that waits most often gives way. Beyond it, clients get a stale response where that is allowed, or 503.
    #[schemars(range(max = 1_000_000))]
    pub queue: u32,
    /// How long they may wait.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub wait: Time,
}

/// How servers are watched, by probes and by what requests meet.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthCheck {
    /// Time between two probes of one server; `"0s"` switches probes off.
    #[schemars(extend("x-maximum" = "1h"))]
    pub interval: Time,
    /// How long a probe may take.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub timeout: Time,
    /// Successes in a row until a server that was down is up.
    #[schemars(range(min = 1, max = 100))]
    pub rise: u32,
    /// Failures in a row until a server that was up is down.
    #[schemars(range(min = 1, max = 100))]
    pub fall: u32,
    /// What is asked of an origin, with a leading `/`. Without it, connecting is enough. Peers are always asked properly.
    #[schemars(regex(pattern = "^/"), extend("examples" = ["/healthz"]))]
    pub path: Option<String>,
    /// Failed requests in a row that take a server out at once, without waiting for a probe; 0 never does.
    #[schemars(range(max = 1000))]
    pub eject_after: u32,
    /// How long it is out the first time; twice as long each further time, up to 32 times this.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub eject_for: Time,
}

/// What a client, or all together, may cost.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Requests that this node can hold at once as a server; beyond it, peers and clients get 503. The policies' busy thresholds are derived from it.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub capacity: u32,
    /// What this node serves as a server (its own hits and fills, not what it passes on from a peer). As fast as it can when not given.
    #[schemars(extend("examples" = ["40Mbit/s"]))]
    pub serve_rate: Option<Rate>,
    /// Client connections at once.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub connections: u32,
    /// From the first byte of a request's head to its last.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub head_timeout: Time,
    /// How long a connection without a request stays open.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub idle_timeout: Time,
    /// Between two pieces of a request's body.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub body_timeout: Time,
    /// How long a client may take nothing of what is sent to it.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub send_timeout: Time,
    /// Size of a request's head.
    #[schemars(extend("x-minimum" = "8KiB", "x-maximum" = "1MiB"))]
    pub head_size: Size,
    /// Header fields of a request.
    #[schemars(range(min = 1, max = 10_000))]
    pub header_count: u32,
    /// To connect to an origin or peer.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub connect_timeout: Time,
    /// From a request sent to an origin or peer to the head of its response.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub response_timeout: Time,
    /// Between two pieces of a response's body from an origin or peer.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1d"))]
    pub response_body_timeout: Time,
    /// Connections to one origin or peer.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub server_connections: u32,
    /// Requests that may wait for one of them.
    #[schemars(range(max = 1_000_000))]
    pub queue: u32,
    /// How long they may wait.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub queue_timeout: Time,
    /// Tries of one request, the first included.
    #[schemars(range(min = 1, max = 10))]
    pub tries: u32,
    /// Retries allowed, as a part of all requests (0.2 is one in five), besides ten a second.
    #[schemars(range(min = 0, max = 1))]
    pub retry_budget: f64,
    /// Nodes of this network that a request may pass (RFC 8586, `CDN-Loop`).
    #[schemars(range(min = 1, max = 16))]
    pub max_hops: u32,
    /// How long a stop waits for requests that are running.
    #[schemars(extend("x-maximum" = "1d"))]
    pub drain_timeout: Time,
    /// How many running downloads a drain sends away per second: what the nodes can take to which their clients go. See docs/operate/anycast.md.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub drain_rate: u32,
}

/// The route by which clients reach this node: announced, kept as a backup or withdrawn by a BGP daemon beside it. One of the tables `bird` and `exabgp` says which. See docs/operate/anycast.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// BIRD, over its control socket.
    pub bird: Option<Bird>,
    /// ExaBGP, which runs `levada route exabgp`.
    pub exabgp: Option<ExaBgp>,
    /// The least time between two changes for load, and until a node that was cut off from its servers is back.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub dwell: Time,
    /// The load from which the route is a backup: requests in service relative to `limits.capacity`, averaged over some 10 s.
    #[schemars(range(min = 0.01, max = 100))]
    pub load_high: f64,
    /// The load at which it is one no longer.
    #[schemars(range(min = 0, max = 100))]
    pub load_low: f64,
    /// What becomes of the route while every server of a site is down. `backup` where there is one.
    pub unwell: Option<Unwell>,
    /// How long routers may take to notice that the route is gone, before downloads are ended or the node stops.
    #[schemars(extend("x-maximum" = "1m"))]
    pub settle: Time,
    /// Whether decisions are only logged and shown.
    pub dry_run: bool,
}

/// What becomes of the route while every server of a site is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unwell {
    /// It carries what other nodes do not.
    Backup,
    /// It is withdrawn.
    Withdraw,
}

/// BIRD, over its control socket.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["protocol"]))]
pub struct Bird {
    /// Its control socket.
    #[schemars(length(min = 1))]
    pub socket: String,
    /// The static protocol of BIRD's configuration that has the route.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"), extend("examples" = ["levada"]))]
    pub protocol: Option<String>,
    /// The one that has it less preferred.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"), extend("examples" = ["levada_backup"]))]
    pub backup_protocol: Option<String>,
}

/// ExaBGP, which runs `levada route exabgp`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["prefixes"]))]
pub struct ExaBgp {
    /// What is announced.
    #[schemars(extend("examples" = [["192.0.2.0/24"]]))]
    pub prefixes: Option<OneOrMany<String>>,
    /// Next hop and attributes, in ExaBGP's words.
    #[schemars(regex(pattern = "^[ -~]+$"))]
    pub attributes: String,
    /// The same for the route as a backup.
    #[schemars(regex(pattern = "^[ -~]+$"), extend("examples" = ["next-hop self med 100 community [65535:0]"]))]
    pub backup_attributes: Option<String>,
}

/// The access log.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `"off"`, `"stdout"`, or a file that lines are appended to.
    #[schemars(length(min = 1))]
    pub access: String,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a line of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Apache's and nginx's combined format; times, cache status and decision follow.
    #[default]
    Combined,
    /// One JSON object a line, with nginx's variable names where they exist.
    Json,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            bird: None,
            exabgp: None,
            dwell: Time(Duration::from_secs(120)),
            load_high: 0.9,
            load_low: 0.6,
            unwell: None,
            settle: Time(Duration::from_secs(1)),
            dry_run: false,
        }
    }
}

impl Default for Bird {
    fn default() -> Self {
        Self { socket: "/run/bird/bird.ctl".to_owned(), protocol: None, backup_protocol: None }
    }
}

impl Default for ExaBgp {
    fn default() -> Self {
        Self { prefixes: None, attributes: "next-hop self".to_owned(), backup_attributes: None }
    }
}

impl Default for Peer {
    fn default() -> Self {
        Self { name: None, address: None, weight: 1.0, rtt: None, client_url: None }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self { url: None, name: None, weight: 1.0, max_conns: None, handoff: None }
    }
}

impl Default for KeyFrom {
    fn default() -> Self {
        let (from, bytes) = (KeyKind::default(), Size(4 << 10));
        Self { from, name: None, bytes, wait: Time(Duration::from_secs(10)) }
    }
}

impl Default for ServerAdmission {
    fn default() -> Self {
        let settings::Admission { at_once, queue, wait } = settings::Admission::default();
        Self { at_once, queue: count(queue), wait: Time(wait) }
    }
}

impl From<&ServerAdmission> for settings::Admission {
    fn from(file: &ServerAdmission) -> Self {
        Self { at_once: file.at_once, queue: file.queue as usize, wait: file.wait.0 }
    }
}

impl From<ServiceClass> for levada_types::ServiceClass {
    fn from(class: ServiceClass) -> Self {
        match class {
            ServiceClass::Normal => Self::Normal,
            ServiceClass::Disk => Self::DiskBound,
            ServiceClass::Cpu => Self::CpuBound,
            ServiceClass::DiskAndCpu => Self::DiskAndCpuBound,
        }
    }
}

impl Default for Misses {
    fn default() -> Self {
        let settings::Misses { at_once, queue, wait } = settings::Misses::default();
        Self { at_once: count(at_once), queue: count(queue), wait: Time(wait) }
    }
}

impl From<&Misses> for settings::Misses {
    fn from(file: &Misses) -> Self {
        Self { at_once: file.at_once as usize, queue: file.queue as usize, wait: file.wait.0 }
    }
}

impl From<&Site> for settings::Rules {
    fn from(file: &Site) -> Self {
        Self {
            default_ttl: file.default_ttl.map(|ttl| ttl.0),
            negative_ttl: file.negative_ttl.map(|ttl| ttl.0),
            heuristic_percent: file.heuristic_percent,
            heuristic_max: file.heuristic_max.0,
            stale_while_revalidate: file.stale_while_revalidate.0,
            stale_if_error: file.stale_if_error.0,
            stale_if_unreachable: file.stale_if_unreachable.0,
            s_maxage_allows_stale: file.s_maxage_allows_stale,
            cookies: match file.store_cookies {
                Cookies::Explicit => settings::Cookies::StoreIfExplicit,
                Cookies::Never => settings::Cookies::Refuse,
                Cookies::Always => settings::Cookies::Store,
            },
            ..Self::default()
        }
    }
}

/// The edge's own defaults are small numbers.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Default for Site {
    fn default() -> Self {
        let rules = settings::Rules::default();
        Self {
            hosts: None,
            origin: None,
            servers: None,
            server: Vec::new(),
            key: KeyFrom::default(),
            slow_start: Time::default(),
            admission: ServerAdmission::default(),
            class: Vec::new(),
            learn_classes: false,
            origin_host: None,
            delivery: Delivery::default(),
            policy: None,
            default_ttl: None,
            negative_ttl: None,
            heuristic_percent: rules.heuristic_percent,
            heuristic_max: Time(rules.heuristic_max),
            stale_while_revalidate: Time(rules.stale_while_revalidate),
            stale_if_error: Time(rules.stale_if_error),
            stale_if_unreachable: Time(rules.stale_if_unreachable),
            s_maxage_allows_stale: rules.s_maxage_allows_stale,
            store_cookies: Cookies::default(),
            misses: Misses::default(),
            cache: true,
            health_check: HealthCheck::default(),
            large: Large::default(),
            debug: false,
        }
    }
}

impl From<&Large> for settings::Large {
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

impl Default for Log {
    /// On standard output, where containers and service managers pick it up.
    fn default() -> Self {
        Self { access: "stdout".to_owned(), format: LogFormat::default() }
    }
}

impl Default for Cache {
    fn default() -> Self {
        let edge = settings::CacheSettings::default();
        Self {
            memory: Size(edge.memory),
            max_object: Size(edge.max_object),
            block: Size(edge.block),
            eviction: edge.eviction.name.to_owned(),
            admission: if edge.second_hit { Admission::SecondHit } else { Admission::Always },
            disk: None,
        }
    }
}

impl Default for HealthCheck {
    fn default() -> Self {
        let edge = settings::HealthCheck::default();
        Self {
            interval: Time(edge.interval),
            timeout: Time(edge.timeout),
            rise: edge.rise,
            fall: edge.fall,
            path: edge.path,
            eject_after: edge.eject_after,
            eject_for: Time(edge.eject_for),
        }
    }
}

impl From<&HealthCheck> for settings::HealthCheck {
    fn from(file: &HealthCheck) -> Self {
        Self {
            interval: file.interval.0,
            timeout: file.timeout.0,
            rise: file.rise,
            fall: file.fall,
            path: file.path.clone(),
            eject_after: file.eject_after,
            eject_for: file.eject_for.0,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let edge = settings::Limits::default();
        Self {
            capacity: edge.capacity,
            serve_rate: edge.serve_rate.map(Rate),
            connections: count(edge.connections),
            head_timeout: Time(edge.head_timeout),
            idle_timeout: Time(edge.idle_timeout),
            body_timeout: Time(edge.body_timeout),
            send_timeout: Time(edge.send_timeout),
            head_size: Size(edge.head_size as u64),
            header_count: count(edge.header_count),
            connect_timeout: Time(edge.connect_timeout),
            response_timeout: Time(edge.response_timeout),
            response_body_timeout: Time(edge.response_body_timeout),
            server_connections: count(edge.server_connections),
            queue: count(edge.queue),
            queue_timeout: Time(edge.queue_timeout),
            tries: edge.tries,
            retry_budget: edge.retry_budget,
            max_hops: count(edge.max_hops),
            drain_timeout: Time(edge.drain_timeout),
            drain_rate: edge.drain_rate,
        }
    }
}

impl From<&Limits> for settings::Limits {
    fn from(file: &Limits) -> Self {
        Self {
            capacity: file.capacity,
            serve_rate: file.serve_rate.map(|Rate(bytes)| bytes),
            connections: file.connections as usize,
            head_timeout: file.head_timeout.0,
            idle_timeout: file.idle_timeout.0,
            body_timeout: file.body_timeout.0,
            send_timeout: file.send_timeout.0,
            head_size: file.head_size.0 as usize,
            header_count: file.header_count as usize,
            connect_timeout: file.connect_timeout.0,
            response_timeout: file.response_timeout.0,
            response_body_timeout: file.response_body_timeout.0,
            server_connections: file.server_connections as usize,
            queue: file.queue as usize,
            queue_timeout: file.queue_timeout.0,
            tries: file.tries,
            retry_budget: file.retry_budget,
            max_hops: file.max_hops as usize,
            drain_timeout: file.drain_timeout.0,
            drain_rate: file.drain_rate,
        }
    }
}
