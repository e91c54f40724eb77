//! `[dns]`: the name server of a node's own names.

use std::{collections::BTreeMap, time::Duration};

use levada_types::values::OneOrMany;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Certificate;
use crate::text::{Address, NodeName, Time};

/// A name server that gives each client the nodes of its region. See docs/operate/dns.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["listen", "zone"]))]
pub struct Dns {
    /// The addresses for queries, over UDP and TCP.
    #[schemars(extend("examples" = [["192.0.2.1:53", "[2001:db8::1]:53"]]))]
    pub listen: Option<OneOrMany<Address>>,
    /// Threads for queries over UDP at each address; by default one.
    #[schemars(range(min = 1, max = 256))]
    pub threads: usize,
    /// The most open TCP connections; one network of clients (IPv4 /24, IPv6 /56) may have a quarter of them.
    #[schemars(range(min = 1, max = 100_000))]
    pub connections: usize,
    /// How long a TCP connection may wait for the whole of its next query.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "10m"))]
    pub idle_timeout: Time,
    /// The name of this server for clients that ask for it (NSID); by default `name`.
    #[schemars(length(max = 255), extend("examples" = ["eu-1"]))]
    pub nsid: Option<String>,
    /// The region of clients that no table has; by default that of the first `[[peer]]`.
    #[schemars(extend("examples" = ["eu"]))]
    pub default_region: Option<NodeName>,
    /// For a region the regions that stand in while none of its nodes can be answered, in their order. The default
    /// region and all others follow.
    #[schemars(extend("examples" = [{ "ap": ["us", "eu"] }]))]
    pub fallback: BTreeMap<String, Vec<NodeName>>,
    /// A coverage zone file of Traffic Router: networks and their regions.
    #[schemars(length(min = 1), extend("examples" = ["/etc/levada/coverage.json"]))]
    pub coverage_zones: Option<String>,
    /// A deep coverage zone file of Traffic Router: networks with nodes of their own.
    #[schemars(length(min = 1), extend("examples" = ["/etc/levada/deep-coverage.json"]))]
    pub deep_coverage_zones: Option<String>,
    /// A file of federations of Traffic Ops: networks that get another name in the place of addresses.
    #[schemars(length(min = 1), extend("examples" = ["/etc/levada/federations.json"]))]
    pub federations: Option<String>,
    /// The regions of countries, by their codes in `country_database`.
    #[schemars(extend("examples" = [{ "US": "us", "CA": "us" }]))]
    pub countries: BTreeMap<String, NodeName>,
    /// The regions of continents, by their codes: AF, AN, AS, EU, NA, OC, SA. A country counts first.
    #[schemars(extend("examples" = [{ "EU": "eu", "SA": "us" }]))]
    pub continents: BTreeMap<String, NodeName>,
    /// The share of a client network.
    pub rate_limit: DnsRateLimit,
    /// The secret of cookies (RFC 7873): 32 hexadecimal digits, the same at all servers of one address. Without it
    /// the node makes one when it starts.
    #[schemars(extend("writeOnly" = true, "examples" = ["${DNS_COOKIE_SECRET}"]))]
    pub cookie_secret: Option<String>,
    /// A file with the secret of cookies.
    #[schemars(extend("examples" = ["/etc/levada/dns-cookies"]))]
    pub cookie_secret_file: Option<String>,
    /// The directory with the keys of signed zones: `ZONE.pem` each.
    #[schemars(length(min = 1), extend("examples" = ["/etc/levada/dnssec"]))]
    pub keys: Option<String>,
    /// The addresses for HTTP requests that are sent on to nodes.
    pub http: Vec<DnsHttp>,
    /// The status of answers that send a client on: 302 or 307.
    #[schemars(range(min = 302, max = 307))]
    pub redirect_status: u16,
    /// Names whose clients are sent on to other names.
    pub steering: Vec<DnsSteering>,
    /// The zones.
    #[schemars(length(min = 1))]
    pub zone: Vec<DnsZone>,
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            listen: None,
            threads: 1,
            connections: 1000,
            idle_timeout: Time(Duration::from_secs(10)),
            nsid: None,
            default_region: None,
            fallback: BTreeMap::new(),
            coverage_zones: None,
            deep_coverage_zones: None,
            federations: None,
            countries: BTreeMap::new(),
            continents: BTreeMap::new(),
            rate_limit: DnsRateLimit::default(),
            cookie_secret: None,
            cookie_secret_file: None,
            keys: None,
            http: Vec::new(),
            redirect_status: 302,
            steering: Vec::new(),
            zone: Vec::new(),
        }
    }
}

