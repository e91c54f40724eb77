//! The settings of a node: a configuration that has been read and checked, and cannot be invalid any
//! more.
//!
//! This crate makes them from a TOML file, tests make them by hand. Field names
//! are those of the file; docs/operate/configuration.md describes them for operators.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

pub use crate::file::{DORMANT_RETRIES, Delivery, LargeSettings, Limits, MissLimits};
pub use levada_access::access::{AccessSettings, Bandwidth, BasicSettings, LimitSettings};
pub use levada_access::trust::TrustedProxies;
pub use levada_body::compress::{Coding, CompressSettings, TypePattern};
pub use levada_cache::{CacheRules, CookieStorage, IgnoredFields, StatusTtl, Statuses};
use levada_cluster::announce::RouteSettings;
pub use levada_cluster::nodes::{Peer, PeerTrust, Peering};
use levada_cluster::orders::PurgeAccess;
pub use levada_discovery::{
    DiscoverySettings, DnsSource, FileSource, NamedSource, SrvSource, SystemFiles,
};
pub use levada_dns::DnsSettings;
pub use levada_fetch::{Mode, Patience, Plan};
pub use levada_observe::log::LogFormat;
pub use levada_observe::log::access_log::AccessLog;
pub use levada_observe::otel::ExportSettings;
pub use levada_observe::redact::RedactedArguments;
pub use levada_policy::classify::{ClassRule, ClassRules};
pub use levada_redirector::handoff::{AfterHandoff, HandoffBackendSettings, HandoffSettings};
pub use levada_redirector::{
    AdmissionLimits, ClassSettings, KeyFrom, PolicyChoice, SwitchServer, SwitchSettings,
};
pub use levada_rules::{CachingRules, FetchFields, KeyRules, QueryRule, Selector};
pub use levada_store::{CacheSettings, DiskCache};
pub use levada_tls::client_certificates::{ClientCertificateMode, ClientCertificateSettings};
pub use levada_tls::client_fields::ClientFields;
pub use levada_tls::origin::OriginTls;
pub use levada_tls::pem::Certificate;
pub use levada_tls::tickets::TicketSettings;
pub use levada_upstream::{
    CollectorSettings, CollectorTargets, HealthCheck, Origin, ProxyVersion, ServerProtocols,
};

use crate::file::{ADMIN_MODE, WebSocketSettings};
use http::{HeaderMap, HeaderName, Method};
use levada_body::files::{FilesSettings, type_of_extension};
use levada_rules::{
    Adjustments, CacheUse, Destination, Expression, FieldEdits, REQUEST_ID, RequestFacts,
    RouteAnswer, RouteTable, fits_its_url,
};
use levada_store::identity::ResourceUrl;
use levada_tls::acme::AcmeSettings;
use levada_tls::client_fields::is_about_certificates;
use levada_tls::door::SiteDoor;
use levada_tls::handshake::HandshakeSettings;
use levada_types::{AdminAddress, format_duration};

use crate::{
    host_table::HostTable,
    identity::{self, facts},
    unusable,
    unusable::UnusableSettings,
};

/// Everything one node needs to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node's name: in `Cache-Status`, `Via`, logs, and in the hash order of every redirector.
    pub name: String,
    /// How the node uses its cores.
    pub runtime: Runtime,
    /// The user that the node becomes when it is started by root; `None`: it stays who it is.
    pub run_as: Option<RunAs>,
    /// Whether the kernel moves long bodies from servers to clients (splice), instead of this process.
    pub splice: bool,
    /// The listeners for clients.
    pub listeners: Vec<Listener>,
    /// The keys of TLS session tickets.
    pub tickets: TicketSettings,
    /// Certificates that the node orders by itself.
    pub acme: Option<AcmeSettings>,
    /// The proxies in front of this node whose statements about clients count.
    pub trusted: Vec<TrustedProxies>,
    /// The cluster that this node belongs to; `None` when it stands alone.
    pub peering: Option<Peering>,
    /// The name server; `None`: the node is none.
    pub dns: Option<DnsSettings>,
    /// Sources of members, and how names are resolved.
    pub discovery: DiscoverySettings,
    /// The admin listener: metrics, health, explain. Never a public address.
    pub admin: Option<Admin>,
    /// An address for metrics and health only.
    pub metrics: Option<SocketAddr>,
    /// The memory tier.
    pub cache: CacheSettings,
    /// The token for purges, and whether clients receive tags.
    pub purge: PurgeSettings,
    /// TCP handoff, as a front-end or as a back-end; `None`: no handoff.
    pub handoff: Option<HandoffSettings>,
    /// The sites, found by host.
    pub sites: Vec<SiteSettings>,
    /// Limits on the resources that clients use.
    pub limits: Limits,
    /// The access log of sites that have none of their own.
    pub access_log: Option<AccessLog>,
    /// The query arguments whose values spans leave out.
    pub redact: RedactedArguments,
    /// The collector that gets traces, metrics and logs; `None`: nothing is exported.
    pub telemetry: Option<CollectorSettings>,
    /// The route to this node; `None`: Levada does not manage it.
    pub route: Option<RouteSettings>,
    /// Seeds every random choice, so that a run can be repeated; `None` takes one from the system.
    pub seed: Option<u64>,
}

