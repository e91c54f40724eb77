//! Finds the site and the route of a request, and whether the request is allowed at all.

use std::{net::IpAddr, sync::Arc};

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Method, Request, request::Parts};
use levada_access::fields::{DIGEST, FORWARDED_PROTO, PIECE, ROUTE};
use levada_access::{
    cdn_loop::times_passed,
    pass::{self, Pass},
};
use levada_cluster::events::unix_time;
use levada_fetch::Digest;
use levada_http::authority;
use levada_rules::{Destination, encodes_controls};
use levada_store::identity::{ResourceUrl, without_port};
use levada_tls::secret::Secrets;
use levada_upstream::Piece;

use crate::{
    client_connection::ListenerKind,
    resource::RoutedRequest,
    sites::{Site, Sites},
};
use levada_config::{RoutedBy, Settings};
use levada_failure::Failure;

/// Finds the sites and routes of requests.
#[derive(Clone)]
pub struct Identifier {
    sites: Arc<ArcSwap<Sites>>,
    max_hops: usize,
    /// The name of this node, to which other nodes redirect clients.
    node: String,
    /// The secrets by which these redirects may be signed.
    secrets: Option<Secrets>,
}

impl Identifier {
    pub(crate) fn new(settings: &Settings, sites: &Arc<ArcSwap<Sites>>) -> Self {
        Self {
            sites: sites.clone(),
            max_hops: settings.limits.max_hops,
            node: settings.name.clone(),
            secrets: settings.peering.as_ref().and_then(|peering| peering.trust.secrets().cloned()),
        }
    }

    /// The same with other settings, for the same sites.
    pub(crate) fn changed(&self, settings: &Settings) -> Self {
        Self::new(settings, &self.sites)
    }

    /// Reads the request's host, and finds its site and route.
    pub fn identify<B>(
        &self,
        listener: ListenerKind,
        client: IpAddr,
        request: &Request<B>,
    ) -> Result<RoutedRequest, Failure> {
        Failure::of_head(request.method(), request.headers()).map_or(Ok(()), Err)?;
        if times_passed(request.headers()) > self.max_hops {
            return Err(Failure::Loop);
        }
        let authority = authority(request).ok_or(Failure::BadHost)?;
        let target = request.uri().path_and_query().map_or("/", |t| t.as_str());
        let target = if target == "*" { "/" } else { target };
        let wanted = request.headers().get(PIECE).filter(|_| listener == ListenerKind::Peer);
        if let Some(wanted) = wanted {
            let (file, piece) = Piece::split(target, wanted).ok_or(Failure::BadPiece)?;
            let file = self.route(listener, client, request, (authority, file, false))?;
            return Ok(file.for_piece(piece));
        }
        let routed = match self.redirected_here(listener, client, request, target) {
            Some(routed) => routed,
            None => self.route(listener, client, request, (authority, target, false))?,
        };
        let digest = wanted_digest(&routed.site, request)?;
        Ok(routed.with_digest(digest))
    }

    fn route<B>(
        &self,
        listener: ListenerKind,
        client: IpAddr,
        request: &Request<B>,
        (host, target, passed): (&str, &str, bool),
    ) -> Result<RoutedRequest, Failure> {
        let url = ResourceUrl::new(scheme(listener, request.headers()), host, target);
        let sites = self.sites.load();
        let site = sites.find(without_port(url.host())).ok_or(Failure::UnknownHost)?.clone();
        if !site.settings.encoded_controls && encodes_controls(target) {
            return Err(Failure::EncodedControl);
        }
        let is_peer = listener == ListenerKind::Peer;
        let told = if is_peer { request.headers().get(ROUTE) } else { None };
        let by = RoutedBy { client, method: request.method(), headers: request.headers() };
        RoutedRequest::new(site, url, passed, told, &by)
    }

    /// The request where it goes on within its site.
    pub fn again(
        &self,
        from: &RoutedRequest,
        client: IpAddr,
        parts: &Parts,
        to: (&Destination, &'static str),
    ) -> Result<RoutedRequest, Failure> {
        let sites = self.sites.load();
        let site = sites.find(without_port(from.host())).ok_or(Failure::UnknownHost)?;
        let by = RoutedBy { client, method: &parts.method, headers: &parts.headers };
        from.gone_on(site, to, &by)
    }

    /// A request whose client another node has sent here, for the route that it took there.
    fn redirected_here<B>(
        &self,
        listener: ListenerKind,
        client: IpAddr,
        request: &Request<B>,
        target: &str,
    ) -> Option<RoutedRequest> {
        if listener == ListenerKind::Peer || !target.contains(pass::ARGUMENT) {
            return None;
        }
        let (secrets, pass) = (self.secrets.as_ref()?, Pass::read(target)?);
        let in_time = pass.is_in_time(unix_time() as u64);
        let named = (pass.host, pass.target, in_time);
        let routed = self.route(listener, client, request, named).ok()?;
        pass.is_for(secrets, &self.node, routed.route()).then_some(routed)
    }
}

/// The digest that the client requires of the file, if the site serves large files.
fn wanted_digest<B>(site: &Site, request: &Request<B>) -> Result<Option<Digest>, Failure> {
    let reads = *request.method() == Method::GET || *request.method() == Method::HEAD;
    let digest =
        site.serves_large_files().filter(|_| reads).and_then(|_| request.headers().get(DIGEST));
    let Some(value) = digest else { return Ok(None) };
    value.to_str().ok().and_then(Digest::parse).map(Some).ok_or(Failure::BadDigest)
}

/// The scheme that the client used, by the word of a peer or a trusted proxy, or by the listener. The trust
/// boundary has removed the word of others.
fn scheme(listener: ListenerKind, headers: &HeaderMap) -> &'static str {
    match headers.get(FORWARDED_PROTO).map(HeaderValue::as_bytes) {
        Some(b"https") => "https",
        Some(b"http") => "http",
        _ if listener == (ListenerKind::Client { tls: true }) => "https",
        _ => "http",
    }
}
