//! The configuration file: every table and key, declared once, each table in a file of its own.
//!
//! Users read these comments: the JSON Schema, the tables of docs/operate/configuration.md and the
//! errors are generated from these declarations. A struct without conversion is used as it was read.
//!
//! Every field has a default, required or not, so that a file with mistakes can be read without the
//! wrong values and checked for everything else. The schema has the required keys.

mod access;
mod acme;
mod discovery;
mod discovery_servers;
mod dns;
mod handling;
mod handoff;
mod large;
mod limits;
mod listen;
mod log;
mod origin_tls;
mod peering;
mod policy;
mod purge;
mod runtime;
mod servers;
mod shield;
mod site;
mod site_route;
mod telemetry;
mod tls;
mod trusted;

use super::text::NodeName;
use levada_cluster::announce::StatedRoute;
use levada_discovery::ResolverSettings;
use levada_store::CacheSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::{
    BasicAuth, Clients, Cors, ForwardAuth, Limit, LimitScope, SignedForm, SignedUrls,
};
pub use acme::{Acme, AcmeChallenge, AcmeExternalAccount, SiteAcme};
pub use discovery::Discovery;
pub use discovery_servers::{Etcd, Kubernetes};
pub use dns::{Dns, DnsFilter, DnsHttp, DnsRateLimit, DnsSteering, DnsTarget, DnsZone};
pub use handling::{
    CacheKey, Cookies, CountedQuery, ErrorPage, ErrorPageStatus, Handling, HeaderEdits,
    IgnoredHeader, Maintenance, MaintenanceTable, RegexValue, StatusOf, StripCookies,
    VariableTable, WebSocketSettings,
};
pub use handoff::Handoff;
pub use large::{Large, LargeProfile, LargeRetry, LargeSettings};
pub use levada_body::files::{Files, FilesOrRoot};
pub use levada_types::values::{Off, OneOrMany, OrOff};
pub use limits::Limits;
pub use listen::{ADMIN_MODE, Admin, Certificate, DORMANT_RETRIES, DormantRetries, Listen};
pub use log::Log;
pub use origin_tls::OriginTls;
pub use peering::{Peer, PeerTls, Peering, Protocol};
pub use policy::Policy;
pub use purge::{Purge, PurgeGrant};
pub use runtime::{Runtime, RuntimeMode};
pub use servers::{ClassRule, KeyFrom, KeyKind, Server};
pub use shield::{Shield, ShieldOrRegion};
pub use site::{Delivery, MissLimits, Site, SiteServers};
pub use site_route::{ClientScheme, FieldMatch, Redirect, Respond, SiteRoute};
pub use telemetry::Telemetry;
pub use tls::{ClientCertificates, Handshake, SessionTickets};
pub use trusted::Trusted;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Levada configuration", extend("required" = ["name", "listen", "site"]))]
pub struct File {
    /// This node's name: in `Cache-Status`, `Via` and logs. In a cluster it is one of the `[[peer]]` names.
    #[schemars(extend("examples" = ["a"]))]
    pub name: Option<NodeName>,
    /// The seed of all random choices, so that a run can be repeated. By default the system chooses
    /// it.
    #[schemars(range(min = 0), extend("examples" = [42]))]
    pub seed: Option<i64>,
    /// The threads of the node.
    pub runtime: Runtime,
    /// The addresses for clients, one table per address.
    #[schemars(length(min = 1))]
    pub listen: Vec<Listen>,
    /// Session tickets of TLS: docs/operate/tls.md.
    pub session_tickets: SessionTickets,
    /// Proxies in front of this node, whose statements about clients count.
    pub trusted: Vec<Trusted>,
    /// Certificates that the node orders by itself. Without this table it orders none.
    pub acme: Option<Acme>,
    /// The admin listener.
    pub admin: Admin,
    /// The node's membership in a cluster. Without this table, the node stands alone.
    pub peering: Option<Peering>,
    /// All nodes of the cluster, with this one: the same list on every node.
    pub peer: Vec<Peer>,
    /// A name server for the names of this CDN: docs/operate/dns.md.
    pub dns: Option<Dns>,
    /// Sources of members: DNS, a watched file, etcd, Kubernetes. See docs/operate/discovery.md.
    pub discovery: Vec<Discovery>,
    /// How host names are resolved.
    pub resolver: ResolverSettings,
    /// The cache in memory and on disk.
    pub cache: CacheSettings,
    /// Authorization of purges.
    pub purge: Purge,
    /// Connections that are handed to back-ends, or taken from a front-end.
    pub handoff: Option<Handoff>,
    /// The policy of sites without a policy of their own.
    pub policy: Option<Policy>,
    /// Keys that all sites and routes inherit: docs/operate/routes.md.
    #[schemars(extend("additionalProperties" = false, "x-page" = "docs/operate/routes.md"))]
    pub defaults: Handling,
    /// The countries of addresses: a file in MaxMind's format, for rules of `access`. See docs/operate/access.md.
    #[schemars(length(min = 1), extend("examples" = ["/var/lib/levada/GeoLite2-Country.mmdb"]))]
    pub country_database: Option<String>,
    /// The sites, one table per group of hosts.
    #[schemars(length(min = 1))]
    pub site: Vec<Site>,
    /// Bounds on the work and memory of clients, servers and requests.
    pub limits: Limits,
    /// The anycast route by which clients reach this node: docs/operate/anycast.md.
    pub route: Option<StatedRoute>,
    /// The access log: docs/operate/logs.md. The event log is chosen with `--log-level` and goes to standard error.
    pub log: Log,
    /// Traces, metrics and logs for OpenTelemetry. Without this table nothing is sent, and no request is traced.
    pub telemetry: Option<Telemetry>,
}
