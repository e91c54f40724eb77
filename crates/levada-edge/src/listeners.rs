//! The listeners for clients and peers: which are open, and what they are for.
//!
//! A reload opens those that are new before it changes anything, then lets all of them go on with new roles:
//! a certificate that was renewed has the same file name. Connections stay as they are.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use levada_access::{client_shares::ClientShares, peer_places::PeerPlaces, tls};
use levada_net::stop::Stop;
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Semaphore, task::AbortHandle};
use tokio_rustls::TlsAcceptor;

use crate::{
    client_connection::ListenerKind,
    connection::ListenerRole,
    listener,
    node::{Node, hands_over},
    settings::{PeerTrust, Settings},
    start_error::StartError,
};

/// The most connections at the listener for peers that have not proved that they come from one.
const UNPROVEN: usize = 256;

/// See the module.
pub(crate) struct Listeners {
    /// The places of clients' connections, and how many there are.
    places: Arc<Semaphore>,
    connections: Mutex<usize>,
    /// The same number, as clients share it.
    shares: Arc<ClientShares>,
    /// The schedulers of all workers.
    runtimes: Mutex<Vec<Handle>>,
    open: Mutex<Vec<OpenListener>>,
}

struct OpenListener {
    sockets: Arc<ListenerSockets>,
    accepting: Vec<AbortHandle>,
}

/// The sockets of one listener, one for each worker.
pub(crate) struct ListenerSockets {
    /// The address in the settings; its port may be 0.
    wanted: SocketAddr,
    /// The address with the port that was taken.
    pub(crate) address: SocketAddr,
    by_worker: Vec<TcpListener>,
}

/// A listener that is ready to accept connections.
pub(crate) struct PreparedListener {
    sockets: Arc<ListenerSockets>,
    /// The same sockets for the tasks that accept.
    doors: Vec<TcpListener>,
    role: Arc<ListenerRole>,
}

impl ListenerSockets {
    /// Takes an address for so many workers, without listening on it.
    pub(crate) fn bind(
        wanted: SocketAddr,
        workers: usize,
        hands_over: bool,
    ) -> Result<Self, StartError> {
        let (mut address, mut by_worker) = (wanted, Vec::new());
        for _ in 0..workers {
            let socket = listener::bind(address, workers > 1)?;
            // A connection that arrives with its request is handed over without waiting. A failure only
            // costs time.
            if hands_over {
                let _ = levada_net::tcp::accept_with_data(&socket);
            }
            // Port 0 took a free port: the other workers listen on the same one.
            address = socket.local_addr().map_err(|why| StartError::Listen { address, why })?;
            by_worker.push(socket);
        }
        Ok(Self { wanted, address, by_worker })
    }

    pub(crate) fn listen(&self) -> Result<(), StartError> {
        self.by_worker.iter().try_for_each(listener::listen)
    }

    pub(crate) fn cloned(&self) -> Result<Vec<TcpListener>, StartError> {
        let lost = |why| StartError::Listen { address: self.address, why };
        self.by_worker.iter().map(|socket| socket.try_clone().map_err(lost)).collect()
    }
}

