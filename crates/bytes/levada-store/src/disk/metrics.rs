//! The metrics of the disk tier.

use levada_observe::metrics::{Counter, Family, Gauge, Registry};

use super::trouble::Kind;

type Labelled = Family<[&'static str; 1], Counter>;

/// The counters of a disk tier.
#[derive(Clone)]
pub struct DiskMetrics {
    pub(super) bytes: Gauge,
    pub(super) entries: Gauge,
    pub(super) queue_bytes: Gauge,
    pub(super) scanned: Gauge,
    pub(super) hits: Counter,
    pub(super) sent_files: Counter,
    pub(super) misses: Counter,
    pub(super) slow: Gauge,
    pub(super) passed_by: Counter,
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
        let registry = registry.part("cache_disk");
        Self {
            bytes: registry.metric("bytes", "Bytes taken on the disk, with directories and inodes"),
            entries: registry.metric("entries", "Records on the disk"),
            queue_bytes: registry
                .metric("queue_bytes", "Bytes that wait to be written to the disk"),
            scanned: registry.metric("scanned", "Whether all that is on the disk is known"),
            hits: registry.metric("hits", "Records found on the disk"),
            sent_files: registry.metric("sent_files", "Records sent from their files"),
            misses: registry.metric("misses", "Records asked of the disk in vain"),
            slow: registry.metric("slow", "Whether reads of the disk take long"),
            passed_by: registry.metric("passed_by", "Records not read since the origin is faster"),
            writes: registry.metric("writes", "Records written to the disk"),
            written_bytes: registry.metric("written_bytes", "Bytes of records written to the disk"),
            evictions: registry.metric("evictions", "Records evicted from the disk"),
            damaged: registry.metric("damaged", "Records found damaged, and removed"),
            foreign: registry.metric("foreign", "Files that are no records, and were removed"),
            dropped: registry.family("dropped", "Records not written, by reason", ["reason"]),
            errors: registry.family("errors", "Errors of the disk, by kind", ["kind"]),
        }
    }

    pub(super) fn dropped(&self, reason: &'static str) {
        self.dropped.get_or_create(&[reason]).inc();
    }

    pub(super) fn error(&self, kind: Kind) {
        self.errors.get_or_create(&[kind.as_str()]).inc();
    }

    #[cfg(test)]
    pub(super) fn dropped_for(&self, reason: &'static str) -> u64 {
        self.dropped.get_or_create(&[reason]).get()
    }

    #[cfg(test)]
    pub(super) fn errors_of(&self, kind: Kind) -> u64 {
        self.errors.get_or_create(&[kind.as_str()]).get()
    }
}
