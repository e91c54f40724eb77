//! The clients of a plan, over real connections.

use anyhow::Context as _;
use levada_sim::prototype::Plan;
use levada_testbed::{
    cluster::load::ClosedLoop,
    emulation::{client::Client, cluster::Cluster},
};
use tokio::time::sleep;

/// Starts clients that run until they are stopped; `once` makes a connection for each request.
pub(super) fn start(plan: &Plan, time_scale: f64, once: bool, cluster: &Cluster) -> ClosedLoop {
    ClosedLoop::start(plan.visitors().map(|mut visitor| {
        let (site, client) = (plan.site.clone(), Client::of(cluster.address(), once));
        async move || {
            let (think, ask) = visitor.next(&site);
            if !think.is_zero() {
                sleep(think.mul_f64(time_scale)).await;
            }
            let target = site.target(ask);
            client.get(&target, site.size(ask)).await.context(target).map(drop)
        }
    }))
}
