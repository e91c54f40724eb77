//! The listening sockets of a node: passed on or opened, before anything else, so that a taken port is found
//! at once.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
};

use levada_config::{Admin, Settings};
use levada_net::{admin_listener::StdAdminListener, listening, tcp, udp::UdpSockets};
use levada_types::AdminAddress;
use tracing::field::display;

use crate::upgrade::{message::OfferedSockets, passed::PassedSockets};

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// In the network.
    #[error("cannot listen on {address}: {why}; is another program using it?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        why: io::Error,
    },
    /// Over UDP.
    #[error(
        "cannot receive UDP at {address} for HTTP/3: {why}; is another program using the port?"
    )]
    Udp {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        why: io::Error,
    },
    /// For DNS queries.
    #[error("cannot take DNS queries at {address}: {why}; is another program using the port?")]
    Dns {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        why: io::Error,
    },
    /// The Unix socket for operators.
    #[error("cannot listen on {address}: {why}")]
    AdminSocket {
        /// The address.
        address: AdminAddress,
        /// The system's error.
        why: io::Error,
    },
}

/// The addresses of a running node.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// The client listeners, in the order of the settings, with the ports that were taken.
    pub clients: Vec<SocketAddr>,
    /// The peer listener.
    pub peers: Option<SocketAddr>,
    /// The admin listener, unless it is a Unix socket.
    pub admin: Option<SocketAddr>,
    /// The listener for metrics.
    pub metrics: Option<SocketAddr>,
}

impl Addresses {
    /// Tells operators that the node `name` serves at these addresses.
    pub fn log(&self, name: &str) {
        let Self { clients, peers, admin, metrics } = self;
        let clients = clients.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ");
        let [peers, admin, metrics] = [peers, admin, metrics].map(|one| one.map(display));
        tracing::info!(name, %clients, peers, admin, metrics, "ready");
    }
}

/// Raises the limit of open files, and warns if clients and the connections for their requests could reach it.
pub(crate) fn raise_file_limit(connections: u64) {
    let needed = connections * 2;
    if let Some(limit) = levada_net::open_files::raise_limit().filter(|limit| *limit < needed) {
        tracing::warn!(
            limit,
            "`limits.connections` is {connections}, and each client may need a second connection to a server: allow {needed} open files (LimitNOFILE of systemd, or ulimit -n), or lower it"
        );
    }
}

/// The sockets of one listener: one for each worker, as far as this process has opened them.
#[derive(Debug)]
pub(crate) struct ListenerSockets {
    /// The address in the settings; its port may be 0.
    pub wanted: SocketAddr,
    /// The address with the port that was taken.
    pub address: SocketAddr,
    sockets: Vec<TcpListener>,
    /// For HTTP/3.
    udp: OnceLock<Arc<UdpSockets>>,
}

/// All sockets of a node.
#[derive(Debug, Default)]
pub(crate) struct NodeSockets {
    /// Those for clients, in the order of the settings, then those for peers.
    pub listeners: Vec<ListenerSockets>,
    /// For operators.
    pub admin: Option<StdAdminListener>,
    /// For metrics.
    pub metrics: Option<StdAdminListener>,
    /// For front-ends.
    pub control: Option<TcpListener>,
    /// Where all of them are.
    pub addresses: Addresses,
    /// The sockets for operators, metrics and front-ends, to be passed on.
    pub others: OpenSockets,
    doors: Vec<TcpListener>,
}

/// Sockets that a later process can get.
#[derive(Debug, Default)]
pub(crate) struct OpenSockets(Vec<(String, Vec<OwnedFd>)>);

impl OpenSockets {
    /// Adds the sockets of a listener.
    pub(crate) fn add(&mut self, address: String, sockets: Vec<OwnedFd>) {
        self.0.push((address, sockets));
    }

    /// Copies of these and of the sockets of `listeners`, as they are offered to the next process; those of
    /// `listeners` come first.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn offered<'a>(
        &self,
        listeners: impl IntoIterator<Item = &'a ListenerSockets>,
    ) -> io::Result<(Vec<OfferedSockets>, Vec<OwnedFd>)> {
        let (mut offered, mut sockets, mut udp) = (Vec::new(), Vec::new(), Vec::new());
        for one in listeners {
            let count = one.sockets.len();
            offered.push(OfferedSockets { address: one.wanted.to_string(), count });
            for socket in &one.sockets {
                sockets.push(socket.try_clone()?.into());
            }
            udp.extend(one.udp.get().map(|udp| (udp, udp_name(one.wanted, udp.next()))));
        }
        for (address, of) in &self.0 {
            offered.push(OfferedSockets { address: address.clone(), count: of.len() });
            for socket in of {
                sockets.push(socket.try_clone()?);
            }
        }
        for (of, address) in udp {
            offered.push(OfferedSockets { address, count: 2 });
            sockets.extend(of.copies()?);
        }
        Ok((offered, sockets))
    }
}

