//! Settings as the crate of servers takes them: the way to an origin, and the bounds of a server.

use levada_access::tls;
use levada_upstream::{Address, ServerBounds, Wire};

use crate::settings::{Limits, Origin, ProxyVersion};

/// The address and the protocols of an origin.
pub(crate) fn way_to(origin: &Origin, states_client: Option<ProxyVersion>) -> (Address, Wire) {
    let tls = origin.tls().then(tls::origin_client);
    (origin.into(), Wire { tls, states_client, ..Wire::default() })
}

/// The bounds of one server.
pub(crate) fn server_bounds(limits: &Limits) -> ServerBounds {
    ServerBounds {
        connections: limits.server_connections,
        queue: limits.queue,
        queue_timeout: limits.queue_timeout,
        connect_timeout: limits.connect_timeout,
        response_timeout: limits.response_timeout,
    }
}
