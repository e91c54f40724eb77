//! The endpoints of a process. One that is no longer wanted serves the connections that it has.

use std::{io, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use levada_net::{stop::Stop, udp::UdpSockets};
use parking_lot::Mutex;
use quinn::ServerConfig;
use tokio::runtime::Handle;

use crate::{Endpoint, QuicKeys, Serve};

/// See the module.
#[derive(Debug, Default)]
pub struct Endpoints {
    kept: Mutex<Vec<(Arc<UdpSockets>, Arc<Endpoint>)>>,
    keys: Arc<ArcSwap<QuicKeys>>,
}

/// An endpoint that is ready to accept connections.
#[derive(Debug)]
pub struct PreparedEndpoint {
    /// Its sockets.
    pub udp: Arc<UdpSockets>,
    /// The endpoint itself.
    pub endpoint: Arc<Endpoint>,
}

impl PreparedEndpoint {
    /// Accepts connections as [`Endpoint::accept`] does. `patience` is the time that those of the process
    /// before have, which is its drain.
    pub async fn accept<N: Serve>(
        self,
        node: Arc<N>,
        config: ServerConfig,
        workers: Vec<Handle>,
        stop: Stop,
        patience: Duration,
    ) {
        tokio::select! {
            () = self.endpoint.accept(node, config, workers, stop) => {}
            Err(error) = self.udp.take_over(tokio::time::sleep(patience)) => {
                tracing::error!(%error, "packets of HTTP/3 cannot be steered");
            }
        }
    }
}

impl Endpoints {
    /// The endpoint at these sockets: the one that is kept, or a new one, whose packets `runtime` receives.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn prepare(&self, udp: Arc<UdpSockets>, runtime: &Handle) -> io::Result<PreparedEndpoint> {
        let kept = self.kept.lock();
        let known = kept.iter().find(|(sockets, _)| Arc::ptr_eq(sockets, &udp));
        let endpoint = match known {
            Some((_, endpoint)) => endpoint.clone(),
            None => {
                let _runtime = runtime.enter();
                Arc::new(Endpoint::open(&udp, &self.keys)?)
            }
        };
        Ok(PreparedEndpoint { udp, endpoint })
    }

    /// Keeps an endpoint, whose connections may outlive the wish for it.
    pub fn keep(&self, PreparedEndpoint { udp, endpoint }: &PreparedEndpoint) {
        let mut kept = self.kept.lock();
        if !kept.iter().any(|(_, known)| Arc::ptr_eq(known, endpoint)) {
            kept.push((udp.clone(), endpoint.clone()));
        }
    }

    /// The keys of all connections.
    pub fn keys(&self) -> Arc<QuicKeys> {
        self.keys.load_full()
    }

    /// Goes on with these keys.
    pub fn set_keys(&self, keys: QuicKeys) {
        self.keys.store(Arc::new(keys));
    }

    /// Refuses new connections everywhere.
    pub fn refuse(&self) {
        self.kept.lock().iter().for_each(|(_, endpoint)| endpoint.refuse());
    }
}
