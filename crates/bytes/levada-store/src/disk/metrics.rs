//! The metrics of the disk tier.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::trouble::Kind;

type Labelled = Family<[(&'static str, &'static str); 1], Counter>;

/// The counters of a disk tier.
#[derive(Clone, Debug, Default)]
pub struct DiskMetrics {
    pub(super) bytes: Gauge,
    pub(super) entries: Gauge,
    pub(super) queue_bytes: Gauge,
    pub(super) scanned: Gauge,
    pub(super) hits: Counter,
    pub(super) sent_files: Counter,
    pub(super) misses: Counter,
    pub(super) writes: Counter,
    pub(super) written_bytes: Counter,
    pub(super) evictions: Counter,
    pub(super) damaged: Counter,
    pub(super) foreign: Counter,
    dropped: Labelled,
    errors: Labelled,
}

impl DiskMetrics {
    /// The counters, shown by `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("cache_disk");
        let gauges = [
            ("bytes", "Bytes taken on the disk, with directories and inodes", &metrics.bytes),
            ("entries", "Records on the disk", &metrics.entries),
            ("queue_bytes", "Bytes that wait to be written to the disk", &metrics.queue_bytes),
            ("scanned", "Whether all that is on the disk is known", &metrics.scanned),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        let counters = [
            ("hits", "Records found on the disk", &metrics.hits),
            ("sent_files", "Records sent from their files", &metrics.sent_files),
            ("misses", "Records asked of the disk in vain", &metrics.misses),
            ("writes", "Records written to the disk", &metrics.writes),
            ("written_bytes", "Bytes of records written to the disk", &metrics.written_bytes),
            ("evictions", "Records evicted from the disk", &metrics.evictions),
            ("damaged", "Records found damaged, and removed", &metrics.damaged),
            ("foreign", "Files that are no records, and were removed", &metrics.foreign),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        registry.register("dropped", "Records not written, by reason", metrics.dropped.clone());
        registry.register("errors", "Errors of the disk, by kind", metrics.errors.clone());
        metrics
    }

    pub(super) fn dropped(&self, reason: &'static str) {
        self.dropped.get_or_create(&[("reason", reason)]).inc();
    }

    pub(super) fn error(&self, kind: Kind) {
        self.errors.get_or_create(&[("kind", kind.as_str())]).inc();
    }

    #[cfg(test)]
    pub(super) fn dropped_for(&self, reason: &'static str) -> u64 {
        self.dropped.get_or_create(&[("reason", reason)]).get()
    }

    #[cfg(test)]
    pub(super) fn errors_of(&self, kind: Kind) -> u64 {
        self.errors.get_or_create(&[("kind", kind.as_str())]).get()
    }
}
