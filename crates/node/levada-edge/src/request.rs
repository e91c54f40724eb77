//! The context of a request while it is answered.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderName, request::Parts};
use levada_access::fields::SHIELD;
use levada_body::compress::Accepts;
use levada_cache::{CONDITIONAL, RequestCacheFields, strip_fields};
use levada_cluster::nodes::STORED;
use levada_failure::Failure;
use levada_http::ZeroCopyQueue;
use levada_http::websocket::{Handshake, HandshakeFault};
use levada_rules::{CacheUse, Destination, FieldEdits, RequestFacts};
use levada_upstream::{BodyBound, ClientBody};

use crate::{
    client_connection::{ClientConnection, ListenerKind},
    identify::Identifier,
    resource::Resource,
};

/// An admitted request, as it passes through `pipeline.rs`.
pub struct RequestContext {
    pub(crate) connection: Arc<ClientConnection>,
    /// The client that the request is for. Behind a trusted proxy or a peer it is not at the other end of the
    /// connection.
    pub client: IpAddr,
    /// The resource that it is for.
    pub resource: Resource,
    /// The request fields that a cache obeys.
    pub(crate) wants: RequestCacheFields,
    /// Its head.
    pub parts: Parts,
    /// The codings that the client gets from this node.
    pub(crate) accepts: Accepts,
    /// What the request does with the cache, by the rules of its handling.
    pub(crate) cache_use: CacheUse,
    /// The edits of its fields that are left when it is sent to the origin.
    pub(crate) edits: Option<Arc<FieldEdits>>,
    /// The body, if the request has one.
    pub(crate) body: Option<ClientBody>,
    /// The bound of the body, if the site has one.
    pub(crate) body_bound: Option<BodyBound>,
    /// Whether the client takes trailers after a response.
    pub(crate) takes_trailers: bool,
    /// The handshake, if the request asks for WebSocket.
    pub(crate) websocket: Option<Box<Result<Handshake, HandshakeFault>>>,
    /// Whether the head of a large file suffices, without its body.
    pub(crate) head_is_enough: bool,
    /// Whether the stored response is known to be invalid, so that revalidation is useless.
    pub(crate) anew: bool,
    /// The queue for bodies that the kernel sends, if the response goes directly to the client. `None`
    /// if this process reads the response, since it needs the bytes.
    pub(crate) zero_copy: Option<Arc<ZeroCopyQueue>>,
    /// Whether the fields of a stored response may be text ([`ResponseBody::with_fields`](crate::body::ResponseBody)):
    /// they go over HTTP/1 or HTTP/2 as they are, and nothing else reads or changes them.
    pub(crate) takes_text: bool,
    /// Whether another route answers in the place of an error.
    pub(crate) answers_error: bool,
}

impl RequestContext {
    /// The context of a GET without a body, which this node makes by itself.
    pub fn own(
        connection: Arc<ClientConnection>,
        client: IpAddr,
        resource: Resource,
        parts: Parts,
    ) -> Self {
        Self {
            connection,
            client,
            resource,
            wants: RequestCacheFields::default(),
            parts,
            accepts: Accepts::default(),
            cache_use: CacheUse::Full,
            edits: None,
            body: None,
            body_bound: None,
            takes_trailers: false,
            websocket: None,
            head_is_enough: false,
            anew: false,
            zero_copy: None,
            takes_text: false,
            answers_error: false,
        }
    }

    /// The same request without a range and conditions, for an answer in the place of an error; `None` if its body
    /// is gone, or it is such an answer already.
    pub(crate) fn for_error(&self) -> Option<Box<Self>> {
        if self.answers_error || self.body.is_some() || self.websocket.is_some() {
            return None;
        }
        let mut parts = self.parts.clone();
        strip_fields(&mut parts.headers, &CONDITIONAL);
        let own = Self::own(self.connection.clone(), self.client, self.resource.clone(), parts);
        let wants = RequestCacheFields::of(&own.parts.headers);
        Some(Box::new(Self { wants, answers_error: true, ..own }))
    }

    /// Goes on at another place of the site.
    pub(crate) fn go_on(
        &mut self,
        identifier: &Identifier,
        to: (&Destination, &'static str),
    ) -> Result<(), Failure> {
        let routed = identifier.again(&self.resource, self.client, &self.parts, to)?;
        self.resource = routed.identified(self.client, &self.parts);
        Ok(())
    }

    /// Path and query as the client wrote them.
    pub(crate) fn asked(&self) -> &str {
        match self.resource.redirects.count {
            0 => self.resource.target(),
            _ => self.parts.uri.path_and_query().map_or("/", |target| target.as_str()),
        }
    }

    /// Decides what the request does with the cache, and makes the edits of its fields that come before it.
    pub fn prepare(&mut self) {
        let Self { client, resource, parts, .. } = self;
        let request = (*client, &parts.method, &resource.url);
        (self.cache_use, self.edits) = resource.handling.prepare(request, &mut parts.headers);
    }

    /// Whether a node of another region asks, which stores the response too.
    pub(crate) fn is_from_region(&self) -> bool {
        self.connection.listener == ListenerKind::Peer && self.parts.headers.contains_key(SHIELD)
    }

    /// Whether a peer asks for what is stored, because the servers behind it do not answer.
    pub(crate) fn is_for_stored(&self) -> bool {
        self.connection.listener == ListenerKind::Peer && self.parts.headers.contains_key(STORED)
    }

    /// The fields that no list and no key has.
    pub(crate) fn unkeyed(&self) -> Vec<HeaderName> {
        self.resource.handling.unkeyed(&self.parts.headers)
    }

    /// The request as rules see it.
    pub(crate) fn facts(&self) -> RequestFacts<'_> {
        self.resource.facts(self.client, &self.parts.method, &self.parts.headers)
    }
}
