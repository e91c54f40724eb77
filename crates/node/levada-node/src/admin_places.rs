//! The places of a listener for operators: connections, and requests in work.
//!
//! Anyone who reaches the listener may connect. A new connection always gets a place, and a silent one gives way
//! to it. A health check takes no other place, so no other client can keep it out. Requests that are work share
//! their places by client, and some places are kept for orders.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use http::{HeaderMap, Method, Request};
use levada_access::{
    client_network,
    client_shares::{ClientPlace, ClientShares},
    memory_bound::MemoryPressure,
    silent_places::{SilentPlace, SilentPlaces},
};
use levada_cluster::admin_access;
use levada_config::Settings;
use tokio::sync::oneshot;

/// Connections that a listener holds at once. Each needs a file descriptor, which clients need as well.
const MOST_CONNECTIONS: usize = 256;
/// Requests in work at once, without health checks.
const MOST_REQUESTS: u32 = 128;
/// Further places for orders from this machine, and for requests with a token.
const RESERVED: u32 = 32;

/// See the module.
pub(crate) struct AdminPlaces {
    connections: Arc<SilentPlaces>,
    requests: Arc<ClientShares>,
    reserved: Arc<ClientShares>,
}

impl AdminPlaces {
    pub(crate) fn new() -> Self {
        Self {
            connections: SilentPlaces::new(MOST_CONNECTIONS),
            requests: ClientShares::new(MOST_REQUESTS),
            reserved: ClientShares::new(RESERVED),
        }
    }

    /// The place of a new connection, and the message that it has to give way.
    pub(crate) fn enter(&self, client: Option<IpAddr>) -> (SilentPlace, oneshot::Receiver<()>) {
        self.connections.enter(network(client))
    }

    /// Closes a silent connection, if there is one: the system has no file descriptor left.
    pub(crate) fn give_way(&self) {
        self.connections.give_way();
    }

    /// A place for a request that is work.
    pub(crate) fn work<B>(
        &self,
        settings: &Settings,
        client: Option<IpAddr>,
        request: &Request<B>,
    ) -> Option<ClientPlace> {
        let network = network(client);
        self.requests.enter(network, MemoryPressure::None).or_else(|| {
            let is_here = client.is_none_or(|client| client.to_canonical().is_loopback());
            let is_order = request.method() == Method::POST && is_here;
            let has_place = is_order || shows_a_token(settings, request.headers());
            has_place.then(|| self.reserved.enter(network, MemoryPressure::None))?
        })
    }
}

fn shows_a_token(settings: &Settings, headers: &HeaderMap) -> bool {
    let admin = settings.admin.as_ref().and_then(|admin| admin.token.as_deref());
    let tokens = [admin, settings.purge.access.token.as_deref()];
    tokens.into_iter().flatten().any(|token| admin_access::shows(token, headers))
}

/// The clients of the Unix socket count as one network.
fn network(client: Option<IpAddr>) -> IpAddr {
    client.map_or(Ipv4Addr::UNSPECIFIED.into(), client_network::of)
}
