//! Disks that are slow, or that stand.

use std::time::Duration;

use anyhow::Context as _;
use levada_net::lab::file_system::{ReadPace, forget};
use tokio::time::sleep;

use super::{cluster::Cluster, disks::files, network::NODES, stage::Stage};

/// Lets the disks of all nodes be slow for a second, then well, then stand for a second, then well.
pub(super) async fn hold_back(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let group = cluster.held_back.context("the nodes have no control group")?;
    for turn in 0.. {
        let is_over = !stage.next(TURN).await;
        let pace = match turn % 4 {
            _ if is_over => ReadPace::Free,
            0 => ReadPace::Slow,
            2 => ReadPace::Stands,
            _ => ReadPace::Free,
        };
        let caches: Vec<_> = (0..NODES).map(|at| cluster.cache(at)).collect();
        if pace != ReadPace::Free {
            caches.iter().flat_map(|cache| files(cache)).for_each(|file| forget(&file));
            // Records that are being sent from their files are read again meanwhile.
            sleep(SENT).await;
        }
        caches.iter().try_for_each(|cache| group.set(cache, pace))?;
        if is_over {
            break;
        }
    }
    Ok(())
}

const TURN: Duration = Duration::from_secs(1);
/// The time for a block that is being sent.
const SENT: Duration = Duration::from_millis(250);
