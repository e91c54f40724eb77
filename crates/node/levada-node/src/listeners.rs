//! The listeners for clients and peers: which are open, and what they are for.
//!
//! A reload opens those that are new before it changes anything, then lets all of them go on with new roles:
//! a certificate that was renewed has the same file name. Connections stay as they are.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use levada_access::{connection_places::ConnectionPlaces, peer_places::PeerPlaces};
use levada_edge::{
    client_connection::ListenerKind,
    connection::{Http3, ListenerRole},
    listener,
    node::Node,
    quic,
};
use levada_http3::{Endpoints, PreparedEndpoint, QuicKeys};
use levada_net::stop::{self, Stop, Stopper};
use levada_tls::acme::{Certificates, PROOF_PROTOCOL};
use levada_tls::{
    by_name,
    door::{Door, DoorSettings, SiteDoor},
    peer,
    secret::Secrets,
    tickets::TicketKeys,
};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Semaphore, task::AbortHandle};

use crate::{
    start_error::StartError,
    upgrade::{ListenerSockets, OfferedSockets, OpenSockets, PassedSockets, SocketError},
};
use levada_config::{Limits, Listener, PeerTrust, Settings, SiteSettings};

/// The most connections at the listener for peers that have not proved that they come from one.
const UNPROVEN: usize = 256;
/// How long connections are accepted that wait at a listener which is about to close.
const LAST_CONNECTIONS: Duration = Duration::from_millis(250);

/// The protocols of clients, and that of proofs for an authority.
const WITH_PROOFS: [&[u8]; 3] = [b"h2", b"http/1.1", PROOF_PROTOCOL];

/// See the module.
pub(crate) struct Listeners {
    /// The places of clients' connections.
    pub(crate) places: ConnectionPlaces,
    /// The certificates that the node orders.
    certificates: Arc<Certificates>,
    /// The schedulers of all workers.
    runtimes: Mutex<Vec<Handle>>,
    open: Mutex<Vec<OpenListener>>,
    /// The sockets for operators, metrics and front-ends.
    others: Mutex<OpenSockets>,
    quic: Endpoints,
    accepting: Mutex<Vec<AbortHandle>>,
    /// The keys of session tickets, which outlive reloads.
    tickets: Mutex<Option<Arc<TicketKeys>>>,
    proven: Mutex<Option<ProvenPeers>>,
}

/// The secrets by which peers prove that they are peers, and the end of the connections that came with these.
#[derive(Clone)]
struct ProvenPeers {
    secrets: Secrets,
    end: Arc<(Stopper, Stop)>,
}

struct OpenListener {
    sockets: Arc<ListenerSockets>,
    role: Arc<ListenerRole>,
    accepting: Vec<AbortHandle>,
}

/// The listeners of settings. Nothing has changed before [`Listeners::change`].
pub(crate) struct PreparedListeners {
    listeners: Vec<PreparedListener>,
    keys: SharedKeys,
    proven: Option<ProvenPeers>,
}

/// A listener that is ready to accept connections.
struct PreparedListener {
    sockets: Arc<ListenerSockets>,
    /// Whether the sockets are bound and do not listen yet.
    is_new: bool,
    /// The same sockets for the tasks that accept, each with its worker.
    doors: Vec<(usize, TcpListener)>,
    role: Arc<ListenerRole>,
    /// For HTTP/3.
    endpoint: Option<PreparedEndpoint>,
}

/// The keys that listeners share with those of other nodes.
struct SharedKeys {
    tickets: Arc<TicketKeys>,
    quic: QuicKeys,
}

/// The roles of all addresses, and their keys.
type Roles = (Vec<(SocketAddr, ListenerRole)>, SharedKeys);

/// HTTP/3 as the listener and the limits of connections have it. `None` if the listener does not serve it.
fn http3(
    listener: &Listener,
    tls: Option<&Door>,
    limits: &Limits,
    keys: &QuicKeys,
) -> Result<Option<Http3>, StartError> {
    let Some(tls) = tls.filter(|_| listener.http3) else { return Ok(None) };
    let config = levada_http3::server_config(tls.config(), &limits.of_connection(), keys);
    let config = config.map_err(|why| StartError::Http3 { address: listener.address, why })?;
    Ok(Some(Http3 { config, alt_svc: levada_http3::alt_svc(listener.address.port()) }))
}

