//! Counters of purges.

use levada_observe::metrics::{Counter, Family, Gauge, Registry};

/// The counters of a node's purges.
#[derive(Clone)]
pub struct PurgeMetrics {
    purges: Family<[&'static str; 2], Counter>,
    /// Purges that are still being applied to what is stored.
    pub rules: Gauge,
    /// Purges that peers have not confirmed.
    pub pending: Gauge,
}

impl PurgeMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            purges: registry.family(
                "purges",
                "Purges carried out, by scope and kind",
                ["scope", "kind"],
            ),
            rules: registry
                .metric("purge_rules", "Purges that are still being applied to what is stored"),
            pending: registry.metric("purges_pending", "Purges that peers have not confirmed"),
        }
    }

    /// Counts a purge.
    pub(crate) fn purged(&self, scope: &'static str, kind: &'static str) {
        self.purges.get_or_create(&[scope, kind]).inc();
    }
}
