//! Errors that keep a node from starting.

use std::io;

use levada_cluster::nodes::PeersError;
use levada_config::UnusableSettings;
use levada_edge::node_error::NodeError;
use levada_http3::NoInitialCipherSuite;
use levada_tls::pem::TlsError;

use crate::upgrade::{NoSuchUser, PredecessorGone, SocketError};

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] SocketError),
    /// The process that is to be replaced cannot be understood.
    #[error(transparent)]
    Predecessor(#[from] PredecessorGone),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The TLS settings of a listener exclude HTTP/3.
    #[error("HTTP/3 at {address} needs TLS 1.3 with AES-128: {why}")]
    Http3 {
        /// The listener's address.
        address: std::net::SocketAddr,
        /// The reason.
        why: NoInitialCipherSuite,
    },
    /// The settings have no name server.
    #[error("there is no [dns]: docs/operate/dns.md says how a name server is set up")]
    NoDns,
    /// The nodes of the cluster cannot be used.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The node cannot be built.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// No node could serve by the settings.
    #[error(transparent)]
    Settings(#[from] UnusableSettings),
    /// The node cannot become the user that it is to run as.
    #[error(transparent)]
    User(#[from] NoSuchUser),
    /// The system refuses threads or timers.
    #[error("the runtime cannot start: {0}")]
    Runtime(io::Error),
}
