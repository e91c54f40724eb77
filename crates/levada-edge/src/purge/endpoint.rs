//! Receives purge orders from clients that know a token, from operators and from peers.

use std::{io, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use levada_purge::{
    Confirmation, NodeReport, OrderError, PurgeOrder, PurgeTarget, Purges, Rule, absolute,
};
use levada_types::Key;
use serde::Serialize;

use super::broadcast;
use crate::{
    cache::Cache, clock, metrics::Metrics, peers::Peers, resource::Resource, sites::Sites, tls,
};

/// The request method of clients that purge.
pub(crate) const METHOD: &str = "PURGE";

/// RFC 9875 Sec. 3.
const CACHE_GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// The most bytes of an order.
const MAX_ORDER_SIZE: usize = 256 << 10;
/// How long the answer to an unsafe request waits for the peers.
const INVALIDATION_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an order may take to arrive.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

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
    purged: &'static str,
    count: usize,
    soft: bool,
    /// Every node that may have had a copy has confirmed.
    confirmed: bool,
    nodes: Vec<NodeReport>,
}

/// Carries out purge orders on this node and at its peers.
pub(crate) struct PurgeEndpoint {
    /// The name of this node.
    pub(crate) node: String,
    /// The token that clients and operators must show.
    pub(crate) token: Option<String>,
    pub(crate) sites: Arc<ArcSwap<Sites>>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) peers: Option<Arc<Peers>>,
}

impl PurgeEndpoint {
    /// Handles `PURGE` at a client listener.
    pub(crate) async fn handle_client(
        self: &Arc<Self>,
        resource: &Resource,
        headers: &HeaderMap,
    ) -> PurgeAnswer {
        let Some(token) = &self.token else {
            let text = "PURGE is off: there is no `token` in [purge]\n";
            let mut answer = PurgeAnswer::text(StatusCode::METHOD_NOT_ALLOWED, text);
            let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            answer.field = Some((ALLOW, methods));
            return answer;
        };
        if !is_authorized(headers, token) {
            return unauthorized();
        }
        match PurgeOrder::from_fields(headers, &resource.identity, resource.host()) {
            Ok(order) => self.carry_out(order).await,
            Err(error) => PurgeAnswer::order_error(&error),
        }
    }

