//! Learns the purges of a node's absence before the node serves anything.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::Instant};

use crate::orders::{endpoint::PurgeEndpoint, wake::RETRY_BACKOFF};

/// How long one peer may take to pass on all that this node lacks, while this node serves nothing yet.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

fn compared(count: usize, of: usize) -> String {
    match count {
        0 => format!("compared with none of {of} peers"),
        _ => format!("compared with {count} of {of} peers, none of which serves clients"),
    }
}

impl PurgeEndpoint {
    /// Returns when this node has compared its log with a peer that serves clients, or with all peers. A
    /// peer that is starting itself may have missed the same orders.
    ///
    /// A node that reaches none within `timeout` goes on alone. It then validates everything that it
    /// stored before its start.
    pub async fn catch_up(self: &Arc<Self>, timeout: Duration) {
        let others = self.other_nodes();
        if others.is_empty() || !self.purges.has_past() {
            return;
        }
        let deadline = Instant::now() + timeout;
        let progress = self.awaited.begin("purges", compared(0, others.len()));
        loop {
            let mut comparing = JoinSet::new();
            for peer in &others {
                let (purging, peer) = (self.clone(), peer.clone());
                comparing.spawn(async move {
                    let compared = purging.compare_logs(&peer, None);
                    tokio::time::timeout(PEER_TIMEOUT, compared).await.ok()?.ok()
                });
            }
            let outcomes = comparing.join_all().await;
            let count = outcomes.iter().flatten().count();
            progress.is_now(compared(count, others.len()));
            if outcomes.contains(&Some(true)) || !outcomes.contains(&None) {
                return;
            }
            if Instant::now() + RETRY_BACKOFF > deadline {
                break;
            }
            tokio::time::sleep(RETRY_BACKOFF).await;
        }
        tracing::warn!(
            "no peer that serves clients can be reached: what was stored before is validated, because it may have been purged"
        );
        self.purges.expire_all().await;
    }

    /// Whether this node serves clients and peers.
    pub fn serves(&self) -> bool {
        *self.serving.borrow()
    }

    /// Serves clients and peers from now on.
    pub fn serve(&self) {
        self.serving.send_replace(true);
    }

    /// Returns when the node serves clients and peers.
    pub async fn until_serving(&self) {
        // The sender lives as long as this does.
        let _ = self.serving.subscribe().wait_for(|serving| *serving).await;
    }
}
