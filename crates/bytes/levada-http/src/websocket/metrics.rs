//! Counters of tunnels.

use levada_observe::metrics::{Counter, Family, Gauge, Registry};

use crate::websocket::EndReason;

/// The counters of a node's tunnels.
pub struct TunnelMetrics {
    /// Tunnels that are open.
    pub now: Gauge,
    /// Bytes that came from clients.
    pub from_client: Counter,
    /// Bytes that came from servers.
    pub from_server: Counter,
    pub(super) ended: Family<[&'static str; 1], Counter>,
}

impl TunnelMetrics {
    /// The counters, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        let now = registry.metric("tunnels", "Open tunnels of WebSocket");
        let bytes: Family<[&str; 1], Counter> =
            registry.family("tunnel_bytes", "Bytes that passed through tunnels", ["from"]);
        let ended = registry.family("tunnels_ended", "Tunnels ended, by reason", ["reason"]);
        let of = |from| bytes.get_or_create(&[from]).clone();
        Self { now, from_client: of("client"), from_server: of("server"), ended }
    }

    pub(crate) fn ended(&self, reason: EndReason) {
        self.ended.get_or_create(&[reason.as_str()]).inc();
    }
}
