//! The metrics of sources.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

type Labels = [(&'static str, String); 1];

/// Members, successes and failures by source.
#[derive(Clone, Debug, Default)]
pub struct DiscoveryMetrics {
    members: Family<Labels, Gauge>,
    last_success: Family<Labels, Gauge>,
    failures: Family<Labels, Counter>,
    changes: Family<Labels, Counter>,
}

impl DiscoveryMetrics {
    /// The metrics, shown by `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Members that a source has named and that are in use";
        registry.register("discovery_members", help, metrics.members.clone());
        let help = "Unix time at which a source last gave a list";
        registry.register(
            "discovery_last_success_timestamp_seconds",
            help,
            metrics.last_success.clone(),
        );
        let help = "Times that a source failed or gave an empty list";
        registry.register("discovery_failures", help, metrics.failures.clone());
        let help = "Changes of a source's members in use";
        registry.register("discovery_changes", help, metrics.changes.clone());
        metrics
    }

    pub(crate) fn succeeded(&self, source: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.last_success.get_or_create(&labels(source)).set(now.try_into().unwrap_or(i64::MAX));
    }

    pub(crate) fn failed(&self, source: &str) {
        self.failures.get_or_create(&labels(source)).inc();
    }

    pub(crate) fn changed(&self, source: &str, members: usize) {
        self.changes.get_or_create(&labels(source)).inc();
        self.members(source, members);
    }

    pub(crate) fn members(&self, source: &str, members: usize) {
        self.members.get_or_create(&labels(source)).set(members.try_into().unwrap_or(i64::MAX));
    }

    pub(crate) fn forget(&self, source: &str) {
        let labels = labels(source);
        self.members.remove(&labels);
        self.last_success.remove(&labels);
        self.failures.remove(&labels);
        self.changes.remove(&labels);
    }
}

fn labels(source: &str) -> Labels {
    [("source", source.to_owned())]
}
