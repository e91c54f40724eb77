//! The counters of connections.

use levada_observe::metrics::{Counter, Family, Gauge, Registry};

use crate::ConnectionEnd;

/// The counters of client and peer connections.
#[derive(Clone)]
pub struct ConnectionMetrics {
    /// Connections that are open.
    pub open: Gauge,
    /// Connections that rest between two requests.
    pub resting: Gauge,
    ended: Family<[&'static str; 1], Counter>,
}

impl ConnectionMetrics {
    /// The counters, of which `registry` shows open connections.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            open: registry.metric("connections", "Client and peer connections"),
            resting: registry.metric(
                "connections_resting",
                "Connections without a request for a second or more, kept in little memory",
            ),
            ended: Family::new(["reason"]),
        }
    }

    /// Lets `registry` show the ends of connections.
    pub fn show_ends(&self, registry: &mut Registry) {
        registry.show("connections_ended", "Connections ended, by reason", &self.ended);
    }

    /// Counts the end of a connection.
    pub fn ended(&self, ending: ConnectionEnd) {
        self.ended.get_or_create(&[ending.as_str()]).inc();
    }
}
