//! The resource that a request names, and the piece of it that a peer asks for.

use std::{fmt::Display, net::IpAddr, ops::Deref, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Uri, request::Parts};

use levada_access::access::Access;
use levada_failure::Failure;
use levada_fetch::Digest;
use levada_rules::{Destination, MadeAnswer, RequestFacts};
use levada_store::identity::{ResourceUrl, url_of};
use levada_types::Key;
use levada_upstream::Piece;

use levada_redirector::SharedDecider;

use crate::sites::Site;
use levada_config::{
    Handling, Redirects, RoutePlace, RoutedBy,
    identity::{self, Identity},
};

/// The resource that a request is for (RFC 9110 Sec. 3.1), with the identity of its response.
#[derive(Clone)]
pub struct Resource {
    routed: RoutedRequest,
    identity: Identity,
}

/// A request with its site and route, before its fields count.
#[derive(Clone)]
pub struct RoutedRequest {
    /// The site.
    pub site: Arc<Site>,
    /// How it is handled: as its route says, or its site.
    pub(crate) handling: Arc<Handling>,
    /// The route that the request took.
    route: Option<Arc<str>>,
    /// The rules of access of that route, or of the site.
    access: Option<Arc<Access>>,
    /// The answer of that route, if it asks no server.
    pub(crate) answer: Option<Arc<MadeAnswer>>,
    /// The effective request URI (RFC 9110 Sec. 7.1), as the client wrote it.
    pub url: ResourceUrl,
    /// A peer redirected the client to this node: serve the request, whatever the policy decides.
    pub(crate) passed: bool,
    /// The internal redirects that led to the route.
    pub(crate) redirects: Redirects,
    /// The digest that the client requires of the file.
    digest: Option<Digest>,
    /// The requested piece of a file.
    pub(crate) piece: Option<Arc<Piece>>,
}

/// The site and the route are those of the request. Nothing changes them.
impl Deref for Resource {
    type Target = RoutedRequest;

    fn deref(&self) -> &RoutedRequest {
        &self.routed
    }
}

impl RoutedRequest {
    /// The request as the first route of the site says that it matches, or the one that a peer has `told`.
    pub(crate) fn new(
        site: Arc<Site>,
        url: ResourceUrl,
        passed: bool,
        told: Option<&HeaderValue>,
        by: &RoutedBy<'_>,
    ) -> Result<Self, Failure> {
        if site.routes.is_none() {
            return Ok(Self::of_site(site, url, passed, Redirects::default()));
        }
        let place = site.settings.routes.place(by, url, told, &mut |_| {});
        Ok(Self::at(site, place.map_err(|_| Failure::Redirects)?, passed, by))
    }

