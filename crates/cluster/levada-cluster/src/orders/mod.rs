//! Purge orders on their way: from clients, operators and peers, to every node of the cluster.
//!
//! [`PurgeEndpoint`] receives orders, carries them out at this node, and tells the peers. Nodes compare their
//! logs of orders with every health probe, so that an order reaches a node that was away.

mod access;
mod catch_up;
mod endpoint;
mod exchange;
mod invalidation;
mod place;
mod wake;

pub use access::{PurgeAccess, PurgeGrant};
pub use endpoint::{METHOD, ORDERS, PurgeEndpoint};
pub use exchange::ComparedPeer;
pub use invalidation::{Invalidated, MissedInvalidations, groups};
pub use place::{OrderPlace, OrderWay, OrdersHere, OrdersWait, serve};
pub use wake::LastAwake;
