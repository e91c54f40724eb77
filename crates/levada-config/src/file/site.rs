//! `[[site]]`: a group of hosts, their origin, and how they are served.

use levada_edge::settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{OneOrMany, count};
use super::{ClassRule, Compress, KeyFrom, Large, Policy, Server, ServerAdmission};
use crate::text::{HostField, HostPattern, Time, Upstream};

/// A group of hosts and how they are served.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["hosts"]))]
pub struct Site {
    /// The hosts of the site; `*.example.com` matches all names below example.com, `*` all hosts of no other
    /// site. The most exact pattern wins.
    #[schemars(extend("examples" = [["www.example.com", "*.img.example.com"]]))]
    pub hosts: Option<OneOrMany<HostPattern>>,
    /// The origin: a URL, or `unix:` and the path of a socket on this machine; with several, the first that
    /// is up. Either this or servers must be given.
    #[schemars(extend("examples" = ["http://10.0.1.1:8000"]))]
    pub origin: Option<OneOrMany<Upstream>>,
    /// Servers that the policy chooses among, instead of the nodes of the cluster: the short form, for
    /// servers with default settings. See docs/operate/web-switch.md.
    #[schemars(extend("examples" = [["http://10.0.1.1:8000", "http://10.0.1.2:8000"]]))]
    pub servers: Option<OneOrMany<Upstream>>,
    /// Servers that the policy chooses among, one table per server.
    #[schemars(length(min = 1))]
    pub server: Vec<Server>,
    /// The key by which the policy distinguishes requests to servers.
    pub key: KeyFrom,
    /// Time in which a server that came up, or joined, reaches its full share of requests; `"0s"`
    /// is at once.
    #[schemars(extend("x-maximum" = "1h"))]
    pub slow_start: Time,
    /// Limit of concurrent requests at the servers.
    pub admission: ServerAdmission,
    /// Rules for service classes, for policies that use them; the first matching rule counts. See
    /// docs/operate/classes.md.
    pub class: Vec<ClassRule>,
    /// Whether the class of requests that match no rule is learned from service times, by the first segment
    /// of the path.
    pub learn_classes: bool,
    /// The `Host` field of requests to the origin. The default is the client's own.
    #[schemars(extend("examples" = ["origin.example.com"]))]
    pub origin_host: Option<HostField>,
    /// The version of the PROXY protocol by which connections to origins and servers begin with the client's
    /// address. Such a connection takes requests of one client only.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// How the answer of the chosen node reaches the client.
    pub delivery: Delivery,
    /// The policy that chooses the node of a request. The default is the top-level `[policy]`, or
    /// `adaptive`.
    pub policy: Option<Policy>,
    /// Freshness lifetime of a response without one. The default is HTTP's heuristic (RFC 9111, 4.2.2).
    #[schemars(extend("examples" = ["10m"]))]
    pub default_ttl: Option<Time>,
    /// Freshness lifetime of an error without one: 404, 405, 410, 414, 451 and 501. The default is that of
    /// other responses.
    #[schemars(extend("examples" = ["10s"]))]
    pub negative_ttl: Option<Time>,
    /// HTTP's heuristic freshness, in percent of the time since `Last-Modified`; 0 switches it off.
    #[schemars(range(max = 100))]
    pub heuristic_percent: u32,
    /// The longest heuristic freshness lifetime.
    pub heuristic_max: Time,
    /// Default of `stale-while-revalidate`: time in which a stale response is served while it is revalidated
    /// (RFC 5861).
    pub stale_while_revalidate: Time,
    /// Default of `stale-if-error`: time in which a stale response replaces a 500, 502, 503 or 504 of the
    /// origin (RFC 5861).
    pub stale_if_error: Time,
    /// Time in which a stale response without `stale-if-error` replaces the answer of an unreachable origin.
    pub stale_if_unreachable: Time,
    /// Whether responses with `s-maxage` may be served stale, too. RFC 9111, 5.2.2.10, forbids it, but many
    /// applications send `s-maxage` without this intention.
    pub s_maxage_allows_stale: bool,
    /// Whether responses that set cookies are stored.
    pub store_cookies: Cookies,
    /// Limit of concurrent requests at the origins.
    pub misses: Misses,
    /// Whether responses are stored at all. Otherwise the site's requests are only distributed.
    pub cache: bool,
    /// Health checks of origins.
    pub health_check: HealthCheck,
    /// Large files, fetched in pieces through the whole cluster.
    pub large: Large,
    /// Compression of responses. Without this table they are passed on and stored as they are.
    pub compress: Option<Compress>,
    /// Whether clients see in `Proxy-Status` why a node was chosen.
    pub debug: bool,
}

/// How the answer of the chosen node reaches the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Through the node that received the request.
    #[default]
    Proxy,
    /// From the chosen node itself: the client is sent there with a 307. Needs `client_url` of every peer and a secret.
    Redirect,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl From<ProxyProtocol> for settings::ProxyVersion {
    fn from(file: ProxyProtocol) -> Self {
        match file {
            ProxyProtocol::V1 => Self::V1,
            ProxyProtocol::V2 => Self::V2,
        }
    }
}

/// Whether responses that set cookies are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cookies {
    /// Never.
    #[default]
    Never,
    /// If the origin states their freshness, or that they are `public`. Servers often state it for all
    /// responses, also for those with a session's cookie.
    Explicit,
    /// Like all others: all clients then receive one client's cookie.
    Always,
}

/// Limit of concurrent requests of a site at its origins, so that cache misses cannot overload them.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Misses {
    /// Concurrent requests at the origins. One client has as many as are free at most, half of them if it is
    /// the only one; an IPv6 network of 64 bits is one client. A request whose reader takes nothing for a
    /// second gives its place to one that waits.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub at_once: u32,
    /// Requests that may wait. Clients take turns; when the queue is full, the client with the most waiting
    /// requests loses one. Beyond it, clients get a stale response where that is allowed, or 503.
    #[schemars(range(max = 1_000_000))]
    pub queue: u32,
    /// Time that a request may wait.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub wait: Time,
}

/// Health checks of servers, by probes and by the results of requests.
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
    /// The path that a probe of an origin requests, with a leading `/`. Without it, connecting is enough.
    /// Probes of peers always send a request.
    #[schemars(regex(pattern = "^/"), extend("examples" = ["/healthz"]))]
    pub path: Option<String>,
    /// Failed requests in a row that eject a server at once, without waiting for a probe; 0 switches this
    /// off.
    #[schemars(range(max = 1000))]
    pub eject_after: u32,
    /// Time that an ejected server is out the first time; each further time doubles it, up to 32
    /// times.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub eject_for: Time,
}

impl Default for Misses {
    fn default() -> Self {
        let settings::MissLimits { at_once, queue, wait } = settings::MissLimits::default();
        Self { at_once: count(at_once), queue: count(queue), wait: Time(wait) }
    }
}

impl From<&Misses> for settings::MissLimits {
    fn from(file: &Misses) -> Self {
        Self { at_once: file.at_once as usize, queue: file.queue as usize, wait: file.wait.0 }
    }
}

impl From<&Site> for settings::CacheRules {
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
                Cookies::Explicit => settings::CookieStorage::StoreIfExplicit,
                Cookies::Never => settings::CookieStorage::Refuse,
                Cookies::Always => settings::CookieStorage::Store,
            },
            ..Self::default()
        }
    }
}

impl Default for Site {
    fn default() -> Self {
        let rules = settings::CacheRules::default();
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
            proxy_protocol: None,
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
            compress: None,
            debug: false,
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
