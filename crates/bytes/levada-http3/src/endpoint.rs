//! The UDP side of a listener: accepts connections, and spreads them over the workers.
//!
//! One task receives the packets of an address and hands each to the connection that it belongs to; ciphers,
//! acknowledgements and requests are the work of the connection's own worker. So a client may change its
//! address, and no packet comes to a wrong thread.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use levada_net::{
    stop::{self, Stop},
    udp::UdpSockets,
};
use levada_observe::metrics::Work;
use quinn::{EndpointConfig, ServerConfig, TokioRuntime};
use tokio::runtime::Handle;

use crate::{
    QuicKeys, Serve, cid::MarkedIds, connection, keys::ResetTokens, session::VERSION,
    socket::Socket,
};

/// Handshakes that may be under way before clients have to prove their address first.
pub const UNPROVEN: usize = 256;

/// See the module.
#[derive(Debug)]
pub struct Endpoint {
    quic: quinn::Endpoint,
    unproven: Arc<AtomicUsize>,
}

/// A handshake that is under way.
#[derive(Debug)]
pub(crate) struct Unproven(Arc<AtomicUsize>);

impl Unproven {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count.clone())
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Endpoint {
    /// Takes the packets that come to these sockets, with the keys that are set at the time. Call it within the runtime that is to receive them.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open(sockets: &UdpSockets, keys: &Arc<ArcSwap<QuicKeys>>) -> io::Result<Self> {
        let (number, ids) = (sockets.number(), keys.clone());
        let mut config = EndpointConfig::new(Arc::new(ResetTokens::at(sockets.address()?, keys)));
        config
            .cid_generator(move || Box::new(MarkedIds::at(number, ids.clone())))
            // Each reset is shorter than the packet that it answers, so that two nodes do not go on with it
            // (RFC 9000 Sec. 10.3.3); all clients of a node that has died may come at once.
            .min_reset_interval(Duration::ZERO)
            .supported_versions(vec![VERSION]);
        let unproven = Arc::<AtomicUsize>::default();
        let socket = Arc::new(Socket::new(sockets.socket()?, unproven.clone())?);
        let runtime = Arc::new(TokioRuntime);
        let quic = quinn::Endpoint::new_with_abstract_socket(config, None, socket, runtime)?;
        Ok(Self { quic, unproven })
    }

    /// Accepts connections until the stop, which these workers serve in turn.
    pub async fn accept<N: Serve>(
        &self,
        node: Arc<N>,
        config: ServerConfig,
        workers: Vec<Handle>,
        stop: Stop,
    ) {
        self.quic.set_server_config(Some(config));
        for worker in workers.iter().cycle() {
            let incoming = tokio::select! {
                Some(incoming) = self.quic.accept() => incoming,
                () = stop.begun() => return,
                else => return,
            };
            let under_way = self.unproven.load(Relaxed);
            if !incoming.remote_address_validated() && node.asks_for_proof(under_way) {
                node.metrics().retries.inc();
                // An address that is not validated may be asked.
                let _ = incoming.retry();
                continue;
            }
            let Some(place) = node.place(incoming.remote_address().ip().to_canonical()) else {
                incoming.refuse();
                continue;
            };
            let handshake = Unproven::begin(&self.unproven);
            let serving = connection::serve(node.clone(), incoming, place, handshake, stop.clone());
            let serving = node.cpu().timed(Work::Connection, serving);
            let _worker = worker.enter();
            stop::spawn_until_cut(stop.clone(), serving);
        }
    }

    /// Refuses new connections from now on. The open ones go on.
    pub fn refuse(&self) {
        self.quic.set_server_config(None);
    }
}