/// Reads the settings again. The error says in lines for an operator why they cannot be used.
pub struct SettingsReader(pub Box<dyn Fn() -> Result<Settings, String> + Send + Sync>);

impl std::fmt::Debug for SettingsReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SettingsReader")
    }
}

/// The user that a node runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// Its name.
    pub user: String,
    /// A group other than its own.
    pub group: Option<String>,
}

/// How a node uses its cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// One scheduler over this many threads, with work stealing.
    Shared(usize),
    /// One scheduler, listener socket and pool per thread; connections stay where they were accepted.
    PerCore(usize),
}

/// A listener for clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// The address to listen on; port 0 takes a free port.
    pub address: SocketAddr,
    /// Certificates by SNI; plain text when empty, unless there are ordered ones.
    pub tls: Vec<Certificate>,
    /// The choices of TLS handshakes.
    pub handshake: HandshakeSettings,
    /// Whether certificates are shown that the node orders by itself.
    pub acme: bool,
    /// Whether HTTP/2 without TLS (prior knowledge) is accepted in addition to HTTP/1.1.
    pub h2c: bool,
    /// Whether HTTP/3 is served at the same address over UDP; with TLS only.
    pub http3: bool,
    /// The number of unacknowledged retransmissions after which a connection is reset; `None` leaves it
    /// to the kernel, which takes a quarter of an hour.
    pub dormant_retries: Option<u8>,
}

impl Listener {
    /// A listener for plain HTTP/1.1, with defaults for the rest.
    pub fn plain(address: SocketAddr) -> Self {
        Self {
            address,
            tls: Vec::new(),
            acme: false,
            handshake: HandshakeSettings::default(),
            h2c: false,
            http3: false,
            dormant_retries: Some(DORMANT_RETRIES),
        }
    }

    /// Whether connections begin with TLS.
    pub fn is_encrypted(&self) -> bool {
        self.acme || !self.tls.is_empty()
    }
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address to listen on.
    pub listen: AdminAddress,
    /// The permissions of a Unix socket's file.
    pub mode: u32,
    /// The token that orders need; `None`: orders come from this machine only.
    pub token: Option<String>,
    /// Names of the listener apart from `localhost` and IP addresses.
    pub hosts: Vec<String>,
}

impl Admin {
    /// A listener without a token and without names.
    pub fn at(listen: impl Into<AdminAddress>) -> Self {
        Self { listen: listen.into(), mode: ADMIN_MODE, token: None, hosts: Vec::new() }
    }
}

/// One site: the hosts it answers to and how it is served.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteSettings {
    /// Host names, `*.example.com` for all below one, `*` for hosts that no other site has.
    pub hosts: Vec<String>,
    /// How requests are classified into service classes.
    pub classes: ClassSettings,
    /// Its TLS handshakes with clients.
    pub tls: SiteTls,
    /// How a chosen peer's answer reaches the client.
    pub delivery: Delivery,
    /// The servers, and how a request gets one of them.
    pub servers: SiteServers,
    /// How requests are handled that no route takes.
    pub handling: Handling,
    /// How large files are served; `None`: like all others.
    pub large: Option<LargeSettings>,
    /// The routes of the site.
    pub routes: SiteRoutes,
    /// Whether paths may have encoded control characters.
    pub encoded_controls: bool,
    /// The access log.
    pub log: SiteLog,
    /// The forms of its URLs in keys: [`with_spaces`](Self::with_spaces) makes them.
    pub forms: identity::KeyForms,
}

/// The TLS handshakes of a site with its clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteTls {
    /// Their choices; `None`: as at the listener.
    pub handshake: Option<HandshakeSettings>,
    /// The certificates of clients; `None`: they are not asked for one.
    pub clients: Option<Arc<ClientCertificateSettings>>,
}

/// The access log of a site.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SiteLog {
    /// That of the node.
    #[default]
    OfNode,
    /// One of its own, or none.
    Own(Option<Box<AccessLog>>),
}

