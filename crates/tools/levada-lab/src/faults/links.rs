//! Faults of the links between peers.

use std::time::Duration;

use anyhow::Context as _;
use levada_net::wire::Meter;
use tokio::time::sleep;

use super::{cluster::Cluster, stage::Stage};

/// Makes the link of one node slow, in both directions, then that of another.
pub(super) async fn slow(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    disturb(cluster, stage, |link, disturbed| {
        link.iter().for_each(|direction| direction.slow_down(if disturbed { SLOWER } else { 1 }));
    })
    .await
}

/// Loses all packets that one node sends to its peers, then those of another.
pub(super) async fn one_way(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    disturb(cluster, stage, |[sent, _], disturbed| sent.cut(disturbed)).await
}

async fn disturb(
    cluster: &Cluster<'_>,
    stage: &Stage<'_>,
    set: fn([&Meter; 2], bool),
) -> anyhow::Result<()> {
    let hosts = cluster.hosts.context("the nodes have no links")?;
    while stage.next(PAUSE).await {
        let link = hosts.link(stage.any_node());
        set(link, true);
        sleep(LENGTH).await;
        set(link, false);
    }
    Ok(())
}

/// 100 Mbit/s become 5.
const SLOWER: u32 = 20;
const LENGTH: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_secs(1);
