//! The end of rules: when everything stored has been held against a rule, and nothing older than it
//! is still on its way into the store, nobody needs it any more.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use levada_types::Key;
use parking_lot::Mutex;

use super::Purges;
use super::since::Invalidated;
use levada_store::Store;

/// How long purges are gathered before a sweep.
const GATHER: Duration = Duration::from_millis(500);
/// When rules are still needed after a sweep: until the next.
const AGAIN: Duration = Duration::from_secs(5);

/// Whatever is on its way into a tier: how many, by the newest purge when they began.
#[derive(Debug, Default)]
pub(super) struct PendingStores {
    table: Mutex<BTreeMap<u64, usize>>,
    pub(super) invalidated: Invalidated,
}

/// Something on its way into a tier, from before it is judged until after it is stored: a fetch, or a
/// promotion from disk. Rules that may cover it stay while it lives.
#[derive(Debug)]
pub(crate) struct PendingStore {
    flights: Arc<PendingStores>,
    born: u64,
    begun: u64,
}

impl PendingStore {
    pub(super) fn begin(flights: &Arc<PendingStores>, latest: impl FnOnce() -> u64) -> Self {
        let begun = flights.invalidated.now();
        let mut table = flights.table.lock();
        // Read under the lock: a sweep that does not see this flight has begun before it.
        let born = latest();
        *table.entry(born).or_default() += 1;
        Self { flights: flights.clone(), born, begun }
    }

    /// Whether this URI was invalidated since it began.
    pub(crate) fn is_outdated(&self, uri: Key) -> bool {
        self.flights.invalidated.since(self.begun, uri)
    }

    /// When it began, in invalidations.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// The newest purge when it began.
    pub(crate) fn born(&self) -> u64 {
        self.born
    }
}

impl Drop for PendingStore {
    fn drop(&mut self) {
        let mut table = self.flights.table.lock();
        if let Some(count) = table.get_mut(&self.born) {
            *count -= 1;
            if *count == 0 {
                table.remove(&self.born);
            }
        }
    }
}

impl PendingStores {
    /// Up to which number no rule covers anything under way, if that is up to `latest` at most.
    fn none_older_than(&self, latest: impl FnOnce() -> u64) -> u64 {
        let table = self.table.lock();
        let latest = latest();
        table.keys().next().map_or(latest, |born| latest.min(*born))
    }
}

/// Applies rules to everything stored, soon after they came, for ever.
pub(crate) async fn run(store: Arc<Store>, purges: Arc<Purges>) {
    loop {
        if purges.rules.len() == 0 {
            purges.added.notified().await;
            tokio::time::sleep(GATHER).await;
        } else {
            // Something older than a rule was still under way.
            let _ = tokio::time::timeout(AGAIN, purges.added.notified()).await;
        }
        sweep(&store, &purges).await;
    }
}

/// One pass over every tier, then over the rules: they are forgotten when what they cover has left the
/// directory, or a crash would bring it back.
async fn sweep(store: &Arc<Store>, purges: &Arc<Purges>) {
    // Taken before the tiers are gone through: what is stored by then will be found there, and what
    // is not is counted as under way.
    let done = purges.flights.none_older_than(|| purges.rules.latest());
    let (tiers, rules) = (store.clone(), purges.clone());
    let memory = move || tiers.sweep(|object| rules.may_keep(object));
    if let Err(error) = tokio::task::spawn_blocking(memory).await {
        tracing::error!(%error, "a sweep after purges failed");
        return;
    }
    store.sweep_disk(|identity, label| purges.keep_on_disk(identity, label)).await;
    purges.forget(done);
}
