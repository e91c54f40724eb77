//! The metrics of a route.

use levada_observe::metrics::{Counter, Family, Gauge, Registry};

use crate::announce::{RouteLevel, decide::RouteReason};

/// The level of a route, its changes and its errors.
#[derive(Clone)]
pub struct RouteMetrics {
    level: Gauge,
    changes: Family<[&'static str; 2], Counter>,
    pub(crate) errors: Counter,
}

impl RouteMetrics {
    /// The metrics, shown by `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            level: registry.metric(
                "route_level",
                "How the route is announced: 0 withdrawn, 1 as a backup, 2 normally",
            ),
            changes: registry.family("route_changes", "Changes of the route", ["level", "reason"]),
            errors: registry
                .metric("route_errors", "Commands that the BGP daemon did not carry out"),
        }
    }

    pub(crate) fn changed(&self, level: RouteLevel, reason: RouteReason) {
        self.changes.get_or_create(&[level.as_str(), reason.as_str()]).inc();
    }

    pub(crate) fn set(&self, level: RouteLevel) {
        self.level.set(match level {
            RouteLevel::Withdrawn => 0,
            RouteLevel::Backup => 1,
            RouteLevel::Announced => 2,
        });
    }
}
