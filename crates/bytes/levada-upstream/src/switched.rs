//! Responses that switch to WebSocket: the way to a server that can, the check of its word, and the connection
//! that is left.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderName, Response, StatusCode,
    header::{SEC_WEBSOCKET_ACCEPT, UPGRADE},
};
use levada_http::{Io, names_websocket};

use crate::{ResponseGuard, ServerFailure, UpstreamHead, Wire};

/// A server's end of a tunnel.
pub struct ServerEnd {
    /// The stream.
    pub io: Io,
    /// Bytes that came after the head of the response.
    pub ahead: Bytes,
    /// Counts the tunnel at its server.
    pub hold: TunnelHold,
}

/// Counts a tunnel at its server, as the policy sees it. Dropped without [`end`](Self::end), the tunnel broke off.
pub struct TunnelHold(Option<Box<dyn ResponseGuard>>);

impl TunnelHold {
    pub(crate) fn new(guard: Option<Box<dyn ResponseGuard>>) -> Self {
        Self(guard)
    }

    /// The tunnel has ended in order.
    pub fn end(self) {
        if let Some(guard) = self.0 {
            guard.complete();
        }
    }
}

/// The way to a server on which WebSocket can begin: HTTP/1.1.
pub(crate) fn way(
    wire: &Wire,
    tls: Option<Arc<rustls::ClientConfig>>,
) -> (Wire, Option<Arc<rustls::ClientConfig>>) {
    let over_http1 = |tls: Arc<rustls::ClientConfig>| {
        let mut own = rustls::ClientConfig::clone(&tls);
        own.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(own)
    };
    (Wire { h2: false, ..wire.clone() }, tls.map(over_http1))
}

/// Whether a response that switches to another protocol switches to the one that was asked for, and has
/// understood the request (RFC 6455 Sec. 4.1).
pub(crate) fn check(head: &UpstreamHead, response: &Response<()>) -> Result<(), ServerFailure> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(());
    }
    let one = |name: HeaderName| {
        let mut values = response.headers().get_all(name).iter();
        values.next().filter(|_| values.next().is_none())
    };
    let switches = one(UPGRADE).is_some_and(|value| names_websocket(value.as_bytes()));
    let accepts = head.websocket.is_some() && one(SEC_WEBSOCKET_ACCEPT) == head.websocket.as_ref();
    if switches && accepts { Ok(()) } else { Err(ServerFailure::BadHandshake) }
}
