//! The metrics of what is kept in memory.

use levada_observe::metrics::{Counter, Gauge, Registry};

use crate::{Loans, Store};

/// The metrics of stored objects, and of those on their way.
pub struct CacheMetrics {
    /// Requests that shared another request's fetch.
    pub coalesced: Counter,
    bytes: Gauge,
    objects: Gauge,
    /// Variants that went because their URL had too many.
    pub variants_evicted: Counter,
    filling: Gauge,
    lent: Gauge,
}

impl CacheMetrics {
    /// The metrics, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            coalesced: registry
                .metric("cache_coalesced", "Requests that shared another request's fetch"),
            bytes: registry.metric("cache_bytes", "Bytes stored in memory"),
            objects: registry.metric("cache_objects", "Objects in memory"),
            variants_evicted: registry.metric(
                "cache_variants_evicted",
                "Variants that went because their URL had too many",
            ),
            filling: registry
                .metric("cache_filling_bytes", "Bytes of objects that are being fetched"),
            lent: registry.metric(
                "cache_lent_bytes",
                "Bytes of long bodies that clients read now, stored or not",
            ),
        }
    }

    /// Shows the memory that is taken now: stored, by objects that are being fetched, and by readers.
    pub fn show(&self, store: &Store, filling: u64, loans: &Loans) {
        self.bytes.set(store.bytes());
        self.objects.set(store.entries());
        self.filling.set(filling);
        self.lent.set(loans.bytes());
    }
}
