//! The authority that a request names.

use http::{HeaderValue, Request, Version, header::HOST};

use crate::names_host;

/// The host of requests of HTTP/1.0 that name none, at every node: only a site of all hosts has it, since no
/// name below `invalid` exists (RFC 6761 Sec. 6.4).
pub const NO_HOST: &str = "no-host.invalid";

/// The authority of an absolute-form or HTTP/2 request, else the one `Host` (RFC 9112 Sec. 3.2). `None` where that is
/// wrong.
pub fn authority<B>(request: &Request<B>) -> Option<&str> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.as_str());
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) if names_host(host.as_bytes()) => Some(host),
        (None, None) if request.version() == Version::HTTP_10 => Some(NO_HOST),
        _ => None,
    }
}
