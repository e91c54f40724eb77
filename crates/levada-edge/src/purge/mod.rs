//! Purge orders at this node: received from clients, operators and peers, and sent to peers. The crate
//! `levada-purge` has the rest.

pub(crate) mod broadcast;
pub(crate) mod endpoint;
