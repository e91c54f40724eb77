//! A member: one server or node, as a source names it.

use std::{net::SocketAddr, sync::Arc};

/// A server or a node that a source has named.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name, which no other member of the source has. Policies hash by it, so it must not change while the
    /// member stays.
    pub name: Arc<str>,
    /// Its address.
    pub address: SocketAddr,
    /// Its capacity, relative to the other members.
    pub weight: f64,
    /// Members of a higher number get requests only while none of a lower number is up (RFC 2782).
    pub priority: u16,
    /// The name by which its certificate is checked; `None`: its address.
    pub host: Option<Arc<str>>,
    /// The region of a node; `None`: that of the node that asks the source.
    pub region: Option<Arc<str>>,
}

impl Member {
    /// A member of weight 1.
    pub fn new(name: impl Into<Arc<str>>, address: SocketAddr) -> Self {
        Self { name: name.into(), address, weight: 1.0, priority: 0, host: None, region: None }
    }
}
