//! The cluster as one node sees it.
//!
//! ```text
//! peers     its nodes with their servers, health and loads, and how they recognise each other
//! log       the known part of a peer's purge log
//! ```
//!
//! The crate does not know sites or requests of clients: a node decides with the [`Cluster`] that it shows, and
//! sends requests to its servers by `levada-upstream`.
//!
//! [`Cluster`]: levada_policy::Cluster

mod log;
mod peers;

pub use log::PeerLog;
pub use peers::{PROBE, Peers, WatchedPeer, nodes, proof};