impl ListenerSockets {
    /// Takes an address for so many workers, without listening on it, unless its sockets were passed. With
    /// `early_data`, a connection is accepted when its request has come, or soon after.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn take(
        wanted: SocketAddr,
        workers: usize,
        early_data: bool,
        passed: &mut PassedSockets,
    ) -> Result<Self, SocketError> {
        let sockets: Vec<_> =
            passed.take(&wanted.to_string()).into_iter().map(TcpListener::from).collect();
        let Some(first) = sockets.first() else { return Self::bind(wanted, workers, early_data) };
        let address = local(first, wanted)?;
        Ok(Self { wanted, address, sockets, udp: OnceLock::new() })
    }

    /// Takes an address for so many workers, without listening on it.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn bind(
        wanted: SocketAddr,
        workers: usize,
        early_data: bool,
    ) -> Result<Self, SocketError> {
        let (mut address, mut sockets) = (wanted, Vec::new());
        for _ in 0..workers {
            let bound = listening::bind(address, workers > 1);
            let socket = bound.map_err(|why| SocketError::Listen { address, why })?;
            // A connection that arrives with its request is handed over without waiting. A failure only
            // costs time.
            if early_data {
                let _ = tcp::accept_with_data(&socket);
            }
            // Port 0 took a free port: the other workers listen on the same one.
            address = local(&socket, address)?;
            sockets.push(socket);
        }
        Ok(Self { wanted, address, sockets, udp: OnceLock::new() })
    }

    /// The sockets for HTTP/3: those that it keeps, or new ones, which are bound, or taken over from the process
    /// before.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn udp(&self, passed: &mut PassedSockets) -> Result<Arc<UdpSockets>, SocketError> {
        if let Some(udp) = self.udp.get() {
            return Ok(udp.clone());
        }
        let number = |number| (passed.take(&udp_name(self.wanted, number)), number);
        let former = [0, 1].map(number).into_iter().find(|(sockets, _)| !sockets.is_empty());
        let udp = match former {
            Some((sockets, number)) => UdpSockets::passed(sockets, number),
            None => UdpSockets::bind(self.address),
        };
        Ok(Arc::new(udp.map_err(|why| SocketError::Udp { address: self.address, why })?))
    }

    /// Keeps these sockets for HTTP/3, unless it has some.
    pub(crate) fn keep_udp(&self, udp: &Arc<UdpSockets>) {
        let _ = self.udp.set(udp.clone());
    }

    /// Lets connections in.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn listen(&self) -> Result<(), SocketError> {
        self.sockets.iter().try_for_each(listen)
    }

    /// Which worker accepts at which socket. Each socket has a worker and each worker a socket, also if the
    /// sockets are those of a process with another number of workers.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn by_worker(
        &self,
        workers: usize,
    ) -> Result<Vec<(usize, TcpListener)>, SocketError> {
        let both = workers.max(self.sockets.len());
        let pair = |at: usize| {
            let socket = self.sockets[at % self.sockets.len()].try_clone();
            let address = self.address;
            Ok((at % workers, socket.map_err(|why| SocketError::Listen { address, why })?))
        };
        (0..both).map(pair).collect()
    }

    fn cloned(&self) -> Result<Vec<TcpListener>, SocketError> {
        Ok(self.by_worker(1)?.into_iter().map(|(_, socket)| socket).collect())
    }
}

