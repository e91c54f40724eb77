//! The task that keeps the route in step with the node.

use std::{sync::Arc, time::Duration};

use levada_cluster::announce::{OtherRoute, Route, RouteView};
use levada_edge::node::Node;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, sleep},
};

use crate::dns;

/// How often the route is decided again.
const DECISION_INTERVAL: Duration = Duration::from_secs(1);
/// How often the daemon gets the current state again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

async fn update(node: &Node, route: &Route, others: &[OtherRoute], again: bool) {
    let settings = node.settings();
    let capacity = settings.limits.capacity;
    let view = RouteView {
        draining: node.drain.is_on(),
        well: node.cut_off().is_none(),
        load: f64::from(node.capacity.held()) / f64::from(capacity.max(1)),
        capacity,
        name: &settings.name,
        others,
    };
    route.update(node.clock.uptime(), &view, again).await;
}

/// The routes of the other nodes of the cluster that answer and have one, in the order of their names.
async fn others(node: Arc<Node>) -> Vec<OtherRoute> {
    let Some(peers) = &node.peers else { return std::future::pending().await };
    sleep(DECISION_INTERVAL).await;
    let now = peers.membership();
    let mut asked = JoinSet::new();
    for (_, member) in now.all().filter(|(at, _)| *at != now.me()) {
        let member = member.clone();
        asked.spawn(async move {
            let standing = dns::standing_of(&member).await?.route?;
            Some(OtherRoute { name: member.server.name.clone(), standing })
        });
    }
    let mut others: Vec<_> = asked.join_all().await.into_iter().flatten().collect();
    others.sort_by(|a, b| a.name.cmp(&b.name));
    others
}

/// Keeps the route in step with the node while the node runs. A drain ends downloads only after the
/// route is gone: clients of downloads ended before would come back to this node.
pub(crate) async fn tend(node: Arc<Node>, route: Arc<Route>) {
    node.purging.until_serving().await;
    let mut ticks = tokio::time::interval(DECISION_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut drain, mut sent_at) = (node.drain.watch(), Instant::now());
    let (mut known, mut asking) = (Vec::new(), Box::pin(others(node.clone())));
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = drain.changed() => {}
            told = &mut asking => {
                known = told;
                asking.set(others(node.clone()));
            }
        }
        // A daemon that was restarted has lost the state.
        let again = sent_at.elapsed() > REFRESH_INTERVAL;
        if again {
            sent_at = Instant::now();
        }
        update(&node, &route, &known, again).await;
        if node.drain.is_on() && !node.drain.is_closing() && route.is_withdrawn() {
            tokio::select! {
                () = route.settled() => node.drain.close(),
                _ = drain.changed() => drain.mark_changed(),
            }
        }
    }
}
