//! The cluster as the configuration states it.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use levada_tls::{pem::Certificate, secret::Secrets};
use levada_upstream::HealthCheck;

/// The cluster: every node decides by itself which node serves a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Peering {
    /// The listener for peers only.
    pub listen: SocketAddr,
    /// How peers authenticate each other.
    pub trust: PeerTrust,
    /// Whether peers speak HTTP/2 with each other (one connection) instead of HTTP/1.1 (a pool).
    pub h2: bool,
    /// All nodes, this one included; with a source, those in addition to the ones that it names.
    pub peers: Vec<Peer>,
    /// The name of the source of further nodes.
    pub discovery: Option<Arc<str>>,
    /// Health checks of peers.
    pub health: HealthCheck,
    /// How long a peer that came up takes to reach its full share; zero: at once.
    pub slow_start: Duration,
    /// How long a node that starts tries to reach a peer, to learn what was purged while it was away.
    pub catch_up: Duration,
}

impl Peering {
    /// The region of a node; empty if it is not listed.
    pub fn region_of(&self, name: &str) -> Arc<str> {
        let peer = self.peers.iter().find(|peer| peer.name == name);
        peer.map(|peer| peer.region.clone()).unwrap_or_default()
    }
}

impl PeerTrust {
    /// The secrets that all nodes know.
    pub fn secrets(&self) -> Option<&Secrets> {
        match self {
            Self::Secret(secrets) => Some(secrets),
            Self::Mtls { secrets, .. } => secrets.as_ref(),
        }
    }

    /// The secret that proofs for connections come from. With mutual TLS none is needed.
    pub fn proving(&self) -> Option<&Secrets> {
        match self {
            Self::Secret(secrets) => Some(secrets),
            Self::Mtls { .. } => None,
        }
    }
}

/// How peers authenticate each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerTrust {
    /// All peers know these secrets (at least 16 bytes each).
    Secret(Secrets),
    /// Both sides present certificates of one authority; a secret still signs redirects.
    Mtls {
        /// This node's certificate.
        identity: Certificate,
        /// The authority, PEM.
        authority: PathBuf,
        /// Signs 307 redirects; needed for `delivery = "redirect"` only.
        secrets: Option<Secrets>,
    },
}

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its name, equal to `name` in its own configuration.
    pub name: String,
    /// Its peer listener, as host:port.
    pub address: String,
    /// The address that a source has found for it.
    pub at: Option<SocketAddr>,
    /// Relative capacity.
    pub weight: f64,
    /// Round-trip time from this node, in place of the one that is measured.
    pub rtt: Option<Duration>,
    /// Its URL for clients, such as `https://b.cdn.example`: the target of a 307.
    pub client_url: Option<String>,
    /// Its region; empty where there are none.
    pub region: Arc<str>,
    /// Its addresses for clients.
    pub public: Vec<IpAddr>,
}