impl Settings {
    /// Whether a node could serve by them, as far as files and other programs do not decide it.
    ///
    /// # Errors
    /// With the first reason why it could not.
    pub fn check(&self) -> Result<(), UnusableSettings> {
        unusable::check(self)
    }

    /// Whether any server of a switch takes connections by handoff.
    pub fn hands_over(&self) -> bool {
        let switches = self.sites.iter().filter_map(|site| site.servers.switch.as_ref());
        let mut servers = switches.flat_map(|switch| &switch.servers);
        servers.any(|server| server.handoff.is_some())
    }

    /// The files of all certificates that clients and peers are shown.
    pub fn certificate_files(&self) -> Vec<PathBuf> {
        let of_clients = self.listeners.iter().flat_map(|listener| &listener.tls);
        let of_peers = self.peering.iter().filter_map(|peering| match &peering.trust {
            PeerTrust::Mtls { identity, .. } => Some(identity),
            PeerTrust::Secret(_) => None,
        });
        let mut files: Vec<_> =
            of_clients.chain(of_peers).map(|pair| pair.certificate.clone()).collect();
        files.sort();
        files.dedup();
        files
    }

    /// All access logs of the node and its sites.
    pub fn access_logs(&self) -> impl Iterator<Item = &AccessLog> {
        let own = self.sites.iter().filter_map(|site| match &site.log {
            SiteLog::Own(log) => log.as_deref(),
            SiteLog::OfNode => None,
        });
        self.access_log.iter().chain(own)
    }

    /// The site of a host in lower case without a port: the most exact pattern wins.
    pub fn site(&self, host: &str) -> Option<&SiteSettings> {
        let all = self.sites.iter().map(|site| (&*site.hosts, site));
        HostTable::new(all).find(host).copied()
    }
}

impl SiteSettings {
    /// Whether the site or a route has files for TLS with its servers: a reload reads them again.
    pub fn has_tls_files(&self) -> bool {
        let routes = self.routes.all.iter().filter_map(|route| route.servers.as_ref());
        let mut tls = routes.chain([&self.servers]).filter_map(|servers| servers.tls.as_ref());
        tls.any(|tls| tls.has_files())
    }

    /// The site, as handshakes see it.
    pub fn door(&self) -> SiteDoor<'_> {
        SiteDoor {
            hosts: &self.hosts,
            handshake: self.tls.handshake.as_ref(),
            clients: self.tls.clients.as_deref(),
        }
    }

    /// Whether one of its hosts is this one, or is a pattern for it.
    pub fn has_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|own| match own.strip_prefix('*') {
            Some(suffix) => host.ends_with(suffix),
            None => own.eq_ignore_ascii_case(host),
        })
    }

    /// Its first host, by which a site is identified.
    pub fn name(&self) -> &str {
        self.hosts.first().map_or("", String::as_str)
    }

    /// The expressions of the site and its routes.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let routes = self.routes.all.iter().map(|route| &route.handling);
        let handlings = std::iter::once(&self.handling).chain(routes);
        let matchers = self.routes.table.routes().iter().filter_map(|route| route.when.as_ref());
        handlings.flat_map(Handling::expressions).chain(matchers)
    }

    /// The settings of a route with servers of its own.
    pub fn of_route(&self, route: &SiteRoute) -> Option<Self> {
        let servers = route.servers.clone()?;
        let (handling, routes) = (route.handling.clone(), SiteRoutes::default());
        Some(Self { servers, handling, routes, ..self.clone() })
    }
}

/// The servers of a site or of a route, and how a request gets one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteServers {
    /// The origins; requests go to the first that is up, and are spread over its members. Empty if there is a switch, or a directory.
    pub origins: Vec<Origin>,
    /// Servers that the policy chooses from, instead of the nodes of the cluster.
    pub switch: Option<SwitchSettings>,
    /// A directory that the node serves by itself, in the place of servers.
    pub files: Option<FilesSettings>,
    /// The `Host` sent to the origin; the client's own when `None`.
    pub origin_host: Option<String>,
    /// The protocols by which origins and servers are reached.
    pub protocols: ServerProtocols,
    /// TLS with origins and servers; `None`: the authorities of this system are trusted.
    pub tls: Option<Arc<OriginTls>>,
    /// The policy that chooses the node for a request.
    pub policy: PolicyChoice,
    /// Health checks of origins.
    pub health: HealthCheck,
    /// Limits on requests in flight at the origins.
    pub misses: MissLimits,
    /// The region that is asked before the origins.
    pub shield: Option<ShieldSettings>,
}

