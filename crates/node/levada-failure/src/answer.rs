//! The answer to a request that could not be served.

use std::fmt::Write as _;

use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
};
use levada_access::fields::{PIECE, REFUSED, STRANGER};

use crate::{Failed, Failure};

/// The field in which proxies say how they have handled a response (RFC 9209).
pub const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

impl Failed {
    /// The answer of the node with the name `token`, as `Proxy-Status` has it: the reason as text and in that field,
    /// with the identifier of the request.
    pub fn answer(&self, token: &str, id: Option<&HeaderValue>) -> Response<String> {
        let failure = self.failure;
        let mut text = format!("{}: {}\n", failure.status(), failure.as_str());
        if let Some(Ok(id)) = id.map(HeaderValue::to_str) {
            let _ = writeln!(text, "request {id}");
        }
        let mut response = plain(failure.status(), text);
        let headers = response.headers_mut();
        let mut status = format!("{token}; error={}", failure.proxy_error());
        if let Some(next_hop) = &self.next_hop {
            // Names and addresses have no quotes: they were checked when the configuration was read.
            let _ = write!(status, "; next-hop=\"{next_hop}\"");
        }
        if let Ok(value) = HeaderValue::try_from(status) {
            headers.insert(PROXY_STATUS, value);
        }
        if let Failure::Handshake(fault) = failure {
            fault.add_to(headers);
        }
        if let Some(seconds) = failure.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some((field, value)) = failure.for_peers() {
            headers.insert(field, HeaderValue::from_static(value));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.extensions_mut().insert(failure);
        response
    }
}

impl Failure {
    /// The field by which a peer learns that this node cannot serve, or that it should not try again.
    fn for_peers(self) -> Option<(HeaderName, &'static str)> {
        match self {
            Self::Overload => Some((REFUSED, "full")),
            Self::Starting => Some((REFUSED, "starting")),
            Self::NoPeer => Some((REFUSED, STRANGER)),
            Self::Changed => Some((PIECE, "changed")),
            Self::NoPieces => Some((PIECE, "none")),
            _ => None,
        }
    }
}

/// A response with a short text, or with none.
pub fn plain(status: StatusCode, text: String) -> Response<String> {
    const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
    let content_type = (!text.is_empty()).then_some(PLAIN);
    fixed(status, content_type, text)
}

/// A response with a text of this media type.
pub fn fixed(
    status: StatusCode,
    content_type: Option<HeaderValue>,
    text: String,
) -> Response<String> {
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.extend(content_type.map(|own| (CONTENT_TYPE, own)));
    headers.insert(CONTENT_LENGTH, length);
    response
}
