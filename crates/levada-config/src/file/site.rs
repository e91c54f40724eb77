//! `[[site]]`: a group of hosts, where their content comes from and how it is served.

use levada_edge::settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClassRule, KeyFrom, Large, OneOrMany, Policy, Server, ServerAdmission, count};
use crate::text::{HostField, HostPattern, Time, Upstream};

/// A group of hosts and how they are served.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["hosts"]))]
pub struct Site {
    /// The hosts it answers to; `*.example.com` is all below one, `*` whatever no other site has. The most exact one wins.
    #[schemars(extend("examples" = [["www.example.com", "*.img.example.com"]]))]
    pub hosts: Option<OneOrMany<HostPattern>>,
    /// Where content comes from: a URL, or `unix:` and the path of a socket on this machine; with several, the first that is up. Either this or servers must be given.
    #[schemars(extend("examples" = ["http://10.0.1.1:8000"]))]
    pub origin: Option<OneOrMany<Upstream>>,
    /// Servers that the policy chooses among, instead of the nodes of the cluster; in short, for those of which there is no more to say. See docs/operate/web-switch.md.
    #[schemars(extend("examples" = [["http://10.0.1.1:8000", "http://10.0.1.2:8000"]]))]
    pub servers: Option<OneOrMany<Upstream>>,
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
