//! Requests to other servers: their heads, and the groups of servers that are tried.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{
    HeaderMap, HeaderName, HeaderValue, Uri, Version,
    header::{self, HOST, RANGE, VIA},
};
use levada_access::client_network;
use levada_access::{
    cdn_loop::{CDN_ID, CDN_LOOP},
    fields::{ANEW, FORWARDED_PROTO, LARGE, PEER, PEERS_ONLY, PIECE, ROUTE, SHIELD},
    trust::FORWARDED_FOR,
};
use levada_cache::{join_cookies, strip_fields};
use levada_cluster::nodes::{
    ChoosesNodes, ChosenPeers, Membership, NearNodes, Peers, STORED, SentRequest,
};
use levada_http::NO_HOST;
use levada_policy::{Cluster, Pick};
use levada_redirector::{OriginTries, Sizes};
use levada_rules::UnkeyedFields;
use levada_types::Request as PolicyRequest;
use levada_upstream::{
    AtNode, Clock, OriginPlaces, RequestBody, Retries, UpstreamHead, UpstreamResponse,
};

use crate::{
    access_record::AccessRecord,
    cache::shield,
    client_connection::{ClientConnection, ListenerKind},
    metrics::Metrics,
    request::RequestContext,
    resource::Resource,
    sites::Site,
    subject::{count_fallback, subject},
};
use levada_config::Limits;
use levada_failure::Failed;
use levada_store::NodeName;

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The size of the buffer with which a piece is read from a peer. Each connection of a transfer has such
/// a buffer, in addition to the window.
const PIECE_READ: usize = 32 << 10;

/// Sends requests to origins and peers.
pub struct Forwarder {
    pub(crate) name: Arc<NodeName>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    /// Sizes of objects, for the policies.
    pub sizes: Arc<Sizes>,
    pub(crate) patience: ArcSwap<ForwardPatience>,
}

/// How long and how often the node tries.
pub(crate) struct ForwardPatience {
    /// Servers that are tried for one request, at most.
    tries: usize,
    /// The longest time between two reads of a response body.
    body_timeout: Duration,
}

impl ForwardPatience {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self { tries: limits.tries as usize, body_timeout: limits.response_body_timeout }
    }
}

impl Forwarder {
    pub(crate) fn set_patience(&self, limits: &Limits) {
        self.patience.store(Arc::new(ForwardPatience::of(limits)));
    }

    /// The longest time between two reads of a response body.
    pub(crate) fn body_timeout(&self) -> Duration {
        self.patience.load().body_timeout
    }

    /// The head to be sent on, made from the received one: end-to-end fields, and the fields that a proxy adds.
    pub(crate) fn onward(&self, context: &RequestContext, headers: HeaderMap) -> UpstreamHead {
        self.made(context, headers, |_| {})
    }

    /// The head of a fetch that others share: without those of these fields that are withheld.
    pub(crate) fn shared(&self, context: &RequestContext, fields: &UnkeyedFields) -> UpstreamHead {
        let headers = context.parts.headers.clone();
        let withhold = |headers: &mut _| fields.withhold(context.edits.as_deref(), headers);
        UpstreamHead {
            at_shield: shield::asked_by(context),
            ..self.made(context, headers, withhold)
        }
    }

