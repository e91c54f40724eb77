//! Receives purge orders from clients that know a token, from operators and from peers.

use std::{collections::BTreeSet, io, sync::Arc};

use crate::awaited::Awaited;
use crate::events::{Events, unix_time};
use crate::nodes::Peers;
use crate::orders::{OrderPlace, OrderWay, OrdersHere, PurgeAccess, PurgeGrant};
use crate::purge::{
    Confirmation, Exchange, Merged, NodeReport, OrderError, OrderId, PurgeAnswer, PurgeMetrics,
    PurgeOrder, PurgeReport, PurgeSummary, PurgeTarget, PurgedSites, Purges, Rule, absolute,
    read_order,
};
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header::CONTENT_TYPE};
use hyper::body::Incoming;
use levada_store::identity::ResourceUrl;
use levada_types::Key;
use levada_upstream::ClientBody;
use tokio::sync::watch;

use crate::orders::{
    exchange::{self, MAX_MESSAGE_SIZE},
    invalidation::{self, MissedInvalidations},
    wake::LastAwake,
};

/// The request method of clients that purge.
pub const METHOD: &str = "PURGE";

/// The path of orders of operators.
pub const ORDERS: &str = "/purge";

/// The most bytes of an order.
const MAX_ORDER_SIZE: usize = 256 << 10;
/// The site of rules for hosts that this node does not serve.
const NO_SITE: u64 = 0;

/// The sites of this node, and the number [`NO_SITE`] for hosts that another node serves.
struct AnySite<'a>(&'a dyn PurgedSites);

impl PurgedSites for AnySite<'_> {
    fn number(&self, host: &str) -> Option<u64> {
        Some(self.0.number(host).unwrap_or(NO_SITE))
    }

    fn identities(&self, url: &ResourceUrl) -> BTreeSet<String> {
        self.0.identities(url)
    }
}

/// Carries out purge orders on this node and at its peers.
pub struct PurgeEndpoint {
    /// The name of this node.
    pub node: String,
    /// The tokens that clients and operators must show.
    pub access: ArcSwap<PurgeAccess>,
    /// The sites of this node.
    pub sites: Arc<dyn PurgedSites>,
    /// Invalidates a URI: what is stored of it, and fetches that run, are not for later requests.
    pub invalidate: Box<dyn Fn(Key) + Send + Sync>,
    /// The orders that are in force.
    pub purges: Arc<Purges>,
    /// Counts purges.
    pub metrics: PurgeMetrics,
    /// The nodes of the cluster, if there is one.
    pub peers: Option<Arc<Peers>>,
    /// Invalidated URLs that a peer has not confirmed.
    pub missed: MissedInvalidations,
    /// Whether the node serves clients and peers.
    pub serving: watch::Sender<bool>,
    /// When the process was last known to run.
    pub last_awake: LastAwake,
    /// Where orders are carried out.
    pub place: OrderPlace,
    /// The parts that the node waits for before it is ready.
    pub awaited: Awaited,
    /// Where purges are reported.
    pub events: Arc<Events>,
}

/// When peers hear of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Before the order is answered.
    Now,
    /// Without anyone waiting for it.
    Later,
}

impl PurgeEndpoint {
    /// Whether a request of a peer is a message about purges.
    pub fn is_for<B>(request: &Request<B>) -> bool {
        let is_ours = [exchange::PATH, invalidation::PATH].contains(&request.uri().path());
        is_ours && *request.method() == Method::POST
    }

    /// Handles `PURGE` at a client listener. `urls` are that of the client, and the one that its route has made of it.
    pub async fn handle_client(
        self: &Arc<Self>,
        urls: Vec<String>,
        host: &str,
        headers: &HeaderMap,
    ) -> PurgeAnswer {
        if !self.access.load().is_on() {
            return PurgeAnswer::off();
        }
        let Some(grant) = self.grant(headers) else { return PurgeAnswer::unauthorized() };
        match PurgeOrder::from_fields(headers, urls, host) {
            Ok(order) if !grant.allows(&order) => PurgeAnswer::forbidden(&grant.hosts),
            Ok(order) => self.answer_order(order).await,
            Err(error) => PurgeAnswer::order_error(&error),
        }
    }

