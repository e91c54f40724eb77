//! Who may do what at a node, and how much of it.
//!
//! ```text
//! admin_access     the admin listener: its names, and the token of orders
//! client_network   the client that a request counts for
//! client_shares    a bounded number of places that clients share
//! pace             a rate of bytes that many bodies share
//! tls              certificates, and the secrets of peers
//! trust            which connections may state for whom they speak
//! ```

pub mod admin_access;
pub mod client_network;
pub mod client_shares;
pub mod pace;
pub mod tls;
pub mod trust;
