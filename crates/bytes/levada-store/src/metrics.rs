//! The metrics of what is kept in memory.

use levada_observe::metrics::{Counter, Family, Gauge, NumberGauge, Registry};

use crate::{EvictionStatus, Loans, Store};

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
    eviction: ChoiceMetrics,
}

/// The choice of an eviction that makes one.
struct ChoiceMetrics {
    shards: ByAlgorithm<Gauge>,
    hit_ratio: ByAlgorithm<NumberGauge>,
    byte_hit_ratio: ByAlgorithm<NumberGauge>,
    switches: Gauge,
}

type ByAlgorithm<M> = Family<[String; 1], M>;

impl ChoiceMetrics {
    fn registered(registry: &mut Registry) -> Self {
        let labels = ["algorithm"];
        Self {
            shards: registry.family(
                "cache_eviction_shards",
                "Shards of the memory tier that use an eviction algorithm which was chosen",
                labels,
            ),
            hit_ratio: registry.family(
                "cache_eviction_sample_hit_ratio",
                "Hits that an eviction algorithm would have, of the sampled requests",
                labels,
            ),
            byte_hit_ratio: registry.family(
                "cache_eviction_sample_byte_hit_ratio",
                "Bytes of hits that an eviction algorithm would have, of the sampled requests' bytes",
                labels,
            ),
            switches: registry.metric(
                "cache_eviction_switches",
                "Switches to another eviction algorithm since the start, of all shards",
            ),
        }
    }

    fn show(&self, status: &EvictionStatus) {
        for one in &status.algorithms {
            let labels = [one.name.clone()];
            self.shards.get_or_create(&labels).set(one.shards);
            self.hit_ratio.get_or_create(&labels).set(one.hit_ratio);
            self.byte_hit_ratio.get_or_create(&labels).set(one.byte_hit_ratio);
        }
        self.switches.set(status.switches);
    }
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
            eviction: ChoiceMetrics::registered(registry),
        }
    }

    /// Shows the memory that is taken now: stored, by objects that are being fetched, and by readers.
    pub fn show(&self, store: &Store, filling: u64, loans: &Loans) {
        self.bytes.set(store.bytes());
        self.objects.set(store.entries());
        self.filling.set(filling);
        self.lent.set(loans.bytes());
        store.eviction().iter().for_each(|status| self.eviction.show(status));
    }
}
