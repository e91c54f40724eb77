//! Sends purge orders to peers, now or when they are back.
//!
//! Orders that a peer has not confirmed are kept and delivered as part of its health probe: a peer that
//! was down does not count as up again while it stores purged responses.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{CONTENT_TYPE, HOST},
};
use levada_policy::NodeIndex;
use levada_purge::{Confirmation, NodeReport, PurgeOrder};
use levada_upstream::{ServerFailure, UpstreamHead};
use tokio::task::JoinSet;

use crate::peers::Peers;

/// How long a peer may take to confirm, all tries together.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses before the second and the third try.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
/// How often pending orders are sent where no probe delivers them.
const DELIVERY_INTERVAL: Duration = Duration::from_secs(1);

/// Peers post orders to this path.
pub(crate) const PATH: &str = "/.levada/purge";

/// Sends an order to all peers at the same time. Returns their answers.
pub(crate) async fn send_until_confirmed(
    peers: &Arc<Peers>,
    order: &PurgeOrder,
) -> Vec<NodeReport> {
    let order = Bytes::from(order.to_json());
    let mut sending = JoinSet::new();
    for (peer, _) in peers.servers().filter(|(peer, _)| *peer != peers.me()) {
        let (peers, order) = (peers.clone(), order.clone());
        sending.spawn(async move { (peer, send_to(&peers, peer, order).await) });
    }
    let mut reports = sending.join_all().await;
    reports.sort_by_key(|(peer, _)| peer.get());
    reports.into_iter().map(|(_, report)| report).collect()
}

/// Sends an order to all peers at the same time, once each. A peer that cannot be reached gets it when
/// it is back.
pub(crate) async fn send_once(peers: &Arc<Peers>, order: &PurgeOrder) {
    let order = Bytes::from(order.to_json());
    let mut sending = JoinSet::new();
    for (peer, server) in peers.servers().filter(|(peer, _)| *peer != peers.me()) {
        let (peers, order, up) = (peers.clone(), order.clone(), server.health.is_up());
        sending.spawn(async move {
            let sent = async { up && send(&peers, peer, order.clone()).await.is_ok() };
            if !tokio::time::timeout(CONFIRM_TIMEOUT, sent).await.unwrap_or(false) {
                peers.unconfirmed.add(peer.get(), order);
            }
        });
    }
    sending.join_all().await;
}

async fn send_to(peers: &Peers, peer: NodeIndex, order: Bytes) -> NodeReport {
    let tries = async {
        let mut answer = send(peers, peer, order.clone()).await;
        for pause in RETRY_PAUSES {
            if answer.is_ok() {
                break;
            }
            tokio::time::sleep(pause).await;
            answer = send(peers, peer, order.clone()).await;
        }
        answer
    };
    let (result, detail) = match tokio::time::timeout(CONFIRM_TIMEOUT, tries).await {
        Ok(Ok(StatusCode::OK)) => (Confirmation::Confirmed, None),
        Ok(Ok(status)) => (Confirmation::Refused, Some(format!("it answered {status}"))),
        Ok(Err(failure)) => (Confirmation::Unreachable, Some(failure.as_str().to_owned())),
        Err(_) => (Confirmation::TimedOut, None),
    };
    let name = &peers.server(peer).name;
    let pending = matches!(result, Confirmation::Unreachable | Confirmation::TimedOut);
    if pending {
        peers.unconfirmed.add(peer.get(), order);
    }
    if result != Confirmation::Confirmed {
        tracing::warn!(peer = %name, ?result, detail, pending, "a peer has not confirmed a purge");
    }
    NodeReport { node: name.to_string(), result, detail, pending }
}

/// Delivers the orders that a peer has not confirmed yet. Returns whether none is left.
pub(crate) async fn deliver(peers: &Peers, peer: NodeIndex) -> bool {
    while let Some(order) = peers.unconfirmed.first(peer.get()) {
        let answer = send(peers, peer, order.clone()).await;
        let name = &peers.server(peer).name;
        match answer {
            Ok(StatusCode::OK) => tracing::info!(peer = %name, "a pending purge is confirmed"),
            Ok(status) => tracing::error!(peer = %name, %status, "a pending purge is refused"),
            Err(_) => return false,
        }
        peers.unconfirmed.remove_first(peer.get(), &order);
    }
    true
}

/// Delivers pending orders to all peers in a loop, where there are no health probes to do so.
pub(crate) async fn run(peers: Arc<Peers>) {
    let mut ticks = tokio::time::interval(DELIVERY_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (peer, _) in peers.servers() {
            let _ = tokio::time::timeout(CONFIRM_TIMEOUT, deliver(&peers, peer)).await;
        }
    }
}

async fn send(peers: &Peers, peer: NodeIndex, order: Bytes) -> Result<StatusCode, ServerFailure> {
    let server = peers.server(peer);
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(host) = HeaderValue::from_str(&server.address.to_string()) {
        headers.insert(HOST, host);
    }
    let uri = http::Uri::from_static(PATH);
    let head = UpstreamHead { method: Method::POST, uri, headers, ..UpstreamHead::get("/") };
    server.notify(&peers.address_to(server, &head), order).await
}
