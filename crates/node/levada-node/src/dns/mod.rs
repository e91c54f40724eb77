//! The name server of a node: its sockets, its zones, and the nodes that it answers with.
//!
//! ```text
//!   sockets  the addresses for queries, opened before the process changes its user
//!   watch    asks every node how it is, and tells the server
//!   alone    a process that is nothing but a name server
//! ```

mod alone;
mod sockets;
mod watch;

use std::{io, sync::Arc};

use levada_config::DnsSettings;
use levada_dns::{
    cookies::Cookies,
    serve::{DnsMetrics, Identity, Receiving, Server, accept, receive},
};
use levada_net::stop::Stop;
use levada_observe::metrics::{MetricSnapshot, Registry};
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};

pub use alone::run as run_dns;
pub(crate) use sockets::DnsSockets;
pub(crate) use watch::watch;

/// A name server that answers, until its stop or end.
pub(crate) struct NameServer {
    pub(crate) server: Arc<Server>,
    registry: Registry,
    /// The secret of cookies where the settings have none.
    secret: [u8; 16],
    /// The threads for datagrams.
    receiving: Mutex<Option<Receiving>>,
}

impl NameServer {
    /// Answers at these sockets.
    ///
    /// # Errors
    /// When the system refuses threads or randomness.
    pub(crate) fn start(
        settings: &DnsSettings,
        sockets: DnsSockets,
        stop: &Stop,
    ) -> io::Result<Self> {
        let mut secret = [0; 16];
        SystemRandom::new().fill(&mut secret).map_err(|_| io::Error::other("no random numbers"))?;
        let mut registry = Registry::default();
        let metrics = DnsMetrics::registered(registry.part("levada"));
        let server = Server::new(settings.world.clone(), identity(settings, secret), metrics);
        for listener in sockets.tcp {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(accept(server.clone(), listener, settings.tcp, stop.clone()));
        }
        let receiving = Mutex::new(Some(receive(&server, sockets.udp)?));
        Ok(Self { server, registry, secret, receiving })
    }

    /// Goes on with the zones of other settings.
    pub(crate) fn change(&self, settings: &DnsSettings) {
        self.server.set_world(settings.world.clone(), identity(settings, self.secret));
    }

    /// Takes no more datagrams, and returns when those that were taken are answered. It waits.
    pub(crate) fn end(&self) {
        let receiving = self.receiving.lock().take();
        receiving.into_iter().for_each(Receiving::end);
    }

    /// The metrics of this moment.
    pub(crate) fn read_metrics(&self) -> Vec<MetricSnapshot> {
        self.registry.read()
    }
}

fn identity(settings: &DnsSettings, secret: [u8; 16]) -> Identity {
    Identity {
        nsid: settings.nsid.clone(),
        cookies: Cookies::new(settings.cookie_secret.unwrap_or(secret)),
        limit: settings.limit,
    }
}
