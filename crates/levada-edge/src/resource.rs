//! The resource that a request names, and the piece of it that a peer asks for.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, Request, Uri, request::Parts};

use levada_access::access::Access;
use levada_fetch::{ChunkUrl, Digest};
use levada_rules::{RequestFacts, Scheme};
use levada_types::Key;
use levada_upstream::WaitNotices;

use levada_redirector::SharedDecider;

use crate::{
    routes::{Answer, Routes},
    settings::Handling,
    sites::Site,
};

/// The resource that a request is for (RFC 9110 Sec. 3.1): its site, its identity, and what a policy
/// decides about.
#[derive(Clone)]
pub(crate) struct Resource {
    pub(crate) site: Arc<Site>,
    /// How it is handled: as its route says, or its site.
    pub(crate) handling: Arc<Handling>,
    /// The route that the request took.
    route: Option<Arc<str>>,
    /// The rules of access of that route, or of the site.
    pub(crate) access: Option<Arc<Access>>,
    /// The answer of that route, if it asks no server.
    pub(crate) answer: Option<Answer>,
    pub(crate) scheme: &'static str,
    /// The effective request URI (RFC 9110 Sec. 7.1): the text of the cache key. A prefix and a space
    /// precede it for the piece of a file, or for the digest that a client requires. No URI has a
    /// space, so no client can name a piece.
    pub(crate) identity: String,
    /// The position of the host in `identity`.
    host_at: usize,
    /// The position of the path in `identity`.
    path_at: usize,
    /// Path and query as the client wrote them, where the identity has other ones.
    asked: Option<Box<str>>,
    /// Path and query that the origin is asked with, where they are other ones.
    pub(crate) rewritten: Option<Arc<Uri>>,
    pub(crate) key: Key,
    /// A peer redirected the client to this node: serve the request, whatever the policy decides.
    pub(crate) passed: bool,
    /// The digest that the client requires of the file.
    digest: Option<Digest>,
    /// The requested piece of a file.
    pub(crate) piece: Option<Arc<Piece>>,
}

impl Resource {
    /// A resource by its effective URI, with the positions of its host and path.
    pub(crate) fn new(
        site: Arc<Site>,
        scheme: &'static str,
        identity: String,
        host_at: usize,
        path_at: usize,
        passed: bool,
    ) -> Self {
        let key = Key::of(identity.as_bytes());
        let (handling, access) = (site.handling.clone(), site.access.own().cloned());
        Self {
            site,
            handling,
            route: None,
            access,
            answer: None,
            scheme,
            identity,
            host_at,
            path_at,
            asked: None,
            rewritten: None,
            key,
            passed,
            digest: None,
            piece: None,
        }
    }

    /// The resource as the first route says that the request matches.
    pub(crate) fn routed<B>(self, routes: &Routes, client: IpAddr, request: &Request<B>) -> Self {
        let facts = self.facts(client, request.method(), request.headers());
        let Some((number, route, answer)) = routes.find(&facts) else { return self };
        let handling = route.handling.clone();
        let access = self.site.access.of_route(number).cloned();
        let site = route.site.clone().unwrap_or_else(|| self.site.clone());
        Self { site, handling, route: Some(route.name.clone()), access, answer, ..self }
    }