/// A secret that a node without others has, and has again after a restart: the private key of its first certificate for
/// HTTP/3, or of its account where it orders certificates, whose keys change.
fn own_secret(settings: &Settings) -> Option<Vec<u8>> {
    let mut serving = settings.listeners.iter().filter(|listener| listener.http3);
    // A file that cannot be read is an error when its certificate is read.
    let file = serving.find_map(|listener| listener.tls.first());
    let key = file.and_then(|file| std::fs::read(&file.key).ok());
    key.or_else(|| Some(settings.acme.as_ref()?.account()?.into_bytes()))
}

impl PreparedListeners {
    /// Lets connections wait at the addresses that are new.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn listen(&self) -> Result<(), StartError> {
        let new = self.listeners.iter().filter(|listener| listener.is_new);
        Ok(new.map(|listener| &listener.sockets).try_for_each(|sockets| sockets.listen())?)
    }
}

impl Listeners {
    /// No listeners yet, for so many connections of clients.
    pub(crate) fn new(connections: usize, certificates: &Arc<Certificates>) -> Self {
        Self {
            places: ConnectionPlaces::new(connections),
            certificates: certificates.clone(),
            runtimes: Mutex::default(),
            open: Mutex::default(),
            others: Mutex::default(),
            quic: Endpoints::default(),
            accepting: Mutex::default(),
            tickets: Mutex::default(),
            proven: Mutex::default(),
        }
    }

    /// The peers of these settings. Their connections end when a secret is none any more.
    fn proven(&self, settings: &Settings) -> Option<ProvenPeers> {
        let secrets = settings.peering.as_ref()?.trust.proving()?.clone();
        let known = self.proven.lock();
        let still = known.as_ref().filter(|known| secrets.have_all_of(&known.secrets));
        let end = still.map_or_else(|| Arc::new(stop::channel()), |known| known.end.clone());
        Some(ProvenPeers { secrets, end })
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
        let (all, keys) = self.roles(&node.settings())?;
        let listeners = sockets.into_iter().zip(all);
        let prepared = |(sockets, (_, role))| self.prepared(Arc::new(sockets), role, false);
        let listeners = listeners.map(prepared).collect::<Result<_, _>>()?;
        let proven = self.proven(&node.settings());
        self.change(node, PreparedListeners { listeners, keys, proven }, stop);
        Ok(())
    }

    /// Reads the certificates of these settings, and takes the addresses that are new. Nothing changes.
    ///
    /// # Errors
    /// When a certificate or an address cannot be used.
    pub(crate) fn prepare(&self, settings: &Settings) -> Result<PreparedListeners, StartError> {
        let workers = self.runtimes.lock().len();
        let mut open: Vec<_> = self.open.lock().iter().map(|one| one.sockets.clone()).collect();
        let (all, keys) = self.roles(settings)?;
        let mut listeners = Vec::new();
        for (address, role) in all {
            let known = open.iter().position(|sockets| sockets.wanted == address);
            let sockets = match known {
                Some(there) => open.remove(there),
                None => Arc::new(ListenerSockets::bind(address, workers, settings.hands_over())?),
            };
            listeners.push(self.prepared(sockets, role, known.is_none())?);
        }
        Ok(PreparedListeners { listeners, keys, proven: self.proven(settings) })
    }

    fn prepared(
        &self,
        sockets: Arc<ListenerSockets>,
        mut role: ListenerRole,
        is_new: bool,
    ) -> Result<PreparedListener, StartError> {
        if let Some(http3) = &mut role.http3 {
            http3.alt_svc = levada_http3::alt_svc(sockets.address.port());
        }
        self.ready(sockets, Arc::new(role), is_new)
    }

