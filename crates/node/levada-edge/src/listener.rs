//! Opens listening sockets and accepts their connections.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream as StdTcpStream},
    sync::Arc,
};

use levada_access::{
    client_network, client_shares::ClientPlace, dormant, memory_bound::MemoryPressure,
    peer_places::PeerPlaces,
};
use levada_http::ConnectionEnd;
use levada_net::{
    client::{OpenConnection, watched},
    handoff,
    incoming::Incoming,
    listening,
    stop::{self, Stop},
};
use levada_observe::metrics::Work;
use levada_redirector::handoff::HandedConnections;
use tokio::{net::TcpStream, runtime::Handle, sync::OwnedSemaphorePermit, task::AbortHandle};

use crate::{
    client_connection::ListenerKind,
    connection::{self, ListenerRole},
    node::Node,
};

/// A connection with the address of its client.
type Accepted = io::Result<(StdTcpStream, SocketAddr)>;

/// Accepts connections in a task of this runtime until the node stops; those of clients when the node serves them.
pub fn accept(
    node: &Arc<Node>,
    listener: std::net::TcpListener,
    role: &Arc<ListenerRole>,
    runtime: &Handle,
    stop: &Stop,
) -> AbortHandle {
    let accepting = accept_all(node.clone(), listener, role.clone(), stop.clone());
    runtime.spawn(accepting).abort_handle()
}

async fn accept_all(
    node: Arc<Node>,
    listener: std::net::TcpListener,
    role: Arc<ListenerRole>,
    stop: Stop,
) {
    if role.listener != ListenerKind::Peer && !node.serves(&stop).await {
        return;
    }
    // A socket that the runtime knows before it listens counts as closed for good.
    let incoming = match Incoming::new(listener, node.resting.clone()) {
        Ok(incoming) => incoming,
        Err(error) => {
            tracing::error!(%error, "cannot wait for connections");
            return;
        }
    };
    let (metrics, counts) = (node.metrics.clone(), node.metrics.clone());
    let ended = move || counts.connections.ended(ConnectionEnd::Dormant);
    let watch = dormant::watch(&node.given_up, &node.memory, role.dormant_retries, ended);
    let hands_over = role.may_hand_over() && !role.h2c;
    // With an unspecified address each connection has its own local address.
    let service = incoming.local_addr().ok().filter(|address| !address.ip().is_unspecified());
    let mut handed = HandedConnections::default();
    loop {
        // At the bound, connections wait in the kernel's queue, where they cost this process nothing.
        let next = async {
            let place = match role.places.clone().try_acquire_owned() {
                Ok(place) => place,
                Err(_) => {
                    handed.flush();
                    incoming.place(&role.places).await?
                }
            };
            Some((place, incoming.accept(|| handed.flush()).await))
        };
        let (place, accepted) = tokio::select! {
            Some(next) = next => next,
            () = stop.begun() => match last(&role, &incoming) {
                Some(last) => last,
                None => return,
            },
        };
        match accepted {
            Ok((mut socket, client)) => {
                let Some(share) = share(&node, &role, client.ip()) else { continue };
                let enter = |of: &Arc<PeerPlaces>| of.enter(client_network::of(client.ip()));
                let (unproven, displaced) = role.peer_places.as_ref().map(enter).unzip();
                let place = Box::new((place, share, unproven));
                let mut connection =
                    OpenConnection { client: client.ip(), place, stop: stop.clone() };
                let mut read = Vec::new();
                if hands_over
                    && let Some(front) = node.front.get()
                    && !node.trust.load().announces(client.ip())
                {
                    let ends = service.and_then(|service| handoff::between(service, client).ok());
                    (socket, connection) =
                        match front.at_once(&node, socket, ends, &mut read, connection) {
                            Ok(link) => {
                                handed.add(link);
                                continue;
                            }
                            Err(kept) => kept,
                        };
                }
                match TcpStream::from_std(socket) {
                    Ok(stream) => {
                        let (stream, entry) = watched(stream, client.ip(), watch.as_ref());
                        let (node, role) = (node.clone(), role.clone());
                        let serving = connection::serve(node, role, stream, read, connection);
                        let serving = metrics.cpu.timed(Work::Connection, serving);
                        let task = match displaced {
                            None => stop::spawn_until_cut(stop.clone(), serving),
                            Some(displaced) => stop::spawn_until_cut(stop.clone(), async {
                                tokio::select! {
                                    () = serving => {}
                                    Ok(()) = displaced => {}
                                }
                            }),
                        };
                        entry.about.is_served_by(&task);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot register a connection with the runtime")
                    }
                }
            }
            Err(error) => {
                handed.flush();
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(listening::ACCEPT_BACKOFF).await;
            }
        }
    }
}

/// A connection that waits when the node stops. It would be reset.
fn last(role: &ListenerRole, incoming: &Incoming) -> Option<(OwnedSemaphorePermit, Accepted)> {
    let place = role.places.clone().try_acquire_owned().ok()?;
    Some((place, Ok(incoming.arrived()?)))
}

/// The client's place among the connections of all. Without one, the connection is closed.
pub(crate) fn share(
    node: &Node,
    role: &ListenerRole,
    client: IpAddr,
) -> Option<Option<ClientPlace>> {
    if role.listener == ListenerKind::Peer {
        // A probe of a peer is no reason for the node to look after its memory.
        return Some(None);
    }
    // A trusted proxy connects for many clients.
    let shares = role.shares.as_ref().filter(|_| !node.trust.load().trusts(client));
    let pressure = node.memory.pressure();
    let place = match shares {
        Some(shares) => shares.enter(client_network::of(client), pressure).map(Some),
        None if pressure == MemoryPressure::Full => None,
        None => return Some(None),
    };
    if place.is_none() {
        node.metrics.connections_refused.inc();
        let why = match pressure {
            MemoryPressure::None => "this client has its share of limits.connections",
            _ => "limits.memory is nearly reached",
        };
        tracing::info!(%client, "connection closed: {why}");
    }
    place
}