    /// A request for it as rules see it.
    pub(crate) fn facts<'a>(
        &'a self,
        client: IpAddr,
        method: &'a Method,
        headers: &'a HeaderMap,
    ) -> RequestFacts<'a> {
        let scheme = if self.scheme == "https" { Scheme::Https } else { Scheme::Http };
        RequestFacts::new(client, (scheme, self.host()), (method, self.target()), headers)
    }

    /// The resource under the key that the rules of its handling make. `parts` have the fields that the
    /// origin gets: others must not select a response.
    pub(crate) fn keyed(mut self, client: IpAddr, parts: &Parts) -> Self {
        let Handling { caching, adjustments, .. } = &*self.handling;
        if caching.is_none() && adjustments.is_none() {
            return self;
        }
        self.asked = Some(self.identity[self.path_at..].into());
        self.rewrite(client, &parts.method, &parts.headers);
        if let Some(rules) = &self.handling.caching {
            let before = self.path_at;
            let facts = || self.facts(client, &parts.method, &parts.headers);
            (self.identity, self.path_at) =
                rules.keyed(&self.identity, before, &parts.headers, facts);
            self.host_at += self.path_at - before;
        }
        self.key = Key::of(self.identity.as_bytes());
        self
    }

    /// Makes the key anew, for header fields that have changed.
    pub(crate) fn rekey(&mut self, client: IpAddr, parts: &Parts) {
        let Some(rules) = &self.handling.caching else { return };
        let url_at = self.host_at - self.scheme.len() - 3;
        let facts = || self.facts(client, &parts.method, &parts.headers);
        let (mut text, _) = rules.keyed("", 0, &parts.headers, facts);
        text.extend(self.digest.map(|digest| format!("{digest} ")));
        let before = text.len();
        text.push_str(&self.identity[url_at..]);
        (self.host_at, self.path_at) =
            (self.host_at - url_at + before, self.path_at - url_at + before);
        self.key = Key::of(text.as_bytes());
        self.identity = text;
    }

    /// Puts the path and query into the key that the origin is asked with, where they are other ones.
    fn rewrite(&mut self, client: IpAddr, method: &Method, headers: &HeaderMap) {
        let adjustments = self.handling.adjustments.clone();
        let Some(rewrite) = adjustments.as_ref().and_then(|with| with.rewrite.as_ref()) else {
            return;
        };
        let target = rewrite.target(&self.facts(client, method, headers));
        self.rewritten = target.parse().ok().map(Arc::new);
        if self.rewritten.is_some() {
            self.identity.truncate(self.path_at);
            self.identity.push_str(&target);
        }
    }

    /// The URL in the key, which purges name.
    pub(crate) fn url(&self) -> &str {
        self.identity.rsplit_once(' ').map_or(&self.identity, |(_, url)| url)
    }

    /// Whether rules apply to the request, so that this node must serve it.
    pub(crate) fn has_rules(&self) -> bool {
        self.route.is_some() || self.site.routes.is_some() || self.handling.adjustments.is_some()
    }

    /// Host and port as the client named them, in lower case and without the scheme's default port.
    pub(crate) fn host(&self) -> &str {
        &self.identity[self.host_at..self.path_at]
    }

    /// Gives it the path and query that remain without their signature.
    pub(crate) fn set_target(&mut self, target: String, client: IpAddr, parts: &Parts) {
        self.identity.truncate(self.path_at);
        self.identity.push_str(&target);
        self.asked = Some(target.into());
        self.rewrite(client, &parts.method, &parts.headers);
        let target = self.identity.split_off(self.path_at);
        let rules = self.handling.caching.as_ref();
        // What precedes the URL in the key is made from header fields, and stays.
        let keyed = rules.map(|rules| rules.key.target(&target));
        self.identity.push_str(keyed.as_deref().unwrap_or(&target));
        self.key = Key::of(self.identity.as_bytes());
    }

    /// Path and query as the client wrote them.
    pub(crate) fn target(&self) -> &str {
        self.asked.as_deref().unwrap_or(&self.identity[self.path_at..])
    }

    /// The digest that the client requires of the file, if any.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.digest
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

    /// The resource of a piece of this file.
    pub(crate) fn of_piece(&self, piece: Arc<Piece>) -> Self {
        let url_at = self.host_at - self.scheme.len() - 3;
        let prefix = format!("{} ", piece.url);
        let host_at = prefix.len() + self.scheme.len() + 3;
        let identity = prefix + &self.identity[url_at..];
        Self {
            site: self.site.clone(),
            handling: self.handling.clone(),
            route: self.route.clone(),
            access: None,
            answer: self.answer.clone(),
            scheme: self.scheme,
            key: Key::of(identity.as_bytes()),
            host_at,
            path_at: host_at + (self.path_at - self.host_at),
            asked: self.asked.clone(),
            rewritten: self.rewritten.clone(),
            identity,
            passed: false,
            digest: piece.url.digest,
            piece: Some(piece),
        }
    }

    /// The same resource, with a required digest.
    pub(crate) fn with_digest(self, digest: Digest) -> Self {
        let prefix = format!("{digest} ");
        let (host_at, path_at) = (self.host_at + prefix.len(), self.path_at + prefix.len());
        let identity = prefix + &self.identity;
        let (key, digest) = (Key::of(identity.as_bytes()), Some(digest));
        Self { key, identity, host_at, path_at, digest, ..self }
    }
}

/// A requested piece of a file.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) url: ChunkUrl,
    /// The slots of nodes that must not be used as its source.
    pub(crate) avoided: Vec<usize>,
    /// How many pieces the client takes before it.
    pub(crate) ahead: u32,
    /// That it waits for its turn at the origin.
    pub(crate) notices: Arc<WaitNotices>,
    /// The slot of the node that the request was sent to.
    source: AtomicUsize,
    /// Bytes received so far.
    received: AtomicU64,
}

impl Piece {
    pub(crate) fn new(url: ChunkUrl, avoided: Vec<usize>, ahead: u32, me: usize) -> Arc<Self> {
        let (source, received) = (AtomicUsize::new(me), AtomicU64::new(0));
        Arc::new(Self { url, avoided, ahead, notices: Arc::default(), source, received })
    }

    /// Splits the target of a peer's request for a piece.
    pub(crate) fn split<'t>(target: &'t str, wanted: &HeaderValue) -> Option<(&'t str, Arc<Self>)> {
        let (file, url) = ChunkUrl::split(target)?;
        // Earlier versions do not say how far ahead it is.
        let ahead = wanted.to_str().ok().and_then(|ahead| ahead.parse().ok()).unwrap_or_default();
        Some((file, Self::new(url, Vec::new(), ahead, 0)))
    }

    pub(crate) fn set_source(&self, slot: usize) {
        self.source.store(slot, Relaxed);
    }

    pub(crate) fn source(&self) -> usize {
        self.source.load(Relaxed)
    }

    pub(crate) fn set_received(&self, bytes: u64) {
        self.received.store(bytes, Relaxed);
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Bytes in it.
    pub(crate) fn len(&self) -> u64 {
        self.url.range.end - self.url.range.start
    }
}
