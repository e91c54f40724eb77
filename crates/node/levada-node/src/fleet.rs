//! A node of a fleet: the hands of the follower in levada-fleet.

use std::{future::Future, pin::Pin, sync::Arc};

use levada_cluster::events::EventKind;
use levada_control::status::LatencyCounts;
use levada_edge::node::Node;
use levada_fleet::{FollowedNode, model::Health};
use levada_net::stop::Stop;
use levada_observe::metrics::CacheResult;
use parking_lot::Mutex;

use crate::reload::Reloader;

/// A node that follows a fleet.
pub(crate) struct FleetNode {
    reloader: Arc<Reloader>,
    stop: Stop,
    /// The counts at the last mark.
    mark: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    failed: u64,
    latencies: LatencyCounts,
}

impl FleetNode {
    pub(crate) fn new(reloader: &Arc<Reloader>, stop: &Stop) -> Self {
        Self { reloader: reloader.clone(), stop: stop.clone(), mark: Mutex::default() }
    }

    fn counts(&self) -> Counts {
        let node = &self.reloader.node;
        let (totals, requests) = (node.totals(), &node.metrics.requests);
        // Another node answers for what went on to it: the faults of a canary are not those of its peers.
        let relayed = |from_peer| requests.count(from_peer, CacheResult::Relayed);
        let all = totals.client_requests + totals.peer_requests;
        Counts {
            requests: all.saturating_sub(relayed(false) + relayed(true)),
            failed: requests.server_errors(),
            latencies: totals.latencies,
        }
    }
}

impl FollowedNode for FleetNode {
    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async { self.reloader.reload(&self.stop).await.map(drop) })
    }

    fn missing(&self) -> Vec<String> {
        self.reloader.node.missing()
    }

    fn health(&self, from_now: bool) -> Health {
        let (now, mut mark) = (self.counts(), self.mark.lock());
        if from_now {
            *mark = now;
            return Health::default();
        }
        Health {
            requests: now.requests.saturating_sub(mark.requests),
            failed: now.failed.saturating_sub(mark.failed),
            p90: now.latencies.since(&mark.latencies).percentile(0.9),
        }
    }

    fn drain(&self, drained: bool) {
        let node = &self.reloader.node;
        match drained {
            true => begin_drain(node, node.settings().limits.drain_rate),
            false => undo_drain(node),
        }
    }
}

/// Begins a drain that ends so many downloads per second.
pub(crate) fn begin_drain(node: &Node, rate: u32) {
    node.drain.begin(rate);
    // A node with a route ends downloads only after the route is withdrawn.
    if node.route.is_none() {
        node.drain.close();
    }
    let downloads = node.drain.running();
    tracing::info!(downloads, "draining");
    node.events.tell(EventKind::DrainBegun, format!("the node drains: {downloads} long downloads"));
}

/// Takes a node into service again.
pub(crate) fn undo_drain(node: &Node) {
    node.drain.undo();
    tracing::info!("the drain is undone");
    node.events.tell(EventKind::DrainUndone, "the node is in service again");
}
