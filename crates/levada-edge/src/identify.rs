//! Identifies a request's resource: the site, the object's identity, and whether the request is allowed
//! at all.

use http::{HeaderMap, HeaderValue, Method, Request, header};
use levada_fetch::Digest;
use levada_http1::names_host;
use levada_store::identity::{without_default_port, without_port};

use crate::{
    client_connection::Door,
    failure::Failure,
    fields::{CDN_ID, CDN_LOOP, DIGEST, FORWARDED_PROTO, PIECE},
    node::Node,
    peers::pass,
    resource::{Piece, Resource},
    sites::Site,
};

/// Reads the request's host, finds its site and names the object.
pub(crate) fn identify<B>(
    node: &Node,
    door: Door,
    request: &Request<B>,
) -> Result<Resource, Failure> {
    check_method(request.method())?;
    check_expectation(request.headers())?;
    check_loop(request.headers(), node.settings.limits.max_hops)?;
    let authority = authority(request)?;
    let target = request.uri().path_and_query().map_or("/", |t| t.as_str());
    let target = if target == "*" { "/" } else { target };
    if door == Door::Peer && request.headers().contains_key(PIECE) {
        let (file, piece) = Piece::split(target).ok_or(Failure::BadPiece)?;
        return Ok(name(node, door, request, authority, file, false)?.of_piece(piece));
    }
    let resource = match redirected_here(node, door, target) {
        Some(pass) => name(node, door, request, &pass.host, &pass.target, pass.in_time)?,
        None => name(node, door, request, authority, target, false)?,
    };
    match wanted_digest(&resource.site, request)? {
        Some(digest) => Ok(resource.with_digest(digest)),
        None => Ok(resource),
    }
}

fn name<B>(
    node: &Node,
    door: Door,
    request: &Request<B>,
    host: &str,
    target: &str,
    passed: bool,
) -> Result<Resource, Failure> {
    let scheme = scheme(door, request.headers());
    let mut identity = String::with_capacity(scheme.len() + 3 + host.len() + target.len());
    identity.push_str(scheme);
    identity.push_str("://");
    let host_at = identity.len();
    identity.push_str(host);
    identity[host_at..].make_ascii_lowercase();
    let host = &identity[host_at..];
    let site = node.sites.load().find(without_port(host)).ok_or(Failure::UnknownHost)?.clone();
    let path_at = host_at + without_default_port(scheme, host).len();
    identity.truncate(path_at);
    identity.push_str(target);
    Ok(Resource::new(site, scheme, identity, host_at, path_at, passed))
}

/// The digest that the client requires of the file, if the site serves large files.
fn wanted_digest<B>(site: &Site, request: &Request<B>) -> Result<Option<Digest>, Failure> {
    let reads = *request.method() == Method::GET || *request.method() == Method::HEAD;
    let digest =
        site.serves_large_files().filter(|_| reads).and_then(|_| request.headers().get(DIGEST));
    let Some(value) = digest else { return Ok(None) };
    value.to_str().ok().and_then(Digest::parse).map(Some).ok_or(Failure::BadDigest)
}

/// A public cache refuses CONNECT and TRACE.
fn check_method(method: &Method) -> Result<(), Failure> {
    match *method {
        Method::CONNECT | Method::TRACE => Err(Failure::Method),
        _ => Ok(()),
    }
}

fn check_expectation(headers: &HeaderMap) -> Result<(), Failure> {
    match headers.get(header::EXPECT) {
        Some(value) if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
            Err(Failure::Expectation)
        }
        _ => Ok(()),
    }
}

/// Counts this CDN's entries in `CDN-Loop` (RFC 8586 Sec. 2). All peers use one identifier and pass a
/// request on once, so a few entries are normal and many are a loop.
fn check_loop(headers: &HeaderMap, bound: usize) -> Result<(), Failure> {
    let hops = headers
        .get_all(CDN_LOOP)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .filter(|entry| {
            let id = entry.split(|b| *b == b';').next().unwrap_or_default();
            id.trim_ascii().eq_ignore_ascii_case(CDN_ID.as_bytes())
        })
        .count();
    if hops > bound { Err(Failure::Loop) } else { Ok(()) }
}

/// The authority of an absolute-form or HTTP/2 request, else the one `Host` (RFC 9112 Sec. 3.2).
fn authority<B>(request: &Request<B>) -> Result<&str, Failure> {
    if let Some(authority) = request.uri().authority() {
        return Ok(authority.as_str());
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) if names_host(host.as_bytes()) => Ok(host),
        _ => Err(Failure::BadHost),
    }
}

fn scheme(door: Door, headers: &HeaderMap) -> &'static str {
    match door {
        Door::Client { tls: true } => "https",
        Door::Client { tls: false } => "http",
        Door::Peer => match headers.get(FORWARDED_PROTO).map(HeaderValue::as_bytes) {
            Some(b"https") => "https",
            _ => "http",
        },
    }
}

fn redirected_here(node: &Node, door: Door, target: &str) -> Option<pass::Pass> {
    if matches!(door, Door::Peer) || !target.contains(pass::ARGUMENT) {
        return None;
    }
    let secret = node.peers.as_ref()?.secret()?;
    pass::check(secret, &node.settings.name, target, node.unix_time())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_passes_are_a_loop() {
        let mut headers = HeaderMap::new();
        headers.append(CDN_LOOP, HeaderValue::from_static("levada, other;x=levada, Levada;v=1"));
        assert_eq!(check_loop(&headers, 2), Ok(()));
        headers.append(CDN_LOOP, HeaderValue::from_static("levada"));
        assert_eq!(check_loop(&headers, 2), Err(Failure::Loop));
    }
}
