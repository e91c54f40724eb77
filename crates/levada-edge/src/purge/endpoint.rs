//! Receives purge orders from clients that know a token, from operators and from peers.

use std::{io, sync::Arc, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use levada_access::tls;
use levada_peers::Peers;
use levada_purge::{
    Confirmation, Exchange, Merged, NodeReport, OrderError, OrderId, PurgeOrder, PurgeTarget, Rule,
    absolute,
};
use levada_upgrade::{Awaited, OrderPlace, OrderWay, OrdersHere};
use serde::Serialize;
use tokio::sync::watch;

use super::{
    exchange::{self, MAX_MESSAGE_SIZE},
    invalidation::{self, MissedInvalidations},
    wake::LastAwake,
};
use crate::{cache::Cache, metrics::Metrics, resource::Resource, sites::Sites};

/// The request method of clients that purge.
pub(crate) const METHOD: &str = "PURGE";

/// The path of orders of operators.
pub(crate) const ORDERS: &str = "/purge";

/// The most bytes of an order.
const MAX_ORDER_SIZE: usize = 256 << 10;
/// How long an order may take to arrive.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);
const JSON: &str = "application/json";
/// The site of rules for hosts that this node does not serve.
const NO_SITE: u64 = 0;

/// The answer to an order. The listener chooses the type of its body.
pub(crate) struct PurgeAnswer {
    status: StatusCode,
    field: Option<(HeaderName, HeaderValue)>,
    kind: &'static str,
    text: String,
}

/// The result of an order, node by node.
#[derive(Debug, Serialize)]
pub(crate) struct PurgeReport {
    /// The name of the order, to ask about it later.
    order: String,
    #[serde(flatten)]
    what: Option<PurgeSummary>,
    /// Every node that may have had a copy has confirmed.
    confirmed: bool,
    nodes: Vec<NodeReport>,
}

/// The responses that an order purges.
#[derive(Debug, Serialize)]
struct PurgeSummary {
    purged: &'static str,
    count: usize,
    soft: bool,
}

/// Carries out purge orders on this node and at its peers.
pub(crate) struct PurgeEndpoint {
    /// The name of this node.
    pub(crate) node: String,
    /// The token that clients and operators must show.
    pub(crate) token: ArcSwapOption<String>,
    pub(crate) sites: Arc<ArcSwap<Sites>>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) peers: Option<Arc<Peers>>,
    /// Invalidated URLs that a peer has not confirmed.
    pub(crate) missed: MissedInvalidations,
    /// Whether the node serves clients and peers.
    pub(crate) serving: watch::Sender<bool>,
    pub(crate) last_awake: LastAwake,
    /// Where orders are carried out.
    pub(crate) place: OrderPlace,
    pub(crate) awaited: Awaited,
}

/// When peers hear of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Before the order is answered.
    Now,
    /// Without anyone waiting for it.
    Later,
}

impl PurgeEndpoint {
    /// Handles `PURGE` at a client listener.
    pub(crate) async fn handle_client(
        self: &Arc<Self>,
        resource: &Resource,
        headers: &HeaderMap,
    ) -> PurgeAnswer {
        let Some(token) = self.token.load_full() else {
            let text = "PURGE is off: there is no `token` in [purge]\n";
            let mut answer = PurgeAnswer::text(StatusCode::METHOD_NOT_ALLOWED, text);
            let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            answer.field = Some((ALLOW, methods));
            return answer;
        };
        if !is_authorized(headers, &token) {
            return unauthorized();
        }
        match PurgeOrder::from_fields(headers, resource.url(), resource.host()) {
            Ok(order) => self.answer_order(order).await,
            Err(error) => PurgeAnswer::order_error(&error),
        }
    }

    /// Handles a POST at the admin listener. `by_socket`: it came by the Unix socket, and needs no token.
    pub(crate) async fn handle_operator(
        self: &Arc<Self>,
        request: Request<Incoming>,
        by_socket: bool,
    ) -> PurgeAnswer {
        if let Some(token) = self.token.load_full().filter(|_| !by_socket)
            && !is_authorized(request.headers(), &token)
        {
            return unauthorized();
        }
        // A web page may post forms and text to any address that the browser can reach. It may post JSON
        // only to a server that allows it (CORS).
        let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if !kind.eq_ignore_ascii_case(b"application/json") {
            let text = "send JSON, and say so: Content-Type: application/json\n";
            return PurgeAnswer::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
        }
        let order = match read(request.into_body(), MAX_ORDER_SIZE).await {
            Ok(bytes) => PurgeOrder::from_json(&bytes),
            Err(answer) => return answer,
        };
        match order {
            Ok(order) => self.answer_order(order).await,
            Err(error) => PurgeAnswer::order_error(&error),
        }
    }

