//! The memory of this process, and the bound on it.

use std::sync::{Arc, Weak};

use levada_access::{
    client_shares::ClientShares,
    memory_bound::{BoundedMemory, MemoryBound},
};
use levada_net::memory;
use prometheus_client::metrics::gauge::Gauge;

use crate::{cache::Cache, metrics::Metrics};
use levada_config::Settings;

/// So many requests are not why memory is full.
const HANDFUL: u32 = 64;

/// What can be given back of it, and who has the rest.
struct ProcessMemory {
    cache: Weak<Cache>,
    clients: Arc<ClientShares>,
    resident: Gauge,
    /// The size of the memory tier.
    tier: u64,
}

impl BoundedMemory for ProcessMemory {
    fn resident(&self) -> Option<u64> {
        let resident = memory::resident()?;
        self.resident.set(resident as i64);
        Some(resident)
    }

    fn shrink(&self, bytes: u64) {
        if let Some(cache) = self.cache.upgrade() {
            cache.store.shrink(bytes);
        }
        memory::give_back();
    }

    fn is_bare(&self) -> bool {
        let tier = self.cache.upgrade().map_or(0, |cache| cache.store.bytes());
        self.clients.held() < HANDFUL && tier <= self.tier / 16
    }
}

/// Watches the memory against its bound.
pub(crate) fn watch(
    settings: &Settings,
    cache: &Arc<Cache>,
    clients: &Arc<ClientShares>,
    metrics: &Metrics,
) -> Arc<MemoryBound> {
    let bound = MemoryBound::new(limit(settings, metrics));
    let resident = metrics.memory_resident.clone();
    let (cache, clients) = (Arc::downgrade(cache), clients.clone());
    bound.watch(ProcessMemory { cache, clients, resident, tier: settings.cache.memory });
    bound
}

/// The limit that the settings want. Warns if the memory tier will not have room within it.
pub(crate) fn limit(settings: &Settings, metrics: &Metrics) -> u64 {
    let limit = settings.limits.memory.unwrap_or_else(memory::default_bound);
    metrics.memory_limit.set(limit.try_into().unwrap_or(i64::MAX));
    let tier = settings.cache.memory;
    if tier > limit / 2 {
        tracing::warn!(
            limit,
            tier,
            "`cache.memory` is more than half of `limits.memory`, which follows from the machine: the memory tier will shrink under load"
        );
    }
    limit
}
