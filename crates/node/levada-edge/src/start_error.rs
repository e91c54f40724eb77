//! Errors that keep a node from starting.

use std::io;

use levada_cluster::nodes::PeersError;
use levada_config::UnusableSettings;
use levada_control::upgrade::{NoSuchUser, PredecessorGone, SocketError};
use levada_http::http3::NoInitialCipherSuite;
use levada_net::bpf::BpfError;
use levada_policy::BuildError;

use levada_store::disk::DiskError;

use levada_tls::pem::TlsError;

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
    /// The list of peers cannot be used.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// A policy cannot be built.
    #[error("site {site}: {why}")]
    Policy {
        /// The site's first host.
        site: String,
        /// The reason.
        why: BuildError,
    },
    /// No node could serve by the settings.
    #[error(transparent)]
    Settings(#[from] UnusableSettings),
    /// The disk cache could never be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No connections can be taken over.
    #[error("connections cannot be taken over: {0}")]
    Handoff(BpfError),
    /// The access log cannot be opened.
    #[error("the access log cannot be opened: {0}; check the path and its permissions")]
    Log(io::Error),
    /// The node cannot become the user that it is to run as.
    #[error(transparent)]
    User(#[from] NoSuchUser),
    /// The system refuses threads or timers.
    #[error("the runtime cannot start: {0}")]
    Runtime(io::Error),
}
