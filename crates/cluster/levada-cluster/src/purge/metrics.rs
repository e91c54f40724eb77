//! Counters of purges.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

type Labels = [(&'static str, &'static str); 2];

/// The counters of a node's purges.
#[derive(Clone)]
pub struct PurgeMetrics {
    purges: Family<Labels, Counter>,
    /// Purges that are still being applied to what is stored.
    pub rules: Gauge<i64>,
    /// Purges that peers have not confirmed.
    pub pending: Gauge<i64>,
}

impl PurgeMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        let new =
            Self { purges: Family::default(), rules: Gauge::default(), pending: Gauge::default() };
        let help = "Purges carried out, by scope and kind";
        registry.register("purges", help, new.purges.clone());
        let help = "Purges that are still being applied to what is stored";
        registry.register("purge_rules", help, new.rules.clone());
        let help = "Purges that peers have not confirmed";
        registry.register("purges_pending", help, new.pending.clone());
        new
    }

    /// Counts a purge.
    pub(crate) fn purged(&self, scope: &'static str, kind: &'static str) {
        self.purges.get_or_create(&[("scope", scope), ("kind", kind)]).inc();
    }
}