    /// Handles a POST at the admin listener. `by_socket`: it came by the Unix socket, and needs no token.
    pub async fn handle_operator(
        self: &Arc<Self>,
        request: Request<Incoming>,
        by_socket: bool,
    ) -> PurgeAnswer {
        // Without a token of the node itself, the caller has let in those who may give other orders.
        let needs_token = !by_socket && self.access.load().token.is_some();
        let grant = match self.grant(request.headers()) {
            Some(grant) => grant,
            None if needs_token => return PurgeAnswer::unauthorized(),
            None => PurgeGrant::default(),
        };
        // A web page may post forms and text to any address that the browser can reach. It may post JSON
        // only to a server that allows it (CORS).
        let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if !kind.eq_ignore_ascii_case(b"application/json") {
            let text = "send JSON, and say so: Content-Type: application/json\n";
            return PurgeAnswer::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
        }
        let order = match read_order(request.into_body(), MAX_ORDER_SIZE).await {
            Ok(bytes) => PurgeOrder::from_json(&bytes),
            Err(answer) => return answer,
        };
        match order {
            Ok(order) if !grant.allows(&order) => PurgeAnswer::forbidden(&grant.hosts),
            Ok(order) => self.answer_order(order).await,
            Err(error) => PurgeAnswer::order_error(&error),
        }
    }

    /// The grant of the token that a request shows.
    pub fn grant(&self, headers: &HeaderMap) -> Option<PurgeGrant> {
        self.access.load().find(headers, unix_time() as u64)
    }