impl NodeSockets {
    /// Takes every address of the settings for so many workers. Operators, peers and metrics can connect from
    /// now on. `early_data` is for listeners for clients.
    ///
    /// # Errors
    /// When an address cannot be used.
    pub(crate) fn open(
        settings: &Settings,
        workers: usize,
        early_data: bool,
        passed: &mut PassedSockets,
    ) -> Result<Self, SocketError> {
        let mut all = Self::default();
        for listener in &settings.listeners {
            let taken = ListenerSockets::take(listener.address, workers, early_data, passed)?;
            if listener.http3 {
                taken.keep_udp(&taken.udp(passed)?);
            }
            all.addresses.clients.push(taken.address);
            all.doors.extend(taken.cloned()?);
            all.listeners.push(taken);
        }
        if let Some(peering) = &settings.peering {
            let taken = ListenerSockets::take(peering.listen, workers, false, passed)?;
            all.addresses.peers = Some(taken.address);
            taken.listen()?;
            all.listeners.push(taken);
        }
        if let Some(admin) = &settings.admin {
            let listener = open_admin(admin, passed)?;
            all.addresses.admin = listener.address();
            all.keep(admin.listen.to_string(), listener.try_clone(), admin)?;
            all.admin = Some(listener);
        }
        if let Some(wanted) = settings.metrics {
            let admin = Admin::at(wanted);
            let listener = open_admin(&admin, passed)?;
            all.addresses.metrics = listener.address();
            all.keep(wanted.to_string(), listener.try_clone(), &admin)?;
            all.metrics = Some(listener);
        }
        if let Some(backend) = settings.handoff.as_ref().and_then(|h| h.backend.as_ref()) {
            let wanted = backend.listen;
            let mut taken = ListenerSockets::take(wanted, 1, false, passed)?;
            all.doors.extend(taken.cloned()?);
            let copy = taken.cloned()?.into_iter().map(OwnedFd::from).collect();
            all.others.add(wanted.to_string(), copy);
            all.control = taken.sockets.pop();
        }
        for address in passed.left() {
            tracing::warn!(
                address,
                "a socket was passed for an address that the file does not have"
            );
        }
        Ok(all)
    }

    /// The listeners for clients and front-ends, which take no connections yet.
    pub(crate) fn doors(&mut self) -> Vec<TcpListener> {
        std::mem::take(&mut self.doors)
    }

    fn keep(
        &mut self,
        address: String,
        socket: io::Result<OwnedFd>,
        admin: &Admin,
    ) -> Result<(), SocketError> {
        let failed = |why| SocketError::AdminSocket { address: admin.listen.clone(), why };
        self.others.add(address, vec![socket.map_err(failed)?]);
        Ok(())
    }
}

/// Listens on the address that was taken.
///
/// # Errors
/// When the system refuses.
pub(crate) fn listen(listener: &TcpListener) -> Result<(), SocketError> {
    listening::listen(listener).map_err(|why| {
        let address = listener.local_addr().unwrap_or(SocketAddr::from(([0; 4], 0)));
        SocketError::Listen { address, why }
    })
}

/// The name of the UDP sockets of an address for a process that reads the one of this number.
fn udp_name(wanted: SocketAddr, number: usize) -> String {
    format!("udp{number}:{wanted}")
}

/// The listener for operators, or for metrics.
fn open_admin(admin: &Admin, passed: &mut PassedSockets) -> Result<StdAdminListener, SocketError> {
    let named = |why| SocketError::AdminSocket { address: admin.listen.clone(), why };
    if let Some(socket) = passed.take(&admin.listen.to_string()).pop() {
        return StdAdminListener::passed(socket).map_err(named);
    }
    match &admin.listen {
        AdminAddress::Tcp(address) => {
            let listener = ListenerSockets::bind(*address, 1, false)?;
            listener.listen()?;
            Ok(listener.cloned()?.remove(0).into())
        }
        AdminAddress::Unix(path) => StdAdminListener::unix(path, admin.mode).map_err(named),
    }
}

fn local(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, SocketError> {
    listener.local_addr().map_err(|why| SocketError::Listen { address, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_is_accepted_at_whatever_the_number_of_workers() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        for (sockets, workers) in [(1, 1), (1, 3), (2, 3), (4, 4), (5, 2)] {
            let taken = ListenerSockets::bind(any, sockets, false).unwrap();
            let pairs = taken.by_worker(workers).unwrap();
            let mut idle: Vec<_> = (0..workers).collect();
            idle.retain(|worker| pairs.iter().all(|(of, _)| of != worker));
            assert_eq!(pairs.len(), sockets.max(workers));
            assert!(idle.is_empty(), "{sockets} sockets, {workers} workers: {idle:?}");
        }
    }

    #[test]
    fn sockets_that_were_passed_are_taken_by_their_address_and_others_are_left() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let former = ListenerSockets::bind(any, 2, false).unwrap();
        former.listen().unwrap();
        let mut others = OpenSockets::default();
        others.add("unix:/run/gone.sock".to_owned(), Vec::new());
        let (offered, sockets) = others.offered([&former]).unwrap();
        let mut passed = PassedSockets::offered(&offered, sockets);
        let taken = ListenerSockets::take(any, 1, false, &mut passed).unwrap();
        assert_eq!((taken.address, taken.sockets.len()), (former.address, 2));
        assert_eq!(passed.taken(), [true, false]);
        assert!(passed.left().eq(["unix:/run/gone.sock"]));
        let fresh = ListenerSockets::take(any, 1, false, &mut passed).unwrap();
        assert_ne!(fresh.address, former.address);
    }
}
