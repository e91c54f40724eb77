//! Notices that this process stood still, and compares logs before it serves on.
//!
//! A process that was suspended, or whose machine was, does not know it. Its peers found it down, and
//! purges were confirmed without it. The requests that wait for it when it goes on must not get what
//! was purged meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use crate::orders::endpoint::PurgeEndpoint;
use levada_upstream::Clock;

/// The interval at which the process shows that it runs: several times in [`LONGEST_GAP`].
const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// A process that has not shown it for this long stood still, or is as slow as if it had.
const LONGEST_GAP: Duration = Duration::from_secs(1);
/// How long peers are tried, while requests wait. A node that is cut off from its peers then serves what it has.
const WAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// The wait before peers are asked again, when a process starts or wakes: requests wait, and peers answer from memory.
pub(super) const RETRY_BACKOFF: Duration = Duration::from_millis(100);

/// When the process was last known to run.
pub struct LastAwake {
    pub(super) clock: Clock,
    /// In milliseconds since the start.
    at: AtomicU64,
    turn: tokio::sync::Mutex<()>,
}

impl LastAwake {
    /// The process runs now.
    pub fn new(clock: Clock) -> Self {
        Self { clock, at: AtomicU64::new(0), turn: tokio::sync::Mutex::default() }
    }

    fn is_long_ago(&self) -> bool {
        let at = Duration::from_millis(self.at.load(Relaxed));
        self.clock.uptime().saturating_sub(at) > LONGEST_GAP
    }

    fn now(&self) {
        self.at.store(self.clock.uptime().as_millis() as u64, Relaxed);
    }
}

impl PurgeEndpoint {
    /// Whether purges may have been missed because the process stood still.
    pub fn stood_still(&self) -> bool {
        self.peers.is_some() && self.last_awake.is_long_ago()
    }

    /// Whether peers may take this node's log for that of a node which was never away.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.serves() && !self.stood_still()
    }

    /// Compares logs with the peers, until one that serves has been compared. A request that
    /// finds that the process stood still calls this before it serves on. Others wait for the first.
    pub async fn wake(self: &Arc<Self>) {
        let _turn = self.last_awake.turn.lock().await;
        if !self.stood_still() {
            return;
        }
        let deadline = Instant::now() + WAKE_TIMEOUT;
        while !self.compare_with_any(deadline).await && Instant::now() + RETRY_BACKOFF < deadline {
            tokio::time::sleep(RETRY_BACKOFF).await;
        }
        self.last_awake.now();
    }

    /// Shows regularly that the process runs.
    pub async fn stay_awake(self: Arc<Self>) {
        let mut ticks = self.last_awake.clock.ticks(TICK_INTERVAL);
        loop {
            ticks.tick().await;
            match self.stood_still() {
                true => self.wake().await,
                false => self.last_awake.now(),
            }
        }
    }

    /// Asks all peers at the same time. Returns whether one that serves was compared.
    async fn compare_with_any(self: &Arc<Self>, deadline: Instant) -> bool {
        let mut comparing = JoinSet::new();
        for peer in self.other_nodes() {
            let purging = self.clone();
            comparing.spawn(async move { purging.compare_logs(&peer, None).await });
        }
        while let Ok(Some(compared)) =
            tokio::time::timeout_at(deadline, comparing.join_next()).await
        {
            if let Ok(Ok(true)) = compared {
                return true;
            }
        }
        false
    }
}