/// The responses over UDP that a client network gets: IPv4 /24, IPv6 /56.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsRateLimit {
    /// Responses in a second; 0: no limit.
    #[schemars(range(max = 60_000))]
    pub responses: u16,
    /// Of so many queries beyond, one gets a truncated response, so that its client asks again over TCP; 0: none.
    #[schemars(range(max = 100))]
    pub slip: u16,
    /// The signatures (DNSSEC) that are made in a second for all senders over UDP without a cookie. Beyond, they get
    /// truncated responses; what is signed already is answered. 0: no limit.
    #[schemars(range(max = 1_000_000))]
    pub signatures: u32,
}

impl Default for DnsRateLimit {
    fn default() -> Self {
        Self { responses: 1000, slip: 2, signatures: 2000 }
    }
}

/// An address for HTTP requests of names that are in `redirects` of a zone.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub struct DnsHttp {
    /// The address.
    #[schemars(extend("examples" = ["192.0.2.1:80"]))]
    pub address: Option<Address>,
    /// Certificates, chosen by the client's server name (SNI). Without them, the address speaks plain HTTP.
    #[schemars(extend("examples" = [[{"certificate": "a.pem", "key": "a.key"}]]))]
    pub tls: Vec<Certificate>,
    /// Whether only `levada dns` opens the address: at nodes it is that of sites.
    pub alone: bool,
}

/// A name whose clients are sent on to other names.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "targets"]))]
pub struct DnsSteering {
    /// Its whole name.
    #[schemars(extend("examples" = ["go.choice.cdn.example.com"]))]
    pub name: Option<String>,
    /// Whether clients get all targets, and choose.
    pub client: bool,
    /// The names that clients are sent to.
    #[schemars(length(min = 1))]
    pub targets: Vec<DnsTarget>,
    /// Paths with a target of their own: the first filter that fits counts.
    pub filters: Vec<DnsFilter>,
}

/// A target of steering.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct DnsTarget {
    /// Its whole name, which is in `redirects` of a zone.
    #[schemars(extend("examples" = ["go.video.cdn.example.com"]))]
    pub name: Option<String>,
    /// Its share of the paths, relative to the other targets.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub weight: Option<u32>,
    /// The place of a target without a weight: negative ones stand before those with weights, others after them.
    pub order: i32,
}

/// Paths with a target of their own.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path_regex", "target"]))]
pub struct DnsFilter {
    /// An expression for the whole path.
    #[schemars(extend("examples" = ["/img/.*"]))]
    pub path_regex: Option<String>,
    /// One of the targets.
    #[schemars(extend("examples" = ["go.images.cdn.example.com"]))]
    pub target: Option<String>,
}

/// A zone, or all zones of a directory.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsZone {
    /// Its name.
    #[schemars(extend("examples" = ["cdn.example.com"]))]
    pub name: Option<String>,
    /// Its zone file: SOA, NS, and records that are the same for all clients.
    #[schemars(length(min = 1), extend("examples" = ["/etc/levada/cdn.example.com.zone"]))]
    pub file: Option<String>,
    /// In the place of `name` and `file` a directory, in which each file `NAME.zone` is a zone.
    #[schemars(length(min = 1), extend("examples" = ["/etc/levada/zones"]))]
    pub directory: Option<String>,
    /// Whether the hosts of `[[site]]` that are within the zone are answered with nodes, unless the zone file has them.
    pub sites: bool,
    /// Further names that are answered with nodes, relative to the zone; `@` is the zone, `*.live` all names below one.
    #[schemars(extend("examples" = [["@", "download", "*.live"]]))]
    pub names: Vec<String>,
    /// Names that are routed over HTTP, relative to the zone. Each stands for all names that have the name of a node in
    /// the place of its first label.
    #[schemars(extend("examples" = [["go.video"]]))]
    pub redirects: Vec<String>,
    /// How long resolvers keep the addresses of nodes.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub ttl: Time,
    /// The most nodes in an answer.
    #[schemars(range(min = 1, max = 16))]
    pub max_answers: usize,
    /// The queries in a second, within a region and at one server, for which a name is spread over one more node; 0: it
    /// never is.
    #[schemars(range(max = 1_000_000))]
    pub hot_rate: u32,
    /// The protocols in HTTPS records of these names, the best one first. Without them there are no such records.
    #[schemars(extend("examples" = [["h3", "h2"]]))]
    pub alpn: Vec<String>,
    /// Whether answers are signed, by the key in `keys`.
    pub dnssec: bool,
}

impl Default for DnsZone {
    fn default() -> Self {
        Self {
            name: None,
            file: None,
            directory: None,
            sites: true,
            names: Vec::new(),
            redirects: Vec::new(),
            ttl: Time(Duration::from_secs(20)),
            max_answers: 2,
            hot_rate: 100,
            alpn: Vec::new(),
            dnssec: false,
        }
    }
}