    /// The same request where it goes on. `site` is that of its host now.
    pub(crate) fn gone_on(
        &self,
        site: &Arc<Site>,
        to: (&Destination, &'static str),
        by: &RoutedBy<'_>,
    ) -> Result<Self, Failure> {
        let routes = &site.settings.routes;
        let number = self.route.as_ref().and_then(|name| routes.named(name.as_bytes()));
        let place = RoutePlace { number, url: self.url.clone(), redirects: self.redirects };
        let place = routes.go_on(by, place, to, &mut |_| {}).map_err(|_| Failure::Redirects)?;
        Ok(Self::at(site.clone(), place, false, by).with_digest(self.digest))
    }

    fn at(of_host: Arc<Site>, place: RoutePlace, passed: bool, by: &RoutedBy<'_>) -> Self {
        let RoutePlace { number, url, redirects } = place;
        let of_site = Self::of_site(of_host, url, passed, redirects);
        let routes = of_site.site.routes.as_ref();
        let Some((number, route)) = number.and_then(|at| Some((at, routes?.at(at)?))) else {
            return of_site;
        };
        let facts = || by.facts(&of_site.url, redirects.internal);
        let answer = route.answer.as_ref().map(|answer| Arc::new(answer.made(&facts())));
        let handling = route.handling.clone();
        let access = of_site.site.access.of_route(number).cloned();
        let site = route.site.clone().unwrap_or_else(|| of_site.site.clone());
        let route = Some(route.name.clone());
        Self { site, handling, route, access, answer, ..of_site }
    }

    fn of_site(site: Arc<Site>, url: ResourceUrl, passed: bool, redirects: Redirects) -> Self {
        let (handling, access) = (site.handling.clone(), site.access.own().cloned());
        let (route, answer, digest, piece) = (None, None, None, None);
        Self { site, handling, route, access, answer, url, passed, redirects, digest, piece }
    }

    /// Where the request goes on, if its file is not there. It may wait for a disk.
    pub fn without_file(&self, client: IpAddr, parts: &Parts) -> Option<Destination> {
        let (files, to) = (self.site.files.as_ref()?, self.handling.without_file()?);
        let facts = self.facts(client, &parts.method, &parts.headers);
        (!files.has_now(&self.handling.file_target(&facts))).then(|| to.clone())
    }

    /// The same for a piece of the file.
    pub(crate) fn for_piece(self, piece: Arc<Piece>) -> Self {
        Self { access: None, passed: false, digest: None, piece: Some(piece), ..self }
    }

    /// The same with a required digest.
    pub(crate) fn with_digest(self, digest: Option<Digest>) -> Self {
        Self { digest, ..self }
    }

    /// A request for it as rules see it.
    pub(crate) fn facts<'a>(
        &'a self,
        client: IpAddr,
        method: &'a Method,
        headers: &'a HeaderMap,
    ) -> RequestFacts<'a> {
        identity::facts(&self.url, client, method, headers)
    }

    /// The resource, whose identity the fields of `parts` take part in: they are those that the origin gets, since
    /// others must not select a response.
    pub fn identified(self, client: IpAddr, parts: &Parts) -> Resource {
        let piece = self.piece.as_ref().map(|piece| &piece.url as &dyn Display);
        let part = piece.or(self.digest.as_ref().map(|digest| digest as &dyn Display));
        let (method, headers) = (&parts.method, &parts.headers);
        let facts = || self.facts(client, method, headers);
        let identity = Identity::of(&self.url, &self.handling, part, headers, facts);
        Resource { routed: self, identity }
    }

    /// The name of the route that the request took.
    pub(crate) fn route(&self) -> Option<&str> {
        self.route.as_deref()
    }

    /// The route for a peer, where the site has any: empty for a request that took none.
    pub(crate) fn told_route(&self) -> Option<HeaderValue> {
        let name = self.route.as_deref().or(self.site.routes.as_ref().map(|_| ""))?;
        HeaderValue::from_bytes(name.as_bytes()).ok()
    }

    /// Whether rules apply to the request, so that this node must serve it.
    pub(crate) fn has_rules(&self) -> bool {
        self.route.is_some() || self.site.routes.is_some() || self.handling.adjustments.is_some()
    }

    /// Whether it has rules of access.
    pub(crate) fn has_access(&self) -> bool {
        self.access.is_some()
    }

    /// The scheme that the client used.
    pub(crate) fn scheme(&self) -> &'static str {
        self.url.scheme()
    }

    /// Host and port as the client named them, in lower case and without the scheme's default port.
    pub fn host(&self) -> &str {
        self.url.host()
    }

    /// Path and query as the client wrote them.
    pub(crate) fn target(&self) -> &str {
        self.url.target()
    }

    /// The digest that the client requires of the file, if any.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.piece.as_ref().map_or(self.digest, |piece| piece.url.digest)
    }

    /// The decider that chooses the node.
    pub(crate) fn decider(&self) -> &SharedDecider {
        let own = self.piece.as_ref().and(self.site.pieces.as_ref());
        own.unwrap_or(&self.site.decider)
    }

    /// The time after which a fetch that others follow is late. A piece may wait long for its turn.
    pub(crate) fn fetch_is_late_after(&self) -> Duration {
        if self.piece.is_some() { Duration::MAX } else { self.site.fetch_is_late_after() }
    }
}

impl Resource {
    /// The text of the identity. No URL has a space, so no client can name a piece.
    pub fn identity(&self) -> &str {
        self.identity.text(&self.routed.url)
    }

    /// The hash of the identity.
    pub fn key(&self) -> Key {
        self.identity.key()
    }

    /// The URL in the identity, which purges name.
    pub(crate) fn stored_url(&self) -> &str {
        url_of(self.identity())
    }

    /// Path and query that the origin is asked with, where they are not the client's.
    pub(crate) fn rewritten(&self) -> Option<&Arc<Uri>> {
        self.identity.rewritten()
    }

    /// Path and query that name a file.
    pub fn file_target(&self) -> &str {
        let rewritten = self.rewritten().and_then(|uri| uri.path_and_query());
        rewritten.map_or(self.target(), |target| target.as_str())
    }

    /// Takes the rules of access, which hold once.
    pub(crate) fn take_access(&mut self) -> Option<Arc<Access>> {
        self.routed.access.take()
    }

    /// The same request with other fields, and perhaps another path and query.
    pub(crate) fn changed(&self, target: Option<&str>, client: IpAddr, parts: &Parts) -> Self {
        let mut routed = self.routed.clone();
        if let Some(target) = target {
            routed.url = ResourceUrl::new(routed.scheme(), routed.host(), target);
        }
        routed.identified(client, parts)
    }

    /// The resource of a piece of this file, for a request with these fields.
    pub fn of_piece(&self, piece: Arc<Piece>, client: IpAddr, parts: &Parts) -> Self {
        self.routed.clone().for_piece(piece).identified(client, parts)
    }
}