impl Listeners {
    /// No listeners yet, for so many connections of clients.
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(connections)),
            connections: Mutex::new(connections),
            shares: ClientShares::new(connections as u32),
            runtimes: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// Accepts connections at these sockets, which are those of the settings in order.
    pub(crate) fn start(
        &self,
        node: &Arc<Node>,
        runtimes: Vec<Handle>,
        sockets: Vec<ListenerSockets>,
        stop: &Stop,
    ) -> Result<(), StartError> {
        *self.runtimes.lock() = runtimes;
        let roles = self.roles(&node.settings())?;
        let listeners = sockets.into_iter().zip(roles);
        let listeners = listeners.map(|(sockets, (_, role))| prepared(Arc::new(sockets), role));
        self.change(node, listeners.collect::<Result<_, _>>()?, stop);
        Ok(())
    }

    /// Reads the certificates of these settings, and listens on the addresses that are new.
    ///
    /// # Errors
    /// When a certificate or an address cannot be used; nothing has changed then.
    pub(crate) fn prepare(&self, settings: &Settings) -> Result<Vec<PreparedListener>, StartError> {
        let workers = self.runtimes.lock().len();
        let mut open: Vec<_> = self.open.lock().iter().map(|one| one.sockets.clone()).collect();
        let mut listeners = Vec::new();
        for (address, role) in self.roles(settings)? {
            let sockets = match open.iter().position(|sockets| sockets.wanted == address) {
                Some(there) => open.remove(there),
                None => {
                    let sockets = ListenerSockets::bind(address, workers, hands_over(settings))?;
                    sockets.listen()?;
                    Arc::new(sockets)
                }
            };
            listeners.push(prepared(sockets, role)?);
        }
        Ok(listeners)
    }

    /// Goes on with these listeners. Others are closed; their connections stay.
    pub(crate) fn change(&self, node: &Arc<Node>, listeners: Vec<PreparedListener>, stop: &Stop) {
        let mut open = self.open.lock();
        for former in open.drain(..) {
            former.accepting.iter().for_each(AbortHandle::abort);
        }
        let runtimes = self.runtimes.lock();
        for PreparedListener { sockets, doors, role } in listeners {
            let accept = |(runtime, door): (&Handle, TcpListener)| {
                let accepting = listener::accept(node.clone(), door, role.clone(), stop.clone());
                runtime.spawn(accepting).abort_handle()
            };
            let accepting = runtimes.iter().zip(doors).map(accept).collect();
            open.push(OpenListener { sockets, accepting });
        }
    }

    /// Changes the number of connections that clients may have. Open ones stay open.
    pub(crate) fn set_connections(&self, connections: usize) {
        let before = std::mem::replace(&mut *self.connections.lock(), connections);
        self.shares.set_bound(connections as u32);
        self.places.add_permits(connections.saturating_sub(before));
        let fewer = before.saturating_sub(connections);
        let taken = fewer - self.places.forget_permits(fewer);
        if taken > 0 {
            let places = self.places.clone();
            tokio::spawn(async move {
                for _ in 0..taken {
                    let Ok(place) = places.acquire().await else { return };
                    place.forget();
                }
            });
        }
    }

    /// The addresses of the settings and their roles.
    fn roles(&self, settings: &Settings) -> Result<Vec<(SocketAddr, ListenerRole)>, StartError> {
        let mut roles = Vec::new();
        for listener in &settings.listeners {
            let tls = match listener.tls.is_empty() {
                true => None,
                false => Some(TlsAcceptor::from(tls::client_facing(&listener.tls)?)),
            };
            let role = ListenerRole {
                listener: ListenerKind::Client { tls: tls.is_some() },
                tls,
                proof: None,
                h2c: listener.h2c,
                dormant_retries: listener.dormant_retries,
                places: self.places.clone(),
                peer_places: None,
                shares: Some(self.shares.clone()),
            };
            roles.push((listener.address, role));
        }
        if let Some(peering) = &settings.peering {
            let tls = match &peering.trust {
                PeerTrust::Secret(_) => None,
                PeerTrust::Mtls { identity, authority, .. } => {
                    Some(TlsAcceptor::from(tls::peer_server(identity, authority)?))
                }
            };
            // Peers have connection limits of their own: clients cannot keep the cluster from working.
            let role = ListenerRole {
                listener: ListenerKind::Peer,
                tls,
                proof: levada_peers::proof(&peering.trust, &settings.name),
                // While the protocol changes, node by node, peers come with both.
                h2c: true,
                // A peer does not change its address: no dormant check.
                dormant_retries: None,
                places: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
                peer_places: Some(PeerPlaces::new(settings.limits.connections, UNPROVEN)),
                shares: None,
            };
            roles.push((peering.listen, role));
        }
        Ok(roles)
    }
}

fn prepared(
    sockets: Arc<ListenerSockets>,
    role: ListenerRole,
) -> Result<PreparedListener, StartError> {
    let doors = sockets.cloned()?;
    Ok(PreparedListener { sockets, doors, role: Arc::new(role) })
}
