//! The cluster as this node sees it: its nodes, their health and loads, and how peers recognise each other.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{HeaderValue, header::HOST};
use levada_access::tls;
use levada_metrics::Metrics;
use levada_policy::{Cluster, LoadTable, Node as ClusterNode, NodeIndex};
use levada_redirector::SwitchMetrics;
use levada_settings::{Peer, PeerTrust, Peering};
use levada_types::Timestamp;
use levada_upstream::{
    Address, Change, Clock, HealthCheck, PeerProof, Server, ServerBounds, ServerKind, UpstreamHead,
    WatchedServer, Wire,
};

use crate::PeerLog;

/// The target of a probe of a peer.
pub const PROBE: &str = "/.levada/health";

/// The peers, this node among them.
pub struct Peers {
    me: NodeIndex,
    servers: Vec<Arc<Server>>,
    client_urls: Vec<Option<String>>,
    cluster: ArcSwap<Cluster>,
    loads: Arc<LoadTable>,
    template: Vec<ClusterNode>,
    /// The known part of each node's purge log.
    logs: Vec<PeerLog>,
    settings: Peering,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Peers {
    /// The nodes of `peering` as the node `name` sees them. It sends requests to them with so many `workers`.
    ///
    /// # Errors
    /// When a certificate cannot be used.
    pub fn new(
        name: &str,
        peering: &Peering,
        bounds: ServerBounds,
        clock: Clock,
        metrics: &Arc<Metrics>,
        workers: usize,
    ) -> Result<Self, tls::TlsError> {
        let template = nodes(peering);
        let wire = wire(&peering.trust, peering.h2)?;
        let servers = peering
            .peers
            .iter()
            .map(|peer| {
                let address = split_address(&peer.address);
                let proof = proof(&peering.trust, &peer.name);
                Server::new(
                    peer.name.as_str().into(),
                    address,
                    Wire { proof, ..wire.clone() },
                    bounds,
                    workers,
                )
            })
            .collect();
        let me = peering.peers.iter().position(|p| p.name == name).unwrap_or(0);
        let loads = LoadTable::new(template.len());
        let cluster = Cluster::new(template.clone(), loads.clone());
        Ok(Self {
            me: NodeIndex(me as u32),
            servers,
            client_urls: peering.peers.iter().map(|p| p.client_url.clone()).collect(),
            cluster: ArcSwap::from_pointee(cluster),
            logs: template.iter().map(|_| PeerLog::default()).collect(),
            loads,
            template,
            settings: peering.clone(),
            clock,
            metrics: metrics.clone(),
        })
    }

    /// This node.
    pub fn me(&self) -> NodeIndex {
        self.me
    }

    /// The number of nodes that are up, this one included.
    pub fn nodes_up(&self) -> u32 {
        let others = self.servers.iter().filter(|server| server.health.is_up());
        others.count().max(1) as u32
    }

    /// The nodes as policies see them.
    pub fn cluster(&self) -> arc_swap::Guard<Arc<Cluster>> {
        self.cluster.load()
    }

    /// Requests that this node has sent to each node and that are not finished.
    pub fn loads(&self) -> &Arc<LoadTable> {
        &self.loads
    }

    /// The server of a node.
    pub fn server(&self, node: NodeIndex) -> &Arc<Server> {
        &self.servers[node.get()]
    }

    /// The servers of all nodes.
    pub fn servers(&self) -> impl Iterator<Item = (NodeIndex, &Arc<Server>)> {
        (0..).map(NodeIndex).zip(&self.servers)
    }

    /// The known part of a node's purge log.
    pub fn log(&self, node: NodeIndex) -> &PeerLog {
        &self.logs[node.get()]
    }

    /// A node's URL for clients.
    pub fn client_url(&self, node: NodeIndex) -> Option<&str> {
        self.client_urls[node.get()].as_deref()
    }

    /// The settings.
    pub fn settings(&self) -> &Peering {
        &self.settings
    }

    /// The secret that signs the redirects of this cluster.
    pub fn secret(&self) -> Option<&str> {
        match &self.settings.trust {
            PeerTrust::Secret(secret) => Some(secret),
            PeerTrust::Mtls { secret, .. } => secret.as_deref(),
        }
    }

    /// A head as `server` takes it from a peer: over HTTP/2 with an absolute URI.
    pub fn address_to(&self, server: &Server, head: &UpstreamHead) -> UpstreamHead {
        let mut head = head.clone();
        if server.speaks_h2() {
            let host = head.headers.remove(HOST);
            let authority = host.as_ref().and_then(|h| h.to_str().ok()).unwrap_or("peer");
            let target = head.uri.path_and_query().map_or("/", |t| t.as_str());
            let uri = http::Uri::builder().scheme("http").authority(authority);
            head.uri = uri.path_and_query(target).build().unwrap_or_default();
            head.version = http::Version::HTTP_2;
        }
        head
    }

    /// Renews the view of the cluster from the health of its nodes.
    pub fn refresh(&self, now: Timestamp) {
        let nodes = self
            .servers()
            .zip(&self.template)
            .map(|((node, server), template)| ClusterNode {
                up: node == self.me || server.health.is_up(),
                ramp: match node == self.me {
                    true => 1.0,
                    false => server.health.ramp(self.settings.slow_start, now),
                },
                ..template.clone()
            })
            .collect();
        self.cluster.store(Arc::new(Cluster::new(nodes, self.loads.clone())));
    }

    /// Whether a refresh is due because a node is in slow start.
    pub fn ramping(&self) -> bool {
        self.cluster.load().ramping()
    }
}

/// A peer under watch.
pub struct WatchedPeer {
    /// All of them.
    pub peers: Arc<Peers>,
    /// The one.
    pub node: NodeIndex,
}

impl WatchedServer for WatchedPeer {
    const KIND: ServerKind = ServerKind::Peer;