    /// Tells which nodes have confirmed an order.
    pub(crate) fn handle_question(&self, order: &str) -> PurgeAnswer {
        let id: OrderId = match order.parse() {
            Ok(id) => id,
            Err(error) => return PurgeAnswer::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        if !self.cache.purges.known().has(id) {
            let text = "this node has no such order\n";
            return PurgeAnswer::text(StatusCode::NOT_FOUND, text);
        }
        let nodes = self.with_own_report(self.peers_about(id));
        PurgeAnswer::report(&PurgeReport::new(id, None, nodes))
    }

    /// Handles a message from a peer.
    pub(crate) async fn handle_peer(self: &Arc<Self>, request: Request<Incoming>) -> PurgeAnswer {
        let is_exchange = request.uri().path() == exchange::PATH;
        let bytes = match read(request.into_body(), MAX_MESSAGE_SIZE).await {
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
                let reply = self.cache.purges.message(self.has_caught_up(), Some(&theirs));
                let text = String::from_utf8(reply.to_json()).unwrap_or_default();
                PurgeAnswer { status: StatusCode::OK, field: None, kind: JSON, text }
            }
            Err(error) => {
                let text = format!("purged, but a restart would undo it: {error}\n");
                PurgeAnswer::text(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }

    /// Carries out the orders of a message from a peer. They are written when this returns `Ok`.
    pub(super) async fn merge(&self, message: Exchange) -> io::Result<()> {
        let here = self.place.now().await;
        if here.is_some() {
            return Err(io::Error::other("another process carries out purges"));
        }
        let sites = self.sites.load_full();
        let rules_of = move |order: &PurgeOrder| rules_here(order, &sites);
        let Merged { applied, missed, written } =
            self.cache.purges.merge(message, rules_of).await?;
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
    pub(super) async fn carry_out(
        self: &Arc<Self>,
        order: PurgeOrder,
        told: Told,
        here: OrdersHere,
    ) -> Result<(OrderId, Vec<NodeReport>), NotPurged> {
        let (rules, _) = order.rules(|host| Some(self.sites.load().find(host)?.id))?;
        let purging = self.clone();
        // The task tells the peers even if the client goes away.
        let carried_out = tokio::spawn(async move {
            let id = purging.cache.purges.order(order.clone(), rules).await?;
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
                let identities = urls.iter().filter_map(|url| Some(absolute(url).ok()?.0));
                self.cache.forget(&identities.collect::<Vec<_>>());
            }
            _ => {}
        }
        let (scope, kind) = (order.scope(), order.kind());
        self.metrics.purged(scope, kind);
        tracing::info!(scope, kind, count = order.count(), what = order.summary(), "purged");
    }

    /// The reports of all nodes: this one has confirmed.
    fn with_own_report(&self, peers: Vec<NodeReport>) -> Vec<NodeReport> {
        let (node, result) = (self.node.clone(), Confirmation::Confirmed);
        std::iter::once(NodeReport { node, result, detail: None }).chain(peers).collect()
    }
}

/// Passes an order on to the process that carries it out in place of this one.
pub(super) async fn pass_on(
    successor: &OrderWay,
    order: &PurgeOrder,
    path: &str,
) -> io::Result<(StatusCode, String)> {
    successor.pass_on(path, serde_json::to_vec(order)?.into()).await
}

/// The rules of a peer's order, of those hosts that this node serves.
fn rules_here(order: &PurgeOrder, sites: &Sites) -> Vec<Rule> {
    let site_of = |host: &str| Some(sites.find(host).map_or(NO_SITE, |site| site.id));
    match order.rules(site_of) {
        Ok((rules, _)) => rules.into_iter().filter(|rule| rule.site != Some(NO_SITE)).collect(),
        Err(error) => {
            tracing::error!(%error, what = order.summary(), "a purge of a peer has no effect here");
            Vec::new()
        }
    }
}

/// Why an order was not carried out. Nothing is purged then, on no node.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotPurged {
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(
        "nothing is purged, because the purge journal cannot be written ({0}): make room on the disk of `cache.disk`, or send the purge to another node"
    )]
    Journal(#[from] io::Error),
}

impl PurgeReport {
    fn new(id: OrderId, what: Option<PurgeSummary>, nodes: Vec<NodeReport>) -> Self {
        let confirmed = nodes.iter().all(|node| node.result == Confirmation::Confirmed);
        Self { order: id.to_string(), what, confirmed, nodes }
    }
}

async fn read(body: Incoming, most: usize) -> Result<Bytes, PurgeAnswer> {
    match tokio::time::timeout(RECEIVE_TIMEOUT, Limited::new(body, most).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let text = format!("an order has {most} bytes at most: divide it\n");
            Err(PurgeAnswer::text(StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Ok(Err(_)) => Err(PurgeAnswer::text(StatusCode::BAD_REQUEST, "the order broke off\n")),
        Err(_) => Err(PurgeAnswer::text(StatusCode::REQUEST_TIMEOUT, "the order did not arrive\n")),
    }
}

/// Whether the sender knows the token (RFC 6750 Sec. 2.1).
fn is_authorized(headers: &HeaderMap, token: &str) -> bool {
    let credentials = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let Some((scheme, shown)) = credentials.split_at_checked(7) else { return false };
    scheme.eq_ignore_ascii_case(b"Bearer ") && tls::equal(shown.trim_ascii(), token.as_bytes())
}

fn unauthorized() -> PurgeAnswer {
    let text = "purging needs the token: Authorization: Bearer TOKEN\n";
    let mut answer = PurgeAnswer::text(StatusCode::UNAUTHORIZED, text);
    answer.field = Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"purge\"")));
    answer
}

impl PurgeAnswer {
    fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, field: None, kind: "text/plain; charset=utf-8", text: text.into() }
    }

    /// The answer of the process that carries out orders in place of this one.
    fn passed_on(answer: io::Result<(StatusCode, String)>) -> Self {
        match answer {
            Ok((status, text)) => Self { status, field: None, kind: JSON, text },
            Err(error) => {
                let text = format!("the process that replaces this one does not answer: {error}\n");
                Self::text(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }

    fn report(report: &PurgeReport) -> Self {
        let status = if report.confirmed { StatusCode::OK } else { StatusCode::ACCEPTED };
        let text = serde_json::to_string_pretty(report).unwrap_or_default() + "\n";
        Self { status, field: None, kind: JSON, text }
    }

    fn order_error(error: &OrderError) -> Self {
        Self::text(error.status(), format!("{error}\n"))
    }

    /// Makes a response. `body` makes its body from the text.
    pub(crate) fn into_response<B>(self, body: impl FnOnce(String) -> B) -> Response<B> {
        let length = self.text.len();
        let mut response = Response::new(body(self.text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(length));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(self.field);
        response
    }
}
