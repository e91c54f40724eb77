//! Errors that keep a node from being built.

use std::io;

use levada_cluster::nodes::PeersError;
use levada_net::bpf::BpfError;
use levada_policy::BuildError;
use levada_store::disk::DiskError;

/// Why a node cannot be built from its settings.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
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
    /// The disk cache could never be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No connections can be taken over.
    #[error("connections cannot be taken over: {0}")]
    Handoff(BpfError),
    /// The access log cannot be opened.
    #[error("the access log cannot be opened: {0}; check the path and its permissions")]
    Log(io::Error),
}
