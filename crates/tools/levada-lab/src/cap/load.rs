//! The clients of a plan, over real connections.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use levada_sim::prototype::Plan;
use tokio::task::JoinSet;

use crate::{
    cluster::RETRY_BACKOFF,
    emulation::{client::Client, cluster::Cluster, run},
};

/// Clients at work.
pub(super) struct CapClients {
    tasks: JoinSet<()>,
    failed: Arc<AtomicU64>,
}

/// Starts clients that run until they are stopped; `once` makes a connection for each request.
pub(super) fn start(plan: &Plan, time_scale: f64, once: bool, cluster: &Cluster) -> CapClients {
    let failed = Arc::<AtomicU64>::default();
    let mut tasks = JoinSet::new();
    for mut visitor in plan.visitors() {
        let (site, failed, server) = (plan.site.clone(), failed.clone(), cluster.address);
        tasks.spawn(async move {
            let client = Client::of(server);
            let mut client = if once { client.asking_once() } else { client };
            loop {
                let (think, ask) = visitor.next(&site);
                if !think.is_zero() {
                    tokio::time::sleep(think.mul_f64(time_scale)).await;
                }
                let target = site.target(ask);
                if let Err(error) = client.get(&target, site.size(ask)).await {
                    failed.fetch_add(1, Relaxed);
                    tracing::warn!(%error, target, "a request failed");
                    tokio::time::sleep(RETRY_BACKOFF).await;
                }
            }
        });
    }
    CapClients { tasks, failed }
}

impl run::Clients for CapClients {
    fn end(mut self) -> u64 {
        self.tasks.abort_all();
        self.failed.load(Relaxed)
    }
}