    fn made(
        &self,
        context: &RequestContext,
        mut headers: HeaderMap,
        withhold: impl FnOnce(&mut HeaderMap),
    ) -> UpstreamHead {
        let RequestContext { connection, resource, parts, .. } = context;
        // Room for all added fields at once.
        headers.reserve(8);
        static ENDS_HERE: [HeaderName; 7] =
            [PEER, LARGE, PIECE, ROUTE, SHIELD, STORED, header::EXPECT];
        strip_fields(&mut headers, &ENDS_HERE);
        if matches!(parts.version, Version::HTTP_2 | Version::HTTP_3) {
            join_cookies(&mut headers);
        }
        let client = client_network::of(context.client);
        let (subject, part) = subject(resource, parts, &headers);
        count_fallback(&resource.site, part);
        withhold(&mut headers);
        // The client is not concerned with interim responses to a piece.
        let interim = connection.interim().or_else(|| parts.extensions.get().cloned());
        let interim = interim.filter(|_| resource.piece.is_none());
        // The next server must not see an absolute form or a pass.
        let is_asked = !resource.passed && resource.redirects.count == 0;
        let plain = parts.uri.authority().is_none() && is_asked && resource.piece.is_none();
        let named = |host: &&HeaderValue| plain && host.as_bytes() == resource.host().as_bytes();
        let mut host = headers.get(HOST).filter(named).cloned();
        if host.is_none() {
            host = HeaderValue::from_str(resource.host()).ok();
            if let Some(host) = &host {
                headers.insert(HOST, host.clone());
            }
        }
        if connection.listener != ListenerKind::Peer {
            forwarded(&mut headers, resource, connection, host.filter(|host| host != NO_HOST));
        }
        headers.append(CDN_LOOP, HeaderValue::from_static(CDN_ID));
        headers.append(VIA, self.name.via.clone());
        if let Some(edits) = &context.edits {
            edits.apply_to_sent(&mut headers);
        }
        let uri = match resource.rewritten() {
            Some(uri) => Uri::clone(uri),
            None if plain => parts.uri.clone(),
            None => resource.target().parse().unwrap_or_default(),
        };
        UpstreamHead {
            method: parts.method.clone(),
            uri,
            headers,
            client,
            stated_client: Some(context.client),
            subject,
            interim,
            notices: None,
            takes_trailers: false,
            trace: parts.extensions.get().cloned(),
            at_shield: None,
            websocket: None,
        }
    }

    /// So many tries of a request that is safe, within the budget of its site.
    pub(crate) fn retries<'a>(&'a self, site: &'a Site, tries: usize) -> Retries<'a> {
        Retries {
            tries,
            budget: &site.retries,
            resends_unsent: false,
            asks_beside: true,
            clock: self.clock,
            metrics: &self.metrics.policies.upstream,
        }
    }

    /// Sends a request to the site's origins when it is the client's turn, one after another where that is safe,
    /// until one answers; or to the servers that the site's policy chooses.
    pub(crate) async fn to_origin(
        &self,
        site: &Site,
        head: &mut UpstreamHead,
        mut body: RequestBody,
    ) -> Result<UpstreamResponse, Failed> {
        if let Some(host) = &site.origin_host {
            head.headers.insert(HOST, host.clone());
        } else if head.headers.get(HOST).is_some_and(|host| host == NO_HOST) {
            // The client has named none, so the server is called by the name that it has here.
            let own = site.servers().first().and_then(|server| server.address.host().parse().ok());
            own.map(|own| head.headers.insert(HOST, own));
        }
        let queue = site.misses.of(head, &mut body).await?;
        let tries = self.patience.load().tries;
        if let Some(switch) = &site.switch {
            let retries = (tries, &site.retries);
            let sending = switch.send(site.policy(), retries, head, &self.sizes, body);
            let mut response = Box::pin(sending).await?;
            strip_fields(response.headers_mut(), &PEERS_ONLY);
            return Ok(response);
        }
        let places = OriginPlaces::enter(queue, head.client).await?;
        let order = site.origins.order();
        let retries = Retries {
            // Another address of a name is as good as the first.
            resends_unsent: order.is_spread(),
            asks_beside: head.websocket.is_none(),
            ..self.retries(site, tries.min(order.len().max(2)))
        };
        let mut origins = OriginTries::new(order, places);
        let mut response = levada_upstream::send(&mut origins, &retries, head, body).await?;
        strip_fields(response.headers_mut(), &PEERS_ONLY);
        Ok(response)
    }