    /// Handles a POST at the admin listener.
    pub(crate) async fn handle_operator(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> PurgeAnswer {
        if let Some(token) = &self.token
            && !is_authorized(request.headers(), token)
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
        let order = match read(request.into_body()).await {
            Ok(bytes) => PurgeOrder::from_json(&bytes, false),
            Err(answer) => return answer,
        };
        match order {
            Ok(order) => self.carry_out(order).await,
            Err(error) => PurgeAnswer::order_error(&error),
        }
    }

    /// Handles an order from a peer. It is not passed on: the peer sends it to every node itself.
    pub(crate) async fn handle_peer(self: &Arc<Self>, body: Incoming) -> PurgeAnswer {
        let order = match read(body).await {
            Ok(bytes) => PurgeOrder::from_json(&bytes, true),
            Err(answer) => return answer,
        };
        if let Ok(PurgeOrder { target: PurgeTarget::Invalid(urls), .. }) = &order {
            for (identity, _) in urls.iter().filter_map(|url| absolute(url).ok()) {
                self.cache.invalidate(Key::of(identity.as_bytes()));
            }
            return PurgeAnswer::text(StatusCode::OK, "invalidated\n");
        }
        match order.and_then(|order| self.apply_locally(&order)) {
            Ok(applied) => match applied.persist(&self.cache.purges).await {
                Ok(()) => PurgeAnswer::text(StatusCode::OK, "purged\n"),
                Err(error) => {
                    let text = format!("purged, but not for good: {error}\n");
                    PurgeAnswer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
                }
            },
            // A site that this node does not serve has nothing stored here.
            Err(OrderError::UnknownHost(_)) => PurgeAnswer::text(StatusCode::OK, "purged\n"),
            Err(error) => PurgeAnswer::order_error(&error),
        }
    }

    /// Purges the cache groups that an origin names in an answer to an unsafe request (RFC 9875 Sec. 3).
    pub(crate) fn purge_groups(self: &Arc<Self>, identity: &str, headers: &HeaderMap) {
        let groups = levada_cache::strings(headers, &CACHE_GROUP_INVALIDATION);
        if groups.is_empty() {
            return;
        }
        let order =
            PurgeOrder { target: PurgeTarget::Groups(groups, identity.to_owned()), soft: false };
        match self.apply_locally(&order) {
            Ok(applied) => drop(tokio::spawn(self.clone().persist_and_propagate(order, applied))),
            Err(error) => tracing::warn!(identity, %error, "groups are not purged"),
        }
    }

    /// Tells the peers which URLs an unsafe request has invalidated here, and waits for them for a short
    /// time: a client that has the answer should not get the old response from a peer.
    pub(crate) async fn propagate_invalidation(&self, urls: Vec<String>) {
        let Some(peers) = self.peers.clone().filter(|_| !urls.is_empty()) else { return };
        let order = PurgeOrder { target: PurgeTarget::Invalid(urls), soft: false };
        // The task goes on when the client goes away.
        let sending = tokio::spawn(async move { broadcast::send_once(&peers, &order).await });
        let _ = tokio::time::timeout(INVALIDATION_TIMEOUT, sending).await;
    }

    /// Carries out an order on this node and at every peer.
    async fn carry_out(self: &Arc<Self>, order: PurgeOrder) -> PurgeAnswer {
        let applied = match self.apply_locally(&order) {
            Ok(applied) => applied,
            Err(error) => return PurgeAnswer::order_error(&error),
        };
        let mut report = PurgeReport {
            purged: order.scope(),
            count: order.count(),
            soft: order.soft,
            confirmed: false,
            nodes: Vec::new(),
        };
        // The task tells the peers even if the client goes away.
        if let Ok(nodes) = tokio::spawn(self.clone().persist_and_propagate(order, applied)).await {
            report.confirmed = nodes.iter().all(|node| node.result == Confirmation::Confirmed);
            report.nodes = nodes;
        }
        let status = if report.confirmed { StatusCode::OK } else { StatusCode::ACCEPTED };
        PurgeAnswer {
            status,
            field: None,
            kind: "application/json",
            text: serde_json::to_string_pretty(&report).unwrap_or_default() + "\n",
        }
    }

    /// Carries out an order on this node.
    fn apply_locally(&self, order: &PurgeOrder) -> Result<AppliedPurge, OrderError> {
        let (rules, urls) = order.rules(|host| Some(self.sites.load().find(host)?.id))?;
        let number = self.cache.purges.add(&rules, clock::wall());
        if !order.soft {
            self.cache.forget(&urls);
        }
        self.metrics.purged(order.scope(), order.kind());
        let (scope, kind) = (order.scope(), order.kind());
        tracing::info!(scope, kind, count = order.count(), what = order.summary(), "purged");
        Ok(AppliedPurge { number, rules })
    }

    /// Writes an order to the journal and sends it to every peer.
    async fn persist_and_propagate(
        self: Arc<Self>,
        order: PurgeOrder,
        applied: AppliedPurge,
    ) -> Vec<NodeReport> {
        let send = async {
            match &self.peers {
                Some(peers) => broadcast::send_until_confirmed(peers, &order).await,
                None => Vec::new(),
            }
        };
        let (persisted, peers) = tokio::join!(applied.persist(&self.cache.purges), send);
        let (result, detail) = match persisted {
            Ok(()) => (Confirmation::Confirmed, None),
            Err(error) => {
                (Confirmation::Refused, Some(format!("purged, but not for good: {error}")))
            }
        };
        let own = NodeReport { node: self.node.clone(), result, detail, pending: false };
        std::iter::once(own).chain(peers).collect()
    }
}

/// An order that is in force on this node.
struct AppliedPurge {
    number: u64,
    rules: Vec<Rule>,
}

impl AppliedPurge {
    async fn persist(self, purges: &Purges) -> io::Result<()> {
        purges.persist(self.number, self.rules).await
    }
}

async fn read(body: Incoming) -> Result<Bytes, PurgeAnswer> {
    match tokio::time::timeout(RECEIVE_TIMEOUT, Limited::new(body, MAX_ORDER_SIZE).collect()).await
    {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let text = format!("an order has {MAX_ORDER_SIZE} bytes at most: divide it\n");
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
