//! Compares purge logs with peers: when an order is given, and with every health probe.
//!
//! A peer that was down does not count as up again before it has every order. Every node that has an order
//! passes it on, so it arrives even if the node that was given it is gone.

use std::{sync::Arc, time::Duration};

use crate::nodes::{Member, WatchedPeer};
use crate::purge::{Confirmation, Exchange, NodeReport, OrderId};
use bytes::Bytes;
use http::{Method, StatusCode};
use levada_upstream::{Change, HealthCheck, Server, ServerFailure, ServerKind, WatchedServer};
use tokio::task::JoinSet;

use crate::orders::endpoint::PurgeEndpoint;

/// How long a peer may take to confirm, all tries together. A peer that is up confirms in milliseconds; one that
/// takes longer gets the order with the next comparison of logs.
pub(super) const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// The waits before the second and the third try.
const RETRY_BACKOFFS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
/// The interval at which logs are compared where no probe does it.
const COMPARE_INTERVAL: Duration = Duration::from_secs(1);

/// Peers post messages about their logs to this path.
pub(crate) const PATH: &str = "/.levada/purge";

/// The most bytes of a message. Its orders take 512 KiB and one order more, and JSON's escapes come on top.
pub(crate) const MAX_MESSAGE_SIZE: usize = 8 << 20;

/// Why a peer is not known to have every order.
#[derive(Debug)]
pub(crate) enum ExchangeFailure {
    /// There is no answer.
    Unreachable(ServerFailure),
    /// It does not take the message.
    Refused(StatusCode),
    /// One of the two cannot keep an order.
    Unwritten(String),
}

impl PurgeEndpoint {
    /// Tells all peers at the same time that there is a new order. Returns what each has confirmed, except for
    /// those that leave meanwhile.
    pub(crate) async fn tell_peers(self: &Arc<Self>, id: OrderId) -> Vec<NodeReport> {
        let mut telling = JoinSet::new();
        for (at, peer) in self.other_nodes().into_iter().enumerate() {
            let purging = self.clone();
            telling.spawn(async move { (at, purging.tell_member(peer, id).await) });
        }
        let mut reports = telling.join_all().await;
        reports.sort_by_key(|(at, _)| *at);
        reports.into_iter().filter_map(|(_, report)| report).collect()
    }

    /// Tells a peer, at whatever address it is. `None` when it has left.
    async fn tell_member(&self, mut peer: Arc<Member>, id: OrderId) -> Option<NodeReport> {
        loop {
            tokio::select! {
                report = self.tell(&peer, id) => return Some(report),
                () = peer.gone() => {}
            }
            let now = self.peers.as_ref()?.membership();
            peer = now.named(&peer.server.name)?.clone();
        }
    }

    async fn tell(&self, peer: &Member, id: OrderId) -> NodeReport {
        let tries = async {
            let mut told = self.compare_logs(peer, Some(id)).await;
            for pause in RETRY_BACKOFFS {
                if !matches!(told, Err(ExchangeFailure::Unreachable(_))) {
                    break;
                }
                tokio::time::sleep(pause).await;
                told = self.compare_logs(peer, Some(id)).await;
            }
            told
        };
        let (result, detail) = match tokio::time::timeout(CONFIRM_TIMEOUT, tries).await {
            Ok(Ok(_)) => (Confirmation::Confirmed, None),
            Ok(Err(failure)) => failure.into_result(),
            Err(_) => (Confirmation::Pending, Some("it does not answer".to_owned())),
        };
        let node = peer.server.name.to_string();
        if result != Confirmation::Confirmed {
            tracing::warn!(peer = node, ?result, detail, "a peer has not confirmed a purge");
        }
        NodeReport { node, result, detail }
    }

    /// The state of an order at every peer, as far as it is known.
    pub(crate) fn peers_about(&self, id: OrderId) -> Vec<NodeReport> {
        let about = |peer: Arc<Member>| {
            let server = &peer.server;
            let result = match (peer.log.has(id), server.health.is_up()) {
                (true, _) => Confirmation::Confirmed,
                (false, true) => Confirmation::Pending,
                (false, false) => Confirmation::Unreachable,
            };
            NodeReport { node: server.name.to_string(), result, detail: None }
        };
        self.other_nodes().into_iter().map(about).collect()
    }

