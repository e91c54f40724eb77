//! The counters of handoffs.

use levada_http::ConnectionMetrics;
use levada_observe::metrics::{Counter, Family, Gauge, Registry};

/// The counters that a handoff changes.
pub struct HandoffMetrics {
    /// Connections at this node: one that comes back is open here again.
    pub connections: ConnectionMetrics,
    handoffs: Family<[&'static str; 1], Counter>,
    pub(crate) handed_over: Gauge,
}

impl HandoffMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry, connections: &ConnectionMetrics) -> Self {
        Self {
            connections: connections.clone(),
            handoffs: registry.family(
                "handoffs",
                "Connections handed to a back-end, by result",
                ["result"],
            ),
            handed_over: registry.metric("handed_over", "Connections that back-ends serve now"),
        }
    }

    /// Counts a handoff by its result.
    pub(crate) fn handoff(&self, result: &'static str) {
        self.handoffs.get_or_create(&[result]).inc();
    }
}
