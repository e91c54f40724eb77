//! The endpoints of a process. One that is no longer wanted serves the connections that it has.

use std::{io, sync::Arc};

use levada_net::udp::UdpSockets;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::Endpoint;

/// See the module.
#[derive(Debug, Default)]
pub struct Endpoints(Mutex<Vec<(Arc<UdpSockets>, Arc<Endpoint>)>>);

/// An endpoint that is ready to accept connections.
#[derive(Debug)]
pub struct PreparedEndpoint {
    /// Its sockets.
    pub udp: Arc<UdpSockets>,
    /// The endpoint itself.
    pub endpoint: Arc<Endpoint>,
}

impl Endpoints {
    /// The endpoint at these sockets: the one that is kept, or a new one, whose packets `runtime` receives.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn prepare(&self, udp: Arc<UdpSockets>, runtime: &Handle) -> io::Result<PreparedEndpoint> {
        let kept = self.0.lock();
        let known = kept.iter().find(|(sockets, _)| Arc::ptr_eq(sockets, &udp));
        let endpoint = match known {
            Some((_, endpoint)) => endpoint.clone(),
            None => {
                let _runtime = runtime.enter();
                Arc::new(Endpoint::open(&udp)?)
            }
        };
        Ok(PreparedEndpoint { udp, endpoint })
    }

    /// Keeps an endpoint, whose connections may outlive the wish for it.
    pub fn keep(&self, PreparedEndpoint { udp, endpoint }: &PreparedEndpoint) {
        let mut kept = self.0.lock();
        if !kept.iter().any(|(_, known)| Arc::ptr_eq(known, endpoint)) {
            kept.push((udp.clone(), endpoint.clone()));
        }
    }

    /// Refuses new connections everywhere.
    pub fn refuse(&self) {
        self.0.lock().iter().for_each(|(_, endpoint)| endpoint.refuse());
    }
}
