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

/// The place of a page for the identifier of a request.
const ID: &[u8] = b"{request_id}";

impl Page {
    /// The page for the request with this identifier, if it has a place for it. Identifiers with characters that mean
    /// something in HTML are not shown.
    pub fn naming(&self, id: &HeaderValue) -> Option<Self> {
        let at = memmem(&self.body)?;
        let is_plain = !id.as_bytes().iter().any(|byte| b"<>&\"'".contains(byte));
        let shown = if is_plain { id.as_bytes() } else { b"-" };
        let (mut body, mut rest) = (self.body[..at].to_vec(), &self.body[at..]);
        while let Some(at) = memmem(rest) {
            body.extend_from_slice(&rest[..at]);
            body.extend_from_slice(shown);
            rest = &rest[at + ID.len()..];
        }
        body.extend_from_slice(rest);
        Some(Self { content_type: self.content_type.clone(), body: body.into() })
    }
}

fn memmem(text: &[u8]) -> Option<usize> {
    text.windows(ID.len()).position(|part| part == ID)
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
