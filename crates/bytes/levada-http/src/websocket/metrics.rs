//! Counters of tunnels.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::websocket::EndReason;

type Labels = [(&'static str, &'static str); 1];

/// The counters of a node's tunnels.
pub struct TunnelMetrics {
    /// Tunnels that are open.
    pub now: Gauge,
    /// Bytes that came from clients.
    pub from_client: Counter,
    /// Bytes that came from servers.
    pub from_server: Counter,
    ended: Family<Labels, Counter>,
}

/// An open tunnel.
pub(crate) struct OpenTunnel<'a>(&'a Gauge);

impl TunnelMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        let (now, ended) = (Gauge::default(), Family::default());
        let bytes: Family<Labels, Counter> = Family::default();
        registry.register("tunnels", "Open tunnels of WebSocket", now.clone());
        registry.register("tunnel_bytes", "Bytes that passed through tunnels", bytes.clone());
        registry.register("tunnels_ended", "Tunnels ended, by reason", ended.clone());
        let of = |from| bytes.get_or_create(&[("from", from)]).clone();
        Self { now, from_client: of("client"), from_server: of("server"), ended }
    }

    /// Counts a tunnel as long as it is kept.
    pub(crate) fn open(&self) -> OpenTunnel<'_> {
        self.now.inc();
        OpenTunnel(&self.now)
    }

    pub(crate) fn ended(&self, reason: EndReason) {
        self.ended.get_or_create(&[("reason", reason.as_str())]).inc();
    }
}

impl Drop for OpenTunnel<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