    /// Tells which nodes have confirmed an order.
    pub fn handle_question(&self, order: &str) -> PurgeAnswer {
        let id: OrderId = match order.parse() {
            Ok(id) => id,
            Err(error) => return PurgeAnswer::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        if !self.purges.known().has(id) {
            let text = "this node has no such order\n";
            return PurgeAnswer::text(StatusCode::NOT_FOUND, text);
        }
        let nodes = self.with_own_report(self.peers_about(id));
        PurgeAnswer::report(&PurgeReport::new(id, None, nodes))
    }

    /// Handles a message from a peer.
    pub async fn handle_peer(self: &Arc<Self>, request: Request<ClientBody>) -> PurgeAnswer {
        let is_exchange = request.uri().path() == exchange::PATH;
        let bytes = match read_order(request.into_body(), MAX_MESSAGE_SIZE).await {
            Ok(bytes) => bytes,
            Err(answer) => return answer,
        };
        let here = self.place.now().await;
        if let Some(successor) = &*here {
            let path = if is_exchange { exchange::PATH } else { invalidation::PATH };
            return PurgeAnswer::passed_on(successor.pass_on(path, bytes).await);
        }
        drop(here);
        if !is_exchange {
            return match serde_json::from_slice(&bytes) {
                Ok(PurgeOrder { target: PurgeTarget::Invalid(urls), .. }) => {
                    self.invalidate(&urls);
                    PurgeAnswer::text(StatusCode::OK, "invalidated\n")
                }
                _ => PurgeAnswer::text(StatusCode::BAD_REQUEST, "these are no URLs\n"),
            };
        }
        let message = match Exchange::from_json(&bytes) {
            Ok(message) => message,
            Err(error) => return PurgeAnswer::order_error(&error),
        };
        let theirs = message.logs.clone();
        match self.merge(message).await {
            Ok(()) => {
                let reply = self.purges.message(self.has_caught_up(), Some(&theirs));
                PurgeAnswer::json(String::from_utf8(reply.to_json()).unwrap_or_default())
            }
            Err(error) => {
                let text = format!("purged, but a restart would undo it: {error}\n");
                PurgeAnswer::text(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }

    /// Carries out the orders of a message from a peer. They are written when this returns `Ok`.
    pub(crate) async fn merge(&self, message: Exchange) -> io::Result<()> {
        let here = self.place.now().await;
        if here.is_some() {
            return Err(io::Error::other("another process carries out purges"));
        }
        let sites = self.sites.clone();
        let rules_of = move |order: &PurgeOrder| rules_here(order, &*sites);
        let Merged { applied, missed, written } = self.purges.merge(message, rules_of).await?;
        if missed {
            tracing::warn!(
                "this node was away for longer than its peers keep purges: everything stored before counts as purged"
            );
        }
        for logged in &applied {
            self.took_effect(&logged.order);
        }
        written
    }

    /// Carries out an order that was given to this node, and tells every peer.
    pub(crate) async fn carry_out(
        self: &Arc<Self>,
        order: PurgeOrder,
        told: Told,
        here: OrdersHere,
    ) -> Result<(OrderId, Vec<NodeReport>), NotPurged> {
        let rules = order.rules(&*self.sites)?;
        let purging = self.clone();
        // The task tells the peers even if the client goes away.
        let carried_out = tokio::spawn(async move {
            let id = purging.purges.order(order.clone(), rules).await?;
            drop(here);
            purging.took_effect(&order);
            if told == Told::Later {
                tokio::spawn(async move { purging.tell_peers(id).await });
                return Ok((id, Vec::new()));
            }
            let peers = purging.tell_peers(id).await;
            Ok((id, purging.with_own_report(peers)))
        });
        carried_out.await.map_err(io::Error::from)?
    }

    async fn answer_order(self: &Arc<Self>, order: PurgeOrder) -> PurgeAnswer {
        let (purged, count, soft) = (order.scope(), order.count(), order.soft);
        let here = self.place.now().await;
        if let Some(successor) = &*here {
            return PurgeAnswer::passed_on(pass_on(successor, &order, ORDERS).await);
        }
        match self.carry_out(order, Told::Now, here).await {
            Ok((id, nodes)) => {
                let what = PurgeSummary { purged, count, soft };
                PurgeAnswer::report(&PurgeReport::new(id, Some(what), nodes))
            }
            Err(NotPurged::Order(error)) => PurgeAnswer::order_error(&error),
            Err(error @ NotPurged::Journal(_)) => {
                PurgeAnswer::text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
            }
        }
    }

    /// Does what follows from an order that is in force.
    fn took_effect(&self, order: &PurgeOrder) {
        match &order.target {
            PurgeTarget::Invalid(urls) => return self.invalidate(urls),
            PurgeTarget::Urls(urls) if !order.soft => {
                urls.iter().filter_map(|url| absolute(url).ok()).for_each(|url| self.forget(&url));
            }
            _ => {}
        }
        let (scope, kind) = (order.scope(), order.kind());
        self.metrics.purged(scope, kind);
        tracing::info!(scope, kind, count = order.count(), what = order.summary(), "purged");
        self.events.purged(kind, order.count(), &order.summary());
    }

    /// Drops the stored responses of a URL, for HTTP and HTTPS.
    fn forget(&self, url: &ResourceUrl) {
        for scheme in ["http", "https"] {
            self.drop_stored(&url.with_scheme(scheme));
        }
    }

    /// Drops the stored responses of a URL.
    pub(crate) fn drop_stored(&self, url: &ResourceUrl) {
        for identity in self.sites.identities(url) {
            (self.invalidate)(Key::of(identity.as_bytes()));
        }
    }

    /// The reports of all nodes: this one has confirmed.
    fn with_own_report(&self, peers: Vec<NodeReport>) -> Vec<NodeReport> {
        let (node, result) = (self.node.clone(), Confirmation::Confirmed);
        std::iter::once(NodeReport { node, result, detail: None }).chain(peers).collect()
    }
}

/// Passes an order on to the process that carries it out in place of this one.
pub(crate) async fn pass_on(
    successor: &OrderWay,
    order: &PurgeOrder,
    path: &str,
) -> io::Result<(StatusCode, String)> {
    successor.pass_on(path, serde_json::to_vec(order)?.into()).await
}

/// The rules of a peer's order, of those hosts that this node serves.
fn rules_here(order: &PurgeOrder, sites: &dyn PurgedSites) -> Vec<Rule> {
    match order.rules(&AnySite(sites)) {
        Ok(rules) => rules.into_iter().filter(|rule| rule.site != Some(NO_SITE)).collect(),
        Err(error) => {
            tracing::error!(%error, what = order.summary(), "a purge of a peer has no effect here");
            Vec::new()
        }
    }
}

/// Why an order was not carried out. Nothing is purged then, on no node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPurged {
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(
        "nothing is purged, because the purge journal cannot be written ({0}): make room on the disk of `cache.disk`, or send the purge to another node"
    )]
    Journal(#[from] io::Error),
}
