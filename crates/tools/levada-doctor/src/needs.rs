//! The needs of a node, by its settings.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf};

use levada_config::{DiskCache, Limits, Origin, RunAs, Settings, SiteServers};
use levada_types::AdminAddress;

use crate::AcmeNeeds;

/// The needs of a node.
#[derive(Clone, Debug)]
pub struct Needs {
    /// The most client connections.
    pub connections: u64,
    /// The most connections to one server.
    pub server_connections: u64,
    /// The bound on the resident memory; `None`: it follows from the machine.
    pub memory: Option<u64>,
    /// The addresses that it listens on.
    pub addresses: Vec<NamedAddress>,
    /// The Unix socket for operators.
    pub socket: Option<PathBuf>,
    /// The names of origins, servers and peers.
    pub names: BTreeSet<String>,
    /// The user that it becomes.
    pub run_as: Option<RunAs>,
    /// The interfaces on which handed off connections arrive; `None`: no handoff.
    pub handoff: Option<Vec<String>>,
    /// Whether it takes connections over from a front-end.
    pub is_handoff_backend: bool,
    /// The cache on disk.
    pub disk: Option<DiskCache>,
    /// The files with certificates for clients and peers.
    pub certificates: Vec<PathBuf>,
    /// Certificates by ACME.
    pub acme: Option<AcmeNeeds>,
    /// Whether a listener serves HTTP/3.
    pub http3: bool,
    /// Whether they are those of a configuration.
    pub is_configured: bool,
}

/// An address and the table of the configuration that has it.
#[derive(Clone, Debug)]
pub struct NamedAddress {
    /// The table.
    pub table: &'static str,
    /// The address.
    pub address: SocketAddr,
}

impl Default for Needs {
    /// The needs of a node without a configuration.
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            connections: limits.connections as u64,
            server_connections: limits.server_connections as u64,
            memory: limits.memory,
            addresses: Vec::new(),
            socket: None,
            names: BTreeSet::new(),
            run_as: None,
            handoff: None,
            is_handoff_backend: false,
            disk: None,
            certificates: Vec::new(),
            acme: None,
            http3: false,
            is_configured: false,
        }
    }
}

impl Needs {
    /// The needs of a node with these settings.
    pub fn of(settings: &Settings) -> Self {
        let backend = settings.handoff.as_ref().and_then(|handoff| handoff.backend.as_ref());
        Self {
            connections: settings.limits.connections as u64,
            server_connections: settings.limits.server_connections as u64,
            memory: settings.limits.memory,
            addresses: addresses(settings),
            socket: settings.admin.as_ref().and_then(|admin| admin.listen.path()).map(Into::into),
            names: names(settings),
            run_as: settings.run_as.clone(),
            handoff: settings.handoff.as_ref().map(|handoff| handoff.interfaces.clone()),
            is_handoff_backend: backend.is_some(),
            disk: settings.cache.disk.clone(),
            certificates: settings.certificate_files(),
            acme: AcmeNeeds::of(settings),
            http3: settings.listeners.iter().any(|listener| listener.http3),
            is_configured: true,
        }
    }
}

/// The addresses to listen on. A port 0 is any free port.
fn addresses(settings: &Settings) -> Vec<NamedAddress> {
    let named = |table, address| NamedAddress { table, address };
    let clients = settings.listeners.iter().map(|listener| named("[[listen]]", listener.address));
    let admin = settings.admin.as_ref().and_then(|admin| match &admin.listen {
        AdminAddress::Tcp(address) => Some(named("[admin]", *address)),
        AdminAddress::Unix(_) => None,
    });
    let metrics = settings.metrics.map(|address| named("[admin] metrics", address));
    let peering = settings.peering.as_ref().map(|peering| named("[peering]", peering.listen));
    let backend = settings.handoff.as_ref().and_then(|handoff| handoff.backend.as_ref());
    let handoff = backend.map(|backend| named("[handoff]", backend.listen));
    let all = clients.chain(admin).chain(metrics).chain(peering).chain(handoff);
    all.filter(|one| one.address.port() != 0).collect()
}

fn names(settings: &Settings) -> BTreeSet<String> {
    let of_routes = settings.sites.iter().flat_map(|site| &site.routes.all);
    let of_routes = of_routes.filter_map(|route| route.servers.as_ref());
    let servers = settings.sites.iter().map(|site| &site.servers).chain(of_routes);
    let peers = settings.peering.iter().flat_map(|peering| &peering.peers);
    let peers = peers.filter_map(|peer| peer.address.rsplit_once(':').map(|(host, _)| host));
    let hosts = servers.flat_map(hosts).chain(peers.map(str::to_owned));
    hosts.filter(|host| is_name(host)).collect()
}

fn hosts(servers: &SiteServers) -> Vec<String> {
    let switched = servers.switch.iter().flat_map(|switch| &switch.servers);
    let origins = servers.origins.iter().chain(switched.map(|server| &server.origin));
    let host = |origin: &Origin| match origin {
        Origin::Tcp { host, .. } => Some(host.clone()),
        // Discovery reports by itself which sources do not answer.
        Origin::Unix(_) | Origin::Discovered { .. } | Origin::Member { .. } => None,
    };
    origins.filter_map(host).collect()
}

/// Whether it is a name rather than an address.
fn is_name(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_err()
}