    fn ready(
        &self,
        sockets: Arc<ListenerSockets>,
        role: Arc<ListenerRole>,
        is_new: bool,
    ) -> Result<PreparedListener, StartError> {
        let workers = self.runtimes.lock();
        let endpoint = match workers.first().filter(|_| role.http3.is_some()) {
            None => None,
            Some(worker) => {
                let udp = sockets.udp(&mut PassedSockets::default())?;
                let refused = |why| SocketError::Udp { address: sockets.address, why };
                Some(self.quic.prepare(udp, worker).map_err(refused)?)
            }
        };
        let doors = sockets.by_worker(workers.len())?;
        Ok(PreparedListener { sockets, is_new, doors, role, endpoint })
    }

    /// Goes on with these listeners. Others are closed; their connections stay.
    pub(crate) fn change(&self, node: &Arc<Node>, prepared: PreparedListeners, stop: &Stop) {
        *self.tickets.lock() = Some(prepared.keys.tickets);
        self.quic.set_keys(prepared.keys.quic);
        let former = std::mem::replace(&mut *self.proven.lock(), prepared.proven);
        if former.is_some_and(|former| Arc::into_inner(former.end).is_some()) {
            // Its connections end, also those that rest.
            node.drain.rouse();
        }
        self.accept(node, prepared.listeners, stop);
    }

    fn accept(&self, node: &Arc<Node>, listeners: Vec<PreparedListener>, stop: &Stop) {
        let mut open = self.open.lock();
        for former in open.drain(..) {
            former.accepting.iter().for_each(AbortHandle::abort);
        }
        self.quic.refuse();
        let runtimes = self.runtimes.lock();
        for PreparedListener { sockets, doors, role, endpoint, .. } in listeners {
            node.metrics.tls.stapled(role.tls.as_ref().map_or(&[], Door::answers));
            let proven = self.proven.lock().clone().filter(|_| role.proof.is_some());
            let stop = &proven.map_or_else(|| stop.clone(), |proven| stop.or(&proven.end.1));
            let accept = |(worker, door): (usize, TcpListener)| {
                listener::accept(node, door, &role, &runtimes[worker], stop)
            };
            let mut accepting: Vec<_> = doors.into_iter().map(accept).collect();
            if let Some(endpoint) = endpoint {
                sockets.keep_udp(&endpoint.udp);
                self.quic.keep(&endpoint);
                accepting.extend(quic::accept(endpoint, node, &role, &runtimes, stop));
            }
            open.push(OpenListener { sockets, role, accepting });
        }
    }

    /// The schedulers of all workers.
    pub(crate) fn workers(&self) -> Vec<Handle> {
        self.runtimes.lock().clone()
    }

