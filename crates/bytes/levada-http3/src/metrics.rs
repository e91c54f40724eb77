//! The counters of HTTP/3.

use levada_observe::metrics::{Counter, Gauge, Registry};

/// See the module.
#[derive(Clone)]
pub struct QuicMetrics {
    /// Connections that are open, over TCP as well.
    pub(crate) all_connections: Gauge,
    /// Connections over QUIC that are open.
    pub connections: Gauge,
    /// Handshakes that were completed.
    pub handshakes: Counter,
    /// Handshakes that failed or took too long.
    pub handshakes_failed: Counter,
    /// Requests that came before the handshake was complete.
    pub early_requests: Counter,
    /// Clients that were asked to prove their address first.
    pub retries: Counter,
    /// Packets that were sent on connections that have ended.
    pub packets_sent: Counter,
    /// Packets among them that were lost.
    pub packets_lost: Counter,
    /// Connections whose client's address changed.
    pub migrations: Counter,
}

impl QuicMetrics {
    /// New counters, which this registry shows. `all_connections` counts those over TCP too.
    pub fn registered(registry: &mut Registry, all_connections: &Gauge) -> Self {
        Self {
            all_connections: all_connections.clone(),
            handshakes: registry.metric("quic_handshakes", "QUIC handshakes that were completed"),
            handshakes_failed: registry
                .metric("quic_handshakes_failed", "QUIC handshakes that failed or took too long"),
            early_requests: registry.metric(
                "quic_early_requests",
                "Requests that came before the QUIC handshake was complete (0-RTT)",
            ),
            retries: registry.metric(
                "quic_retries",
                "QUIC clients that were asked to prove their address first",
            ),
            packets_sent: registry
                .metric("quic_packets_sent", "QUIC packets sent on connections that have ended"),
            packets_lost: registry
                .metric("quic_packets_lost", "QUIC packets lost on connections that have ended"),
            migrations: registry.metric(
                "quic_migrations",
                "QUIC connections that went on from another address of their client",
            ),
            connections: registry.metric("quic_connections", "Open QUIC connections"),
        }
    }
}
