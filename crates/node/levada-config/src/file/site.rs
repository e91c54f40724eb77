//! `[[site]]`: a group of hosts, their origin, and how they are served.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use levada_redirector::AdmissionLimits;
use levada_types::values::OneOrMany;
use levada_upstream::{HealthCheck, ProxyVersion};

use super::{
    ClassRule, ClientCertificates, FilesOrRoot, Handling, Handshake, KeyFrom, Large, Log,
    OriginTls, Policy, Protocol, Server, ShieldOrRegion, SiteAcme, SiteRoute,
};
use crate::text::{As, HostField, HostPattern, Time, Upstream};

/// A group of hosts and how they are served.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["hosts"], "additionalProperties" = false))]
pub struct Site {
    /// The hosts of the site; `*.example.com` matches all names below example.com, `*` all hosts of no other
    /// site. The most exact pattern wins.
    #[schemars(extend("examples" = [["www.example.com", "*.img.example.com"]]))]
    pub hosts: Option<OneOrMany<HostPattern>>,
    /// The servers, and how a request gets one of them.
    #[serde(flatten)]
    pub servers: SiteServers,
    /// How requests are handled that no route takes.
    #[serde(flatten)]
    pub handling: Handling,
    /// The routes of the site: docs/operate/routes.md. The first one that matches a request counts.
    #[schemars(extend("x-page" = "docs/operate/routes.md"))]
    pub route: Vec<SiteRoute>,
    /// Rules for service classes, for policies that use them; the first matching rule counts. See
    /// docs/operate/classes.md.
    pub class: Vec<ClassRule>,
    /// Whether the class of requests that match no rule is learned from service times, by the first segment
    /// of the path.
    pub learn_classes: bool,
    /// The versions, cipher suites and curves of TLS for these hosts, instead of those of the listener: docs/operate/tls.md.
    pub handshake: Option<Handshake>,
    /// Certificates that clients show. Without this table they are not asked for one.
    pub client_certificates: Option<ClientCertificates>,
    /// How the answer of the chosen node reaches the client.
    pub delivery: Delivery,
    /// Whether paths may have encoded control characters, such as `%00`. Otherwise such requests get 400: servers
    /// cut a path there, so that rules would be about another one.
    pub encoded_controls: bool,
    /// Large files, fetched in pieces through the whole cluster.
    pub large: Large,
    /// How the names of its certificate are proved, or `"off"`: docs/operate/certificates.md. The default is
    /// `acme.challenge`.
    pub acme: Option<SiteAcme>,
    /// The access log of this site. Keys that it does not state are those of `[log]`. See
    /// docs/operate/logs.md.
    pub log: Option<Log>,
}

/// The servers of a site or of a route, and how a request gets one of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct SiteServers {
    /// The origin: a URL, or `unix:` and the path of a socket on this machine; with several, the first that
    /// is up. Either this, servers or files must be given, unless routes answer all requests themselves.
    #[schemars(extend("examples" = ["http://10.0.1.1:8000"]))]
    pub origin: Option<OneOrMany<Upstream>>,
    /// A directory that the node serves by itself, instead of an origin: its path, or a table. See
    /// docs/operate/static-files.md.
    #[schemars(extend("examples" = ["/srv/www"]))]
    pub files: Option<FilesOrRoot>,
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
    pub admission: AdmissionLimits,
    /// The `Host` field of requests to the origin. The default is the client's own.
    #[schemars(extend("examples" = ["origin.example.com"]))]
    pub origin_host: Option<HostField>,
    /// The protocol of origins and servers. See docs/operate/http2.md.
    pub protocol: Protocol,
    /// The version of the PROXY protocol by which connections to origins and servers begin with the client's
    /// address. Such a connection takes requests of one client only.
    pub proxy_protocol: Option<ProxyVersion>,
    /// TLS with origins and servers: trusted authorities, names, the certificate of this node. See
    /// docs/operate/tls.md.
    pub origin_tls: Option<OriginTls>,
    /// The policy that chooses the node of a request. The default is the top-level `[policy]`, or
    /// `adaptive`.
    pub policy: Option<Policy>,
    /// Limit of concurrent requests at the origins.
    pub misses: MissLimits,
    /// The region through which nodes of other regions ask the origin: its name, or a table. See
    /// docs/operate/regions.md.
    #[schemars(extend("examples" = ["us"]))]
    pub shield: Option<ShieldOrRegion>,
    /// Health checks of origins.
    pub health_check: HealthCheck,
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

/// Limit of concurrent requests of a site at its origins, so that cache misses cannot overload them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MissLimits {
    /// Concurrent requests at the origins. One client has as many as are free at most, half of them if it is
    /// the only one; an IPv6 network of 64 bits is one client. A second try for a late response needs a place,
    /// too. Requests with a body of more than 16 KiB and handshakes of WebSocket have as many places of their
    /// own. A request whose reader takes nothing for a second gives its place to one that waits. A late request
    /// may have to end for a client that is known: see docs/operate/limits.md.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(with = "As::<u32>")]
    pub at_once: usize,
    /// Requests that may wait. Clients take turns, and known ones have three of four; when the queue is full, the
    /// client with the most waiting requests loses one. Beyond it, clients get a stale response where that is allowed, or 503.
    #[schemars(range(max = 1_000_000))]
    #[serde(with = "As::<u32>")]
    pub queue: usize,
    /// Time that a request may wait.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    #[serde(with = "As::<Time>")]
    pub wait: Duration,
}

impl Default for MissLimits {
    fn default() -> Self {
        Self { at_once: 512, queue: 1024, wait: Duration::from_secs(5) }
    }
}
