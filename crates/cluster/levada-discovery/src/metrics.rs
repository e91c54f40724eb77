//! The metrics of sources.

use std::time::{SystemTime, UNIX_EPOCH};

use levada_observe::metrics::{Counter, Family, Gauge, Registry};

/// Members, successes and failures by source.
#[derive(Clone)]
pub struct DiscoveryMetrics {
    members: Family<[String; 1], Gauge>,
    last_success: Family<[String; 1], Gauge>,
    failures: Family<[String; 1], Counter>,
    changes: Family<[String; 1], Counter>,
}

impl DiscoveryMetrics {
    /// The metrics, shown by `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let by = ["source"];
        Self {
            members: registry.family(
                "discovery_members",
                "Members that a source has named and that are in use",
                by,
            ),
            last_success: registry.family(
                "discovery_last_success_timestamp_seconds",
                "Unix time at which a source last gave a list",
                by,
            ),
            failures: registry.family(
                "discovery_failures",
                "Times that a source failed or gave an empty list",
                by,
            ),
            changes: registry.family(
                "discovery_changes",
                "Changes of a source's members in use",
                by,
            ),
        }
    }

    pub(crate) fn succeeded(&self, source: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.last_success.get_or_create(&[source.to_owned()]).set(now);
    }

    pub(crate) fn failed(&self, source: &str) {
        self.failures.get_or_create(&[source.to_owned()]).inc();
    }

    pub(crate) fn changed(&self, source: &str, members: usize) {
        self.changes.get_or_create(&[source.to_owned()]).inc();
        self.members(source, members);
    }

    pub(crate) fn members(&self, source: &str, members: usize) {
        self.members.get_or_create(&[source.to_owned()]).set(members);
    }

    pub(crate) fn forget(&self, source: &str) {
        let labels = [source.to_owned()];
        self.members.remove(&labels);
        self.last_success.remove(&labels);
        self.failures.remove(&labels);
        self.changes.remove(&labels);
    }
}
