//! Purging: orders from clients, operators and peers, and the log that all nodes of the cluster share.

mod catch_up;
pub(crate) mod endpoint;
pub(crate) mod exchange;
pub(crate) mod invalidation;
pub(crate) mod wake;
