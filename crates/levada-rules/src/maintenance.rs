//! Maintenance: a site or a route that answers all clients alike for a while.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use levada_types::AddressPrefix;

/// A body that a file has, read when the configuration was.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its media type.
    pub content_type: HeaderValue,
    /// Its bytes.
    pub body: Bytes,
}

/// The response in place of all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Maintenance {
    /// Its status.
    pub status: StatusCode,
    /// `Retry-After` in seconds.
    pub retry_after: u64,
    /// Its body; `None`: a short text.
    pub page: Option<Page>,
    /// Clients that are served nevertheless.
    pub allow: Vec<AddressPrefix>,
}

impl Maintenance {
    /// Whether this client gets the response.
    pub fn holds_for(&self, client: IpAddr) -> bool {
        !self.allow.iter().any(|prefix| prefix.contains(client))
    }
}