/// The region through which nodes of other regions ask the origins.
#[derive(Clone, Debug, PartialEq)]
pub struct ShieldSettings {
    /// The region.
    pub region: Arc<str>,
    /// The policy that chooses among its nodes.
    pub policy: PolicyChoice,
}

impl SiteServers {
    /// The part of requests that the policy's key is taken from.
    pub fn key_from(&self) -> &KeyFrom {
        self.switch.as_ref().map_or(&KeyFrom::Url, |switch| &switch.key)
    }

    /// The origins, or the servers of the switch, with the protocol by which each is reached, for operators.
    pub fn in_words(&self) -> Vec<String> {
        let switched = self.switch.iter().flat_map(|switch| &switch.servers);
        let all = self.origins.iter().chain(switched.map(|server| &server.origin));
        let words = |origin: &Origin| {
            let protocol = match (self.protocols.h2, origin.tls()) {
                (false, _) => "HTTP/1.1",
                (true, true) => "HTTP/2",
                (true, false) => "HTTP/2 without TLS (h2c)",
            };
            format!("{origin} by {protocol}")
        };
        all.map(words).collect()
    }
}

/// How requests are handled: everything that can differ per route and is decided when the configuration is
/// read. A mechanism has one field here.
#[derive(Clone, Debug, PartialEq)]
pub struct Handling {
    /// Whether responses are stored. If not, the node only distributes the requests.
    pub cache: bool,
    /// Rules for storing and freshness, where the RFCs leave a choice.
    pub rules: CacheRules,
    /// Rules that look at requests: key, bypass, cookies, uses; `None`: the defaults.
    pub caching: Option<Arc<CachingRules>>,
    /// Whether clients see the reason for the choice of a node in `Proxy-Status` details.
    pub debug: bool,
    /// How responses are compressed; `None`: not at all.
    pub compress: Option<CompressSettings>,
    /// The changes of requests and responses; `None`: there are none.
    pub adjustments: Option<Arc<Adjustments>>,
    /// Who may make such requests, and how many.
    pub access: AccessSettings,
    /// Connections that switch to WebSocket.
    pub websocket: WebSocketSettings,
    /// The fields that a shared fetch has in addition to those of the key.
    pub fetch_fields: FetchFields,
    /// Whether responses that do not fit their URL are stored by HTTP's own rules only.
    pub deception_armour: bool,
    /// The word that tells what is stored for a route from what is stored for others: routes of one space ask
    /// the same, or share on purpose. `None`: as the site itself.
    pub space: Option<Arc<str>>,
}

impl Handling {
    /// Makes the edits of a request's fields that come before the cache, and removes the cookies that must not
    /// count. Returns what the request does with the cache, and the edits, some of which are made when it is sent.
    pub fn prepare(
        &self,
        request: (IpAddr, &Method, &ResourceUrl),
        headers: &mut HeaderMap,
    ) -> (CacheUse, Option<Arc<FieldEdits>>) {
        let edits = self.request_edits(request, headers);
        let (client, method, url) = request;
        let mut cache_use = CacheUse::Full;
        let is_cached = levada_cache::is_cache_method(method);
        // The answer to a POST may be stored.
        let caching = self.caching.as_ref().filter(|_| is_cached || *method == Method::POST);
        if let Some(rules) = caching {
            let facts = || facts(url, client, method, headers);
            cache_use = rules.cache_use(url.target(), headers, facts);
            if is_cached && cache_use == CacheUse::Full {
                rules.strip_request(headers);
            }
        }
        if let Some(edits) = &edits {
            edits.apply_to_received(headers);
        }
        (cache_use, edits)
    }

    /// The same with the place where a request goes on whose file is not there.
    pub fn with_destination(mut self, without_file: Option<Destination>) -> Self {
        if without_file.is_some() {
            let adjustments = self.adjustments.take().map(Arc::unwrap_or_clone);
            let adjustments = Adjustments { without_file, ..adjustments.unwrap_or_default() };
            self.adjustments = Some(Arc::new(adjustments));
        }
        self
    }

    /// The path and query that name a file, for a request with these facts.
    pub fn file_target(&self, facts: &RequestFacts<'_>) -> String {
        let rewrite = self.adjustments.as_ref().and_then(|with| with.rewrite.as_ref());
        rewrite.map_or_else(|| facts.target.to_owned(), |rewrite| rewrite.target(facts))
    }

    /// All places where a request may go on, of a file that is not there or of an error.
    pub fn destinations(&self) -> impl Iterator<Item = &Destination> {
        let of_errors = self.adjustments.iter().flat_map(|with| with.pages.destinations());
        of_errors.chain(self.without_file())
    }