    /// Exchanges messages with a peer until neither lacks an order that the other had at the beginning, or
    /// until the peer has `wanted`. Returns whether the peer serves clients.
    ///
    /// # Errors
    /// When this cannot be reached.
    pub(crate) async fn compare_logs(
        &self,
        peer: &Member,
        wanted: Option<OrderId>,
    ) -> Result<bool, ExchangeFailure> {
        let (log, purges) = (&peer.log, &self.purges);
        let _turn = log.turn().await;
        // The exchange before may have taken it along.
        if wanted.is_some_and(|id| log.has(id)) {
            return Ok(true);
        }
        // Orders that arrive meanwhile are not waited for: there may always be another.
        let (ours, mut theirs) = (purges.known(), None);
        let mut before = None;
        loop {
            let known = log.known();
            let message = purges.message(self.has_caught_up(), known.as_ref());
            let progress = Some((known, message.logs.clone()));
            if progress == before {
                return Err(ExchangeFailure::Unwritten(
                    "it does not take what it lacks".to_owned(),
                ));
            }
            before = progress;
            let reply = send(peer, PATH, message.to_json().into()).await?;
            let reply = Exchange::from_json(&reply)
                .map_err(|_| ExchangeFailure::Refused(StatusCode::UNPROCESSABLE_ENTITY))?;
            let (serves, known) = (reply.serves, reply.logs.clone());
            log.learn(known.clone());
            self.merge(reply).await.map_err(|error| {
                ExchangeFailure::Unwritten(format!("this node cannot keep its orders: {error}"))
            })?;
            let in_step = known.covers(&ours);
            let in_step = purges.known().covers(theirs.get_or_insert(known)) && in_step;
            if in_step || wanted.is_some_and(|id| log.has(id)) {
                return Ok(serves);
            }
        }
    }

    /// The orders that peers are not known to have, all peers together.
    pub fn pending(&self) -> u64 {
        let lacking = |peer: Arc<Member>| {
            let known = peer.log.known().unwrap_or_default();
            self.purges.lacking(&known)
        };
        self.other_nodes().into_iter().map(lacking).sum::<u64>() + self.missed.count()
    }

    /// Compares logs with all peers in a loop, while there are no health probes to do so.
    pub async fn compare_regularly(self: Arc<Self>) {
        let mut ticks = self.last_awake.clock.ticks(COMPARE_INTERVAL);
        loop {
            ticks.tick().await;
            let probes = self.peers.as_ref().map(|peers| peers.now().settings().health.interval);
            if probes.is_some_and(|interval| !interval.is_zero()) {
                continue;
            }
            for peer in self.other_nodes() {
                let compared = self.compare_logs(&peer, None);
                let _ = tokio::time::timeout(CONFIRM_TIMEOUT, compared).await;
            }
        }
    }

    pub(crate) fn other_nodes(&self) -> Vec<Arc<Member>> {
        self.peers.as_ref().map_or_else(Vec::new, |peers| peers.now().others().cloned().collect())
    }
}

impl ExchangeFailure {
    fn into_result(self) -> (Confirmation, Option<String>) {
        match self {
            Self::Unreachable(failure @ ServerFailure::Stranger) => {
                (Confirmation::Refused, Some(failure.as_str().to_owned()))
            }
            Self::Unreachable(failure) => {
                (Confirmation::Unreachable, Some(failure.as_str().to_owned()))
            }
            Self::Refused(status) => (Confirmation::Refused, Some(format!("it answered {status}"))),
            Self::Unwritten(reason) => (Confirmation::Pending, Some(reason)),
        }
    }
}

/// Posts JSON to a peer. Returns its answer.
pub(crate) async fn send(
    peer: &Member,
    path: &'static str,
    json: Bytes,
) -> Result<Bytes, ExchangeFailure> {
    let asked = peer.ask(Method::POST, path, json, MAX_MESSAGE_SIZE).await;
    match asked.map_err(ExchangeFailure::Unreachable)? {
        (StatusCode::OK, answer) => Ok(answer),
        (StatusCode::SERVICE_UNAVAILABLE, reason) => {
            let reason = String::from_utf8_lossy(&reason).trim().chars().take(200).collect();
            Err(ExchangeFailure::Unwritten(reason))
        }
        (status, _) => Err(ExchangeFailure::Refused(status)),
    }
}

/// A peer under watch, which is well when it has every order.
pub struct ComparedPeer {
    /// The peer.
    pub peer: WatchedPeer,
    /// Compares logs with it.
    pub purging: Arc<PurgeEndpoint>,
}

impl WatchedServer for ComparedPeer {
    const KIND: ServerKind = WatchedPeer::KIND;

    fn server(&self) -> &Arc<Server> {
        self.peer.server()
    }

    fn check(&self) -> &HealthCheck {
        self.peer.check()
    }

    async fn probe(&self) -> bool {
        // A peer of another version, or one that cannot write its journal, still serves what it may.
        self.peer.probe().await
            && !matches!(
                self.purging.compare_logs(&self.peer.member, None).await,
                Err(ExchangeFailure::Unreachable(_))
            )
    }

    /// A probe shows only that a peer is there, unless orders are to be passed on with it.
    fn counts_answers(&self) -> bool {
        let known = self.peer.member.log.known();
        known.is_some_and(|known| self.purging.purges.lacking(&known) == 0)
    }

    fn changed(&self, change: Change) {
        self.peer.changed(change);
    }
}