    fn server(&self) -> &Arc<Server> {
        self.peers.server(self.node)
    }

    fn check(&self) -> &HealthCheck {
        &self.peers.settings.health
    }

    async fn probe(&self) -> bool {
        let server = self.peers.server(self.node);
        let mut head = UpstreamHead::get(PROBE);
        if let Ok(host) = HeaderValue::from_str(&server.address.to_string()) {
            head.headers.insert(HOST, host);
        }
        server.probe(&self.peers.address_to(server, &head)).await
    }

    /// A probe shows only that a peer is there.
    fn counts_answers(&self) -> bool {
        true
    }

    fn changed(&self, _change: Change) {
        self.peers.refresh(self.peers.clock.now());
        self.peers.metrics.server_up(Self::KIND, self.server());
    }
}

/// The nodes of a cluster before anything is known of their health.
pub fn nodes(peering: &Peering) -> Vec<ClusterNode> {
    let nearest = peering.peers.iter().filter_map(|p| p.rtt).min().unwrap_or_default();
    let distance = |rtt: Option<Duration>| match rtt {
        Some(rtt) if !nearest.is_zero() => rtt.as_secs_f64() / nearest.as_secs_f64(),
        _ => 1.0,
    };
    let node = |peer: &Peer| ClusterNode {
        weight: peer.weight,
        distance: distance(peer.rtt),
        ..ClusterNode::new(&peer.name)
    };
    peering.peers.iter().map(node).collect()
}

/// `host:port`, checked when the configuration was read.
fn split_address(address: &str) -> Address {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Address::Tcp { host: host.to_owned(), port: port.parse().unwrap_or(0) }
}

/// The proof for connections to a node. With mutual TLS none is needed.
pub fn proof(trust: &PeerTrust, node: &str) -> Option<Arc<PeerProof>> {
    match trust {
        PeerTrust::Secret(secret) => Some(Arc::new(PeerProof::new(secret, node))),
        PeerTrust::Mtls { .. } => None,
    }
}

fn wire(trust: &PeerTrust, h2: bool) -> Result<Wire, tls::TlsError> {
    let tls = match trust {
        PeerTrust::Secret(_) => None,
        PeerTrust::Mtls { identity, authority, .. } => {
            Some(tls::peer_client(identity, authority, h2)?)
        }
    };
    Ok(Wire { tls, h2, peer: true, ..Wire::default() })
}
