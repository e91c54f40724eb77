//! The nodes that a node works with, and what they agree on.
//!
//! ```text
//! nodes         the cluster as one node sees it, which changes while the node runs
//! purge         stored responses that must not be served any more: rules, the log of orders, the journal
//! orders        purge orders on their way: from clients, operators and peers, to every node
//! events        what happened at a node: the last events, and those that come
//! announce      whether the BGP route to a node is announced, as a backup or not at all; drains
//! awaited       what a node waits for before it serves clients
//! admin_access  who may read and who may order at the admin listener
//! ```

pub mod admin_access;
pub mod announce;
pub mod awaited;
pub mod events;
pub mod nodes;
pub mod orders;
pub mod purge;