    /// Sends a request to the chosen peer of `members`, and to those that the policy chooses after it, until one answers.
    ///
    /// Only requests without a body that are safe to repeat come here. The request counts as outstanding at the
    /// peer that is being tried. This node is the last try: it can always ask the origin itself.
    ///
    /// The response comes with the policy's choice and the request.
    ///
    /// `None` when this node is to serve the request, because the peers failed.
    pub(crate) async fn to_peer(
        &self,
        peers: &Peers,
        members: Arc<Membership>,
        context: &RequestContext,
        first: Pick,
        record: &mut AccessRecord,
    ) -> Option<(UpstreamResponse, Pick, UpstreamHead)> {
        let mut head = self.onward(context, context.parts.headers.clone());
        at_node(context).address(&mut head);
        let resource = &context.resource;
        let choice = Choice { resource, clock: self.clock, record };
        let avoided = resource.piece.as_ref().map_or(&[][..], |piece| &piece.avoided);
        let is_head = context.head_is_enough;
        let mut chosen = ChosenPeers::new(peers, (members, first), choice, avoided, is_head);
        let tries = self.patience.load().tries.saturating_sub(1).max(1);
        // Pieces have retries of their own.
        let asks_beside = resource.piece.is_none();
        let retries = Retries { asks_beside, ..self.retries(&resource.site, tries) };
        let sent = levada_upstream::send(&mut chosen, &retries, &head, RequestBody::None).await;
        if sent.is_err() {
            chosen.choose_this_node();
        }
        let pick = chosen.pick();
        sent.ok().map(|response| (response, pick, head))
    }

    /// The response that a node of the region has stored for this request.
    pub(crate) async fn stored_near(
        &self,
        peers: &Peers,
        context: &RequestContext,
    ) -> Option<(UpstreamResponse, UpstreamHead)> {
        let mut head = self.onward(context, context.parts.headers.clone());
        at_node(context).address(&mut head);
        let (resource, key) = (&context.resource, context.resource.key());
        let request = PolicyRequest::new(key);
        let (responsible, _) = resource.decider().responsible(&request, peers.now().cluster());
        let retries = self.retries(&resource.site, 1);
        let response = NearNodes::of(peers, key, &responsible).stored(&head, &retries).await?;
        Some((response, head))
    }
}

/// How a node of this CDN is asked for a resource, for a piece of it, or for the head of a large file only.
pub(crate) fn at_node(context: &RequestContext) -> AtNode {
    let RequestContext { resource, head_is_enough, anew, .. } = context;
    let (target, piece) = (resource.target(), resource.piece.as_ref());
    let uri = match piece {
        Some(piece) => piece.url.affix(target).parse().ok(),
        // The node rewrites it again.
        None => resource.rewritten().and_then(|_| target.parse().ok()),
    };
    let wanted = if *anew { ANEW } else { "head" };
    let head = head_is_enough.then(|| (LARGE, Some(HeaderValue::from_static(wanted))));
    let route = resource.told_route().map(|route| (ROUTE, Some(route)));
    let mut fields: Vec<_> = route.into_iter().chain(head).collect();
    if let Some(piece) = piece {
        fields.extend([(PIECE, Some(piece.wanted())), (RANGE, None)]);
    }
    let notices = piece.map(|piece| piece.notices.clone());
    AtNode { uri, fields, notices, is_costly: *head_is_enough || piece.is_some() }
}

/// Adds the address at the other end of the connection, the host and the protocol. The trust boundary has
/// removed the statements of clients that are not trusted.
fn forwarded(
    headers: &mut HeaderMap,
    resource: &Resource,
    connection: &ClientConnection,
    host: Option<HeaderValue>,
) {
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(resource.scheme()));
    if let Some(host) = host {
        headers.insert(FORWARDED_HOST, host);
    }
    headers.append(FORWARDED_FOR, connection.address().clone());
}

/// The choice of nodes for one request.
struct Choice<'a> {
    resource: &'a Resource,
    clock: Clock,
    record: &'a mut AccessRecord,
}

impl ChoosesNodes for Choice<'_> {
    fn choose(&self, left: &Cluster) -> Option<Pick> {
        let request = PolicyRequest::new(self.resource.key());
        self.resource.decider().pick(&request, left, self.clock.now())
    }

    fn decided(&mut self, pick: Pick, slot: usize) {
        self.record.decided(self.resource, pick, slot);
    }

    fn answered(&mut self, (outstanding, _): SentRequest, response: &mut UpstreamResponse) {
        self.record.outstanding = Some(outstanding);
        if self.resource.piece.is_some() {
            response.body_mut().read_at_most(PIECE_READ);
        }
    }
}
