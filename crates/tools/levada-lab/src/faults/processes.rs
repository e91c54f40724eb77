//! Faults of processes: nodes are killed, suspended and restarted.

use std::time::Duration;

use tokio::time::sleep;

use super::{cluster::Cluster, network::NODES, stage::Stage};

/// Kills a node every two seconds, and starts it again after one.
pub(super) async fn kill(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    while stage.next(KILL_INTERVAL).await {
        let at = stage.any_node();
        cluster.kill(at).await;
        sleep(KILL_INTERVAL / 2).await;
        cluster.restart(at).await?;
    }
    Ok(())
}

/// Suspends a node every two seconds, for more than the second after which it notices that it stood
/// still; every fourth time for so long that all requests which wait for it have to find another way.
pub(super) async fn suspend(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    for strike in 1_u64.. {
        if !stage.next(KILL_INTERVAL).await {
            break;
        }
        let at = stage.any_node();
        let short = Duration::from_secs_f64(1.2 + 0.6 * stage.rng.borrow_mut().unit());
        cluster.suspend(at)?;
        sleep(if strike.is_multiple_of(4) { LONG } else { short }).await;
        cluster.resume(at)?;
    }
    Ok(())
}

/// Restarts all nodes in turn.
pub(super) async fn restart(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    for at in (0..NODES).cycle() {
        if !stage.next(KILL_INTERVAL / 4).await {
            break;
        }
        cluster.stop(at).await?;
        cluster.restart(at).await?;
    }
    Ok(())
}

/// The time between two kills: a node is away for half of it, and catches up in the other half.
const KILL_INTERVAL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(5);
