//! Drops rules that are not needed any more: everything stored has been checked against them, and
//! nothing older than them is on its way into the store.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use levada_store::Store;
use levada_types::Key;
use parking_lot::Mutex;

use crate::purge::{Purges, invalidated::Invalidated};

/// How long purges are collected before a sweep, which goes through the whole store for all of them.
const GATHER_DELAY: Duration = Duration::from_millis(500);
/// The wait before the next sweep when rules are still needed: fetches that they wait for end meanwhile.
const RETRY_BACKOFF: Duration = Duration::from_secs(5);

/// The number of responses on their way into a tier, by the newest purge when they began.
#[derive(Debug, Default)]
pub(crate) struct PendingStores {
    table: Mutex<BTreeMap<u64, usize>>,
    pub(crate) invalidated: Invalidated,
}

/// A response on its way into a tier, from before it is checked until after it is stored: a fetch, or a
/// promotion from disk. Rules that may cover it are kept while it lives.
#[derive(Debug)]
pub struct PendingStore {
    pending_stores: Arc<PendingStores>,
    born: u64,
    begun: u64,
}

impl PendingStore {
    pub(crate) fn begin(pending_stores: &Arc<PendingStores>, latest: impl FnOnce() -> u64) -> Self {
        let begun = pending_stores.invalidated.now();
        let mut table = pending_stores.table.lock();
        // Read under the lock: a sweep that does not see this entry took its number before.
        let born = latest();
        *table.entry(born).or_default() += 1;
        Self { pending_stores: pending_stores.clone(), born, begun }
    }

    /// Whether this URI was invalidated since the fetch began.
    pub fn is_outdated(&self, uri: Key) -> bool {
        self.pending_stores.invalidated.since(self.begun, uri)
    }

    /// When the fetch began, in invalidations.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// The newest purge when the fetch began.
    pub fn born(&self) -> u64 {
        self.born
    }
}

impl Drop for PendingStore {
    fn drop(&mut self) {
        let mut table = self.pending_stores.table.lock();
        if let Some(count) = table.get_mut(&self.born) {
            *count -= 1;
            if *count == 0 {
                table.remove(&self.born);
            }
        }
    }
}

impl PendingStores {
    /// The largest number up to which no rule covers a pending store, at most `latest`.
    fn none_older_than(&self, latest: impl FnOnce() -> u64) -> u64 {
        let table = self.table.lock();
        let latest = latest();
        table.keys().next().map_or(latest, |born| latest.min(*born))
    }
}

/// Applies new rules to everything stored, in a loop.
pub async fn run(store: Arc<Store>, purges: Arc<Purges>) {
    loop {
        if purges.rules.len() == 0 {
            purges.added.notified().await;
            tokio::time::sleep(GATHER_DELAY).await;
        } else {
            // A store older than a rule was still pending: sweep again later.
            let _ = tokio::time::timeout(RETRY_BACKOFF, purges.added.notified()).await;
        }
        sweep(&store, &purges).await;
    }
}

/// Sweeps every tier, then drops the rules. A rule is dropped only when the responses it covers have
/// left the directory, or a crash would bring them back.
async fn sweep(store: &Arc<Store>, purges: &Arc<Purges>) {
    if purges.rules.is_retired() {
        return;
    }
    // Taken before the sweep of the tiers: a response that is stored by then is found there, and any
    // other counts as pending.
    let done = purges.pending_stores.none_older_than(|| purges.rules.latest());
    let (tiers, rules) = (store.clone(), purges.clone());
    let memory = move || tiers.sweep(|object| rules.stays(object));
    if let Err(error) = tokio::task::spawn_blocking(memory).await {
        tracing::error!(%error, "a sweep after purges failed");
        return;
    }
    store.sweep_disk(|identity, label| purges.keep_on_disk(identity, label)).await;
    purges.forget(done).await;
}

#[cfg(test)]
mod tests {
    use levada_observe::metrics::Registry;
    use levada_store::{CacheSettings, disk::DiskMetrics};

    use super::*;
    use crate::purge::Rule;

    #[tokio::test]
    async fn rule_is_dropped_when_nothing_that_began_before_it_is_pending() {
        let metrics = DiskMetrics::registered(&mut Registry::default());
        let store = Arc::new(Store::open(&CacheSettings::default(), &metrics).unwrap());
        let purges = Arc::new(Purges::open(None, false, false, None));
        let order = |url| purges.rules.add(&[Rule::url(1, url, false)], purges.latest() + 1, 1000);
        let before = purges.begin();
        order("http://a.test/x");
        let between = purges.begin();
        order("http://a.test/y");
        for (ends, left) in [(None, 2), (Some(before), 1), (Some(between), 0)] {
            drop(ends);
            sweep(&store, &purges).await;
            assert_eq!(purges.rule_count(), left);
        }
    }
}