    /// Reads the certificates of these settings, to find what is wrong with them.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), StartError> {
        self.roles(settings).map(drop)
    }

    /// Adds listeners that are not for clients and peers: copies of their sockets, and who accepts there.
    pub(crate) fn add(&self, others: OpenSockets, accepting: Vec<AbortHandle>) {
        *self.others.lock() = others;
        *self.accepting.lock() = accepting;
    }

    /// Copies of all sockets, for another process.
    pub(crate) fn offered(&self) -> io::Result<(Vec<OfferedSockets>, Vec<OwnedFd>)> {
        let open = self.open.lock();
        self.others.lock().offered(open.iter().map(|listener| &*listener.sockets))
    }

    /// Accepts no more connections of clients and peers at sockets that another process has `taken`, in the order
    /// in which they were offered. At others, those that wait already are accepted.
    pub(crate) fn close(&self, taken: &[bool]) {
        let open = self.open.lock();
        let mut later = Vec::new();
        for (at, listener) in open.iter().enumerate() {
            match taken.get(at) {
                Some(false) => later.extend(listener.accepting.iter().cloned()),
                _ => listener.accepting.iter().for_each(AbortHandle::abort),
            }
        }
        self.quic.refuse();
        if !later.is_empty() {
            tokio::spawn(async move {
                tokio::time::sleep(LAST_CONNECTIONS).await;
                later.iter().for_each(AbortHandle::abort);
            });
        }
    }

    /// Accepts no more connections of operators and front-ends: another process does.
    pub(crate) fn close_others(&self) {
        self.accepting.lock().iter().for_each(AbortHandle::abort);
    }

    /// Lets go of all sockets. A task that still accepts connections there has copies.
    pub(crate) fn forget(&self) {
        self.open.lock().clear();
        *self.others.lock() = OpenSockets::default();
    }

    /// Accepts connections for clients and peers again.
    pub(crate) fn open_again(&self, node: &Arc<Node>, stop: &Stop) {
        let of = |one: &OpenListener| self.ready(one.sockets.clone(), one.role.clone(), false);
        let listeners: Result<Vec<_>, _> = self.open.lock().iter().map(of).collect();
        match listeners {
            Ok(listeners) => self.accept(node, listeners, stop),
            Err(error) => tracing::error!(%error, "connections cannot be accepted again"),
        }
    }

    fn door(&self, listener: &Listener, with: &DoorSettings<'_>) -> Result<Door, StartError> {
        let door = by_name::client_facing(&listener.tls, with, |files| match listener.acme {
            false => Arc::new(files),
            true => self.certificates.resolver(Box::new(move |name| files.of(name))),
        });
        Ok(door?)
    }

    /// The keys of these settings: from the secrets of the cluster, from files of the operator, or the node's own.
    fn keys(&self, settings: &Settings) -> Result<SharedKeys, StartError> {
        let cluster = settings.peering.as_ref().and_then(|peering| peering.trust.secrets());
        let tickets = settings.tickets.keys(cluster, self.tickets.lock().as_deref())?;
        let before = self.quic.keys();
        let mut secrets = match cluster {
            Some(cluster) => cluster.iter().map(|secret| secret.as_bytes().to_vec()).collect(),
            None => settings.tickets.secrets()?,
        };
        secrets.extend(own_secret(settings).filter(|_| secrets.is_empty()));
        Ok(SharedKeys { tickets, quic: QuicKeys::new(&secrets, Some(&before)) })
    }

    /// The addresses of the settings and their roles.
    fn roles(&self, settings: &Settings) -> Result<Roles, StartError> {
        let mut all = Vec::new();
        let keys = self.keys(settings)?;
        let sites: Vec<SiteDoor<'_>> = settings.sites.iter().map(SiteSettings::door).collect();
        for listener in &settings.listeners {
            let with = DoorSettings {
                handshake: &listener.handshake,
                sites: &sites,
                protocols: if listener.acme { &WITH_PROOFS } else { &WITH_PROOFS[..2] },
                tickets: &keys.tickets,
            };
            let tls = listener.is_encrypted().then(|| self.door(listener, &with)).transpose()?;
            let http3 = http3(listener, tls.as_ref(), &settings.limits, &keys.quic)?;
            let role = ListenerRole {
                listener: ListenerKind::Client { tls: tls.is_some() },
                tls,
                proof: None,
                h2c: listener.h2c,
                http3,
                dormant_retries: listener.dormant_retries,
                places: self.places.all.clone(),
                peer_places: None,
                shares: Some(self.places.shares.clone()),
            };
            all.push((listener.address, role));
        }
        if let Some(peering) = &settings.peering {
            let tls = match &peering.trust {
                PeerTrust::Secret(_) => None,
                PeerTrust::Mtls { identity, authority, .. } => {
                    Some(Door::from(peer::server(identity, authority)?))
                }
            };
            // Peers have connection limits of their own: clients cannot keep the cluster from working.
            let role = ListenerRole {
                listener: ListenerKind::Peer,
                tls,
                proof: levada_cluster::nodes::proof(&peering.trust, &settings.name),
                // While the protocol changes, node by node, peers come with both.
                h2c: true,
                http3: None,
                // A peer does not change its address: no dormant check.
                dormant_retries: None,
                places: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
                peer_places: Some(PeerPlaces::new(settings.limits.connections, UNPROVEN)),
                shares: None,
            };
            all.push((peering.listen, role));
        }
        Ok((all, keys))
    }
}
