//! The task that keeps the route in step with the node.

use std::{sync::Arc, time::Duration};

use levada_cluster::announce::{Route, RouteView};
use levada_edge::node::Node;
use tokio::time::{Instant, MissedTickBehavior};

/// How often the route is decided again.
const DECISION_INTERVAL: Duration = Duration::from_secs(1);
/// How often the daemon gets the current state again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

fn view(node: &Node) -> RouteView {
    let load = f64::from(node.capacity.held()) / f64::from(node.settings().limits.capacity.max(1));
    RouteView { draining: node.drain.is_on(), well: node.cut_off().is_none(), load }
}

/// Keeps the route in step with the node while the node runs. A drain ends downloads only after the
/// route is gone: clients of downloads ended before would come back to this node.
pub(crate) async fn tend(node: Arc<Node>, route: Arc<Route>) {
    node.purging.until_serving().await;
    let mut ticks = tokio::time::interval(DECISION_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut drain, mut sent_at) = (node.drain.watch(), Instant::now());
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = drain.changed() => {}
        }
        // A daemon that was restarted has lost the state.
        let again = sent_at.elapsed() > REFRESH_INTERVAL;
        if again {
            sent_at = Instant::now();
        }
        route.update(node.clock.uptime(), &view(&node), again).await;
        if node.drain.is_on() && !node.drain.is_closing() && route.is_withdrawn() {
            tokio::select! {
                () = route.settled() => node.drain.close(),
                _ = drain.changed() => drain.mark_changed(),
            }
        }
    }
}
