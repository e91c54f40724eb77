//! Who is asked for what: the site, the object's identity, and whether the request may pass at all.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use levada_fetch::Digest;
use levada_types::Key;
use std::sync::Arc;

use crate::{
    connection::Door,
    failure::Failure,
    guard::names_host,
    large::{self, Piece},
    node::Node,
    peers::pass,
    redirect::SharedDecider,
    sites::Site,
};

/// RFC 8586.
pub(crate) const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
/// This CDN in `CDN-Loop`.
pub(crate) const CDN_ID: &str = "levada";
pub(crate) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// A request that has been understood.
#[derive(Clone)]
pub(crate) struct Resource {
    pub(crate) site: Arc<Site>,
    pub(crate) scheme: &'static str,
    /// The effective request URI (RFC 9110 Sec. 7.1): the cache key's text. Before it, and a space, what
    /// else tells objects apart: the piece of a file, or the digest that a client wants. No URI has a
    /// space, so that no client can name a piece.
    pub(crate) identity: String,
    /// Where in `identity` the host begins.
    host_at: usize,
    /// Where in `identity` the path begins.
    path_at: usize,
    pub(crate) key: Key,
    /// A redirect of a peer brought the client here: serve it, whatever the policy says.
    pub(crate) passed: bool,
    /// The digest that the file is to have.
    digest: Option<Digest>,
    /// The piece of a file that is asked for.
    pub(crate) piece: Option<Arc<Piece>>,
}

impl Resource {
    /// Host and port as the client named them, in lower case and without the scheme's own port.
    pub(crate) fn host(&self) -> &str {
        &self.identity[self.host_at..self.path_at]
    }

    /// Path and query.
    pub(crate) fn target(&self) -> &str {
        &self.identity[self.path_at..]
    }

    /// The digest that the file is to have, where the client named one.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Who decides which node serves it.
    pub(crate) fn decider(&self) -> &SharedDecider {
        let own = self.piece.as_ref().and(self.site.pieces.as_ref());
        own.unwrap_or(&self.site.decider)
    }

    /// The same for a piece of it.
    pub(crate) fn of_piece(&self, piece: Arc<Piece>) -> Self {
        let url_at = self.host_at - self.scheme.len() - 3;
        let prefix = format!("{} ", piece.url);
        let host_at = prefix.len() + self.scheme.len() + 3;
        let identity = prefix + &self.identity[url_at..];
        Self {
            site: self.site.clone(),
            scheme: self.scheme,
            key: Key::of(identity.as_bytes()),
            host_at,
            path_at: host_at + (self.path_at - self.host_at),
            identity,
            passed: false,
            digest: piece.url.digest,
            piece: Some(piece),
        }
    }

    /// The same as the client wants it, by its digest.
    fn wanted_by(self, digest: Digest) -> Self {
        let prefix = format!("{digest} ");
        let (host_at, path_at) = (self.host_at + prefix.len(), self.path_at + prefix.len());
        let identity = prefix + &self.identity;
        let (key, digest) = (Key::of(identity.as_bytes()), Some(digest));
        Self { key, identity, host_at, path_at, digest, ..self }
    }
}

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
    if door == Door::Peer && large::is_piece(request.headers()) {
        let (file, piece) = Piece::split(target).ok_or(Failure::BadPiece)?;
        return Ok(name(node, door, request, authority, file, false)?.of_piece(piece));
    }
    let resource = match redirected_here(node, door, target) {
        Some(pass) => name(node, door, request, &pass.host, &pass.target, pass.in_time)?,
        None => name(node, door, request, authority, target, false)?,
    };
    match large::wanted_digest(&resource.site, request)? {
        Some(digest) => Ok(resource.wanted_by(digest)),
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
    let key = Key::of(identity.as_bytes());
    Ok(Resource {
        site,
        scheme,
        identity,
        host_at,
        path_at,
        key,
        passed,
        digest: None,
        piece: None,
    })
}

/// The identity of the URL of an `explain`: the same text that a request for it would get.
pub(crate) fn identity_of(uri: &Uri) -> Option<(String, String)> {
    let host = uri.authority()?.as_str().to_ascii_lowercase();
    let scheme = uri.scheme_str().unwrap_or("http");
    let host = without_default_port(scheme, &host).to_owned();
    let target = uri.path_and_query().map_or("/", |t| t.as_str());
    Some((format!("{scheme}://{host}{target}"), host))
}

/// With the scheme's own port or without it, it is the same URI (RFC 9110 Sec. 4.2.3).
fn without_default_port<'a>(scheme: &str, host: &'a str) -> &'a str {
    let default = if scheme == "https" { ":443" } else { ":80" };
    host.strip_suffix(default).unwrap_or(host)
}

pub(crate) fn without_port(host: &str) -> &str {
    match memchr::memrchr2(b':', b']', host.as_bytes()) {
        Some(at) if host.as_bytes()[at] == b':' => &host[..at],
        _ => host,
    }
}

/// CONNECT and TRACE have no business with a cache that faces the public.
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

/// Counts this CDN's entries in `CDN-Loop` (RFC 8586 Sec. 2). Peers share one identifier and pass
/// requests to each other once, so some are right and too many are a loop.
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

    #[test]
    fn default_port_makes_no_other_uri() {
        let identity = |url: &str| identity_of(&url.parse().unwrap()).unwrap().0;
        assert_eq!(identity("http://A.test:80/x"), identity("http://a.test/x"));
        assert_eq!(identity("https://a.test:443/x"), "https://a.test/x");
        assert_ne!(identity("https://a.test:80/x"), identity("https://a.test/x"));
    }

    #[test]
    fn ports_are_cut_off_hosts_but_not_off_addresses() {
        assert_eq!(without_port("a.example:80"), "a.example");
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
    }
}
