//! Opens listening sockets and accepts their connections.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use levada_access::{
    client_network, client_shares::ClientPlace, memory_bound::MemoryPressure,
    peer_places::PeerPlaces,
};
use levada_handoff::BackendLink;
use levada_net::{
    admin_listener::StdAdminListener,
    client::{OpenConnection, watched},
    handoff,
    incoming::Incoming,
    listening,
    stop::{self, Stop},
};
use tokio::net::TcpStream;

use crate::{
    client_connection::ListenerKind,
    connection::{self, ListenerRole},
    dormant,
    node::Node,
    settings::{Admin, AdminAddress},
    start_error::StartError,
};

/// Opens a listening socket.
pub(crate) fn open(address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    let listener = bind(address, false)?;
    listen(&listener)?;
    Ok(listener)
}

/// Opens the listener for operators.
pub(crate) fn open_admin(admin: &Admin) -> Result<StdAdminListener, StartError> {
    match &admin.listen {
        AdminAddress::Tcp(address) => open(*address).map(Into::into),
        AdminAddress::Unix(path) => StdAdminListener::unix(path, admin.mode)
            .map_err(|why| StartError::AdminSocket { address: admin.listen.clone(), why }),
    }
}

/// Takes an address without listening on it yet: connections are refused. With `share`, several sockets
/// may listen on one address, one per worker, and the kernel spreads the connections over them.
pub(crate) fn bind(address: SocketAddr, share: bool) -> Result<std::net::TcpListener, StartError> {
    listening::bind(address, share).map_err(|why| StartError::Listen { address, why })
}

/// Listens on the address that was taken.
pub(crate) fn listen(listener: &std::net::TcpListener) -> Result<(), StartError> {
    listening::listen(listener).map_err(|why| {
        let address = listener.local_addr().unwrap_or(SocketAddr::from(([0; 4], 0)));
        StartError::Listen { address, why }
    })
}

/// Accepts connections until the node stops; those of clients when the node serves them.
pub(crate) async fn accept(
    node: Arc<Node>,
    listener: std::net::TcpListener,
    role: Arc<ListenerRole>,
    stop: Stop,
) {
    if role.listener != ListenerKind::Peer {
        tokio::select! {
            () = node.purging.until_serving() => {}
            () = stop.begun() => return,
        }
    }
    // A socket that the runtime knows before it listens counts as closed for good.
    let incoming = match Incoming::new(listener) {
        Ok(incoming) => incoming,
        Err(error) => {
            tracing::error!(%error, "cannot wait for connections");
            return;
        }
    };
    let watch = dormant::watch(&node.metrics, &node.given_up, role.dormant_retries);
    let front = node.front.as_ref().filter(|_| role.may_hand_over() && !role.h2c);
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
                    role.places.clone().acquire_owned().await.ok()?
                }
            };
            Some((place, incoming.accept(|| handed.flush()).await))
        };
        let (place, accepted) = tokio::select! {
            Some(next) = next => next,
            () = stop.begun() => return,
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
                if let Some(front) = front
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
            // The usual cause is a lack of file descriptors. It passes when connections end.
            Err(error) => {
                handed.flush();
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The client's place among the connections of all. Without one, the connection is closed.
pub(crate) fn share(
    node: &Node,
    role: &ListenerRole,
    client: IpAddr,
) -> Option<Option<ClientPlace>> {
    // A trusted proxy connects for many clients.
    let shares = role.shares.as_ref().filter(|_| !node.trust.load().trusts(client));
    let pressure = node.memory.pressure();
    let place = match shares {
        Some(shares) => shares.enter(client_network::of(client), pressure).map(Some),
        None if pressure == MemoryPressure::Full && role.listener != ListenerKind::Peer => None,
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

/// The back-ends with connections that were handed over and not yet sent.
#[derive(Default)]
struct HandedConnections {
    links: Vec<Arc<BackendLink<Node>>>,
    connections: usize,
}

impl HandedConnections {
    fn add(&mut self, link: Arc<BackendLink<Node>>) {
        if !self.links.iter().any(|other| Arc::ptr_eq(other, &link)) {
            self.links.push(link);
        }
        self.connections += 1;
        if self.connections == MAX_HANDED {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.links.drain(..).for_each(|link| link.flush());
        self.connections = 0;
    }
}

impl Drop for HandedConnections {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The most connections that are sent together: the first one waits for the last.
const MAX_HANDED: usize = 16;
