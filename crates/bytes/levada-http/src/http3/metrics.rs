//! The counters of HTTP/3.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct QuicMetrics {
    /// Connections that are open.
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
    /// New counters, which this registry shows.
    pub fn registered(registry: &mut Registry) -> Self {
        let new = Self::default();
        let mut counter = |name, help, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        counter("quic_handshakes", "QUIC handshakes that were completed", &new.handshakes);
        let help = "QUIC handshakes that failed or took too long";
        counter("quic_handshakes_failed", help, &new.handshakes_failed);
        let help = "Requests that came before the QUIC handshake was complete (0-RTT)";
        counter("quic_early_requests", help, &new.early_requests);
        let help = "QUIC clients that were asked to prove their address first";
        counter("quic_retries", help, &new.retries);
        let help = "QUIC packets sent on connections that have ended";
        counter("quic_packets_sent", help, &new.packets_sent);
        let help = "QUIC packets lost on connections that have ended";
        counter("quic_packets_lost", help, &new.packets_lost);
        let help = "QUIC connections that went on from another address of their client";
        counter("quic_migrations", help, &new.migrations);
        registry.register("quic_connections", "Open QUIC connections", new.connections.clone());
        new
    }
}
