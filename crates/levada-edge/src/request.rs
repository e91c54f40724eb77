//! What is known of a request while it is answered.

use std::sync::Arc;

use http::request::Parts;
use hyper::body::Incoming;
use levada_cache::RequestCacheFields;
use levada_http1::ZeroCopyQueue;

use crate::{client_connection::ClientConnection, resource::Resource};

/// A request that has been admitted, on its way down `pipeline.rs`.
pub(crate) struct RequestContext {
    pub(crate) connection: Arc<ClientConnection>,
    pub(crate) resource: Resource,
    /// What it asks of a cache.
    pub(crate) wants: RequestCacheFields,
    pub(crate) parts: Parts,
    /// `None` when there is none.
    pub(crate) body: Option<Incoming>,
    /// Whether the head of a large file is enough, without its body.
    pub(crate) head_is_enough: bool,
    /// Whether what is stored is known to be wrong, so that the origin is not to be asked whether it still holds.
    pub(crate) anew: bool,
    /// Where bodies go that the system is to send, if what answers this request goes straight to its client.
    /// Whoever reads the answer here must have the bytes.
    pub(crate) zero_copy: Option<Arc<ZeroCopyQueue>>,
}
