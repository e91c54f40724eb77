//! The metrics of a route.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use levada_config::RouteLevel;

use crate::announce::decide::RouteReason;

/// The level of a route, its changes and its errors.
#[derive(Clone, Debug, Default)]
pub struct RouteMetrics {
    level: Gauge<i64>,
    changes: Family<[(&'static str, &'static str); 2], Counter>,
    pub(crate) errors: Counter,
}

impl RouteMetrics {
    /// The metrics, shown by `registry`.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "How the route is announced: 0 withdrawn, 1 as a backup, 2 normally";
        registry.register("route_level", help, metrics.level.clone());
        registry.register("route_changes", "Changes of the route", metrics.changes.clone());
        let help = "Commands that the BGP daemon did not carry out";
        registry.register("route_errors", help, metrics.errors.clone());
        metrics
    }

    pub(crate) fn changed(&self, level: RouteLevel, reason: RouteReason) {
        let labels = [("level", level.as_str()), ("reason", reason.as_str())];
        self.changes.get_or_create(&labels).inc();
    }

    pub(crate) fn set(&self, level: RouteLevel) {
        self.level.set(match level {
            RouteLevel::Withdrawn => 0,
            RouteLevel::Backup => 1,
            RouteLevel::Announced => 2,
        });
    }
}
