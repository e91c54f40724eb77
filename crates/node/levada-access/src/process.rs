//! The process of a node: its figures, under the names that dashboards know, and its memory within the bound.

use std::{
    sync::{Arc, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

use levada_net::{memory, open_files};
use levada_observe::metrics::{Gauge, MetricKind, Reading, Registry, cpu_time};
use levada_store::Store;

use crate::{
    client_shares::ClientShares,
    memory_bound::{BoundedMemory, MemoryBound},
};

/// So many requests are not why memory is full.
const HANDFUL: u32 = 64;

/// Shows what every program of the field says of its process. Figures that the system does not know are left out.
pub fn show(registry: &mut Registry) {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let whole = |value: Option<u64>| Some(Reading::Whole(value?.into()));
    let cpu = || Some(Reading::Number(cpu_time().as_secs_f64()));
    registry.value("cpu_seconds", "CPU time, user and system", MetricKind::Counter, cpu);
    let mut gauge = |name, help, value: fn() -> Option<u64>| {
        registry.value(name, help, MetricKind::Gauge, move || whole(value()));
    };
    gauge("open_fds", "Open files and sockets", open_files::count);
    gauge("max_fds", "The most files and sockets", open_files::limit);
    gauge("virtual_memory_bytes", "Address space", memory::taken);
    gauge("resident_memory_bytes", "Resident memory", memory::resident);
    let (name, help) = ("start_time_seconds", "Start of the process (Unix time)");
    let started = Reading::Number(started.as_secs_f64());
    registry.value(name, help, MetricKind::Gauge, move || Some(started.clone()));
}

/// The metrics of the process's memory.
pub struct MemoryMetrics {
    /// Resident memory.
    pub resident: Gauge,
    /// The bound on it.
    pub limit: Gauge,
}

impl MemoryMetrics {
    /// The metrics, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            resident: registry.metric("memory_resident_bytes", "Resident memory of this process"),
            limit: registry
                .metric("memory_limit_bytes", "The bound on the resident memory (`limits.memory`)"),
        }
    }

    /// The bound, if `limit` is configured; by default it follows from the machine. Warns if the memory tier of
    /// `tier` bytes will not have room within it.
    pub fn bound(&self, limit: Option<u64>, tier: u64) -> u64 {
        let limit = limit.unwrap_or_else(memory::default_bound);
        self.limit.set(limit);
        if tier > limit / 2 {
            tracing::warn!(
                limit,
                tier,
                "`cache.memory` is more than half of `limits.memory`, which follows from the machine: the memory tier will shrink under load"
            );
        }
        limit
    }
}

/// The memory that can be given back, and the clients that have the rest.
struct ProcessMemory {
    store: Weak<Store>,
    clients: Arc<ClientShares>,
    resident: Gauge,
    /// The size of the memory tier.
    tier: u64,
}

impl BoundedMemory for ProcessMemory {
    fn resident(&self) -> Option<u64> {
        let resident = memory::resident()?;
        self.resident.set(resident);
        Some(resident)
    }

    fn shrink(&self, bytes: u64) {
        if let Some(store) = self.store.upgrade() {
            store.shrink(bytes);
        }
        memory::give_back();
    }

    fn is_bare(&self) -> bool {
        let tier = self.store.upgrade().map_or(0, |store| store.bytes());
        self.clients.held() < HANDFUL && tier <= self.tier / 16
    }

    fn is_idle(&self) -> bool {
        self.clients.held() == 0
    }
}

/// Watches the memory against a limit, with a store whose memory tier has a size of `tier`.
pub fn watch_memory(
    limit: u64,
    (store, tier): (&Arc<Store>, u64),
    clients: &Arc<ClientShares>,
    metrics: &MemoryMetrics,
) -> Arc<MemoryBound> {
    let bound = MemoryBound::new(limit);
    let (store, clients) = (Arc::downgrade(store), clients.clone());
    bound.watch(ProcessMemory { store, clients, resident: metrics.resident.clone(), tier });
    bound
}