    /// The place where a request goes on whose file is not there.
    pub fn without_file(&self) -> Option<&Destination> {
        self.adjustments.as_ref()?.without_file.as_ref()
    }

    /// The fields of a request that no list and no key has: `UnkeyedFields` says which of them a fetch has that others
    /// share. A peer gets every field: it makes the same key, and withholds the same.
    pub fn unkeyed(&self, headers: &HeaderMap) -> Vec<HeaderName> {
        if self.fetch_fields == FetchFields::All {
            return Vec::new();
        }
        let key = self.caching.as_ref().map(|rules| &rules.key);
        let has_id = self.adjustments.as_ref().is_some_and(|with| with.use_request_id());
        let passes = |name: &HeaderName| {
            self.fetch_fields.pass(name)
                || key.is_some_and(|key| key.has_field(name))
                || (has_id && *name == REQUEST_ID)
                // This node writes them, and removes what clients write there.
                || is_about_certificates(name.as_str())
        };
        headers.keys().filter(|name| !passes(name)).cloned().collect()
    }

    /// The path and query that a response must fit to be stored by rules that store more than HTTP does; `None` where
    /// there are no such rules, or no armour is wanted.
    pub fn armour<'t>(&self, target: &'t str) -> Option<&'t str> {
        (self.deception_armour && self.rules.exceed_http()).then_some(target)
    }

    /// Whether a response does not fit: HTTP's own rules judge it.
    pub fn is_deceptive(armour: Option<&str>, response: &HeaderMap) -> bool {
        armour.is_some_and(|target| !fits_its_url(target, response, type_of_extension))
    }

    /// Whether the response to a request for `target` does not fit it.
    pub fn deceives(&self, target: &str, response: &HeaderMap) -> bool {
        Self::is_deceptive(self.armour(target), response)
    }

    /// The edits of a request's fields, with its values.
    pub fn request_edits(
        &self,
        (client, method, url): (IpAddr, &Method, &ResourceUrl),
        headers: &HeaderMap,
    ) -> Option<Arc<FieldEdits>> {
        let edits = &self.adjustments.as_ref()?.request;
        (!edits.is_empty()).then(|| edits.bind(|| facts(url, client, method, headers)))
    }

    /// The expressions that decide how requests are handled.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let of_fields = self
            .adjustments
            .iter()
            .flat_map(|with| with.request.expressions().chain(with.response.expressions()));
        self.caching.iter().flat_map(|rules| rules.expressions()).chain(of_fields)
    }

    /// What differs from the defaults, for operators.
    pub fn in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if !self.cache {
            words.push("nothing is stored".to_owned());
        }
        words.extend(StatusTtl::in_words(&self.rules.ttl, "fresh"));
        words.extend(StatusTtl::in_words(&self.rules.status_ttl, "fresh by default"));
        if let Some(ttl) = self.rules.default_ttl {
            words.push(format!("fresh for {} by default", format_duration(ttl)));
        }
        if let Some(caching) = &self.caching {
            words.extend(caching.in_words());
        }
        if self.compress.is_some() {
            words.push("compressed".to_owned());
        }
        if let Some(adjustments) = &self.adjustments {
            words.extend(adjustments.in_words());
        }
        if !self.websocket.enabled {
            words.push("no WebSocket".to_owned());
        }
        words
    }
}

impl Default for Handling {
    fn default() -> Self {
        Self {
            cache: true,
            rules: CacheRules::default(),
            caching: None,
            debug: false,
            compress: None,
            adjustments: None,
            access: AccessSettings::default(),
            websocket: WebSocketSettings::default(),
            fetch_fields: FetchFields::default(),
            deception_armour: true,
            space: None,
        }
    }
}

/// The routes of a site. The first one that matches a request counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteRoutes {
    /// The matchers of all routes, in order.
    pub table: Arc<RouteTable>,
    /// The routes, in the same order.
    pub all: Vec<SiteRoute>,
}

/// A route of a site: what differs from the site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteRoute {
    /// Its name, which no other route of the site has.
    pub name: Arc<str>,
    /// How its requests are handled.
    pub handling: Handling,
    /// Its answer, if it asks no server.
    pub answer: Option<RouteAnswer>,
    /// Where its requests go on.
    pub reroute: Option<Destination>,
    /// Its servers; `None`: the site's.
    pub servers: Option<SiteServers>,
}

/// Purging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeSettings {
    /// The tokens that a purge needs; without any, the `PURGE` method is off.
    pub access: PurgeAccess,
    /// Whether clients receive `Surrogate-Key` and `Cache-Tag`.
    pub expose_tags: bool,
}
