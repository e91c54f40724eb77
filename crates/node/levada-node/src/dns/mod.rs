//! The name server of a node: its sockets, its zones, and the nodes that it answers with.
//!
//! ```text
//!   sockets  the addresses for queries, opened before the process changes its user
//!   redirects  HTTP requests that are sent on to nodes
//!   watch    asks every node how it is, and tells the server
//!   alone    a process that is nothing but a name server
//! ```

mod alone;
mod redirects;
mod sockets;
mod watch;

use std::{io, sync::Arc};

use levada_config::{DnsSettings, Settings};
use levada_dns::{
    cookies::Cookies,
    serve::{DnsMetrics, Identity, Receiving, Server, accept, receive},
};
use levada_net::stop::Stop;
use levada_observe::metrics::{MetricSnapshot, Registry};
use levada_tls::metrics::TlsMetrics;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::start_error::StartError;
use redirects::Redirecting;

pub use alone::run as run_dns;
pub(crate) use sockets::DnsSockets;
pub(crate) use watch::{Own, standing_of, watch};

/// A name server that answers, until its stop or end.
pub(crate) struct NameServer {
    pub(crate) server: Arc<Server>,
    registry: Registry,
    /// The secret of cookies where the settings have none.
    secret: [u8; 16],
    /// The threads for datagrams.
    receiving: Mutex<Option<Receiving>>,
    redirecting: Arc<Redirecting>,
}

impl NameServer {
    /// Answers at these sockets.
    ///
    /// # Errors
    /// When the system refuses threads or randomness, or certificates cannot be used.
    pub(crate) fn start(
        all: &Settings,
        settings: &DnsSettings,
        sockets: DnsSockets,
        stop: &Stop,
    ) -> Result<Self, StartError> {
        let mut secret = [0; 16];
        let random = SystemRandom::new().fill(&mut secret);
        random.map_err(|_| StartError::Runtime(io::Error::other("no random numbers")))?;
        let mut registry = Registry::default();
        let metrics = DnsMetrics::registered(registry.part("levada"));
        let server = Server::new(settings.world.clone(), identity(settings, secret), metrics);
        for listener in sockets.tcp {
            let listener = from_std(listener)?;
            tokio::spawn(accept(server.clone(), listener, settings.tcp, stop.clone()));
        }
        let tls = TlsMetrics::registered(registry.part("levada_dns_http"));
        let redirecting = Redirecting::new(server.clone(), (all, settings), tls)?;
        for (number, listener) in sockets.http {
            let (listener, redirecting) = (from_std(listener)?, redirecting.clone());
            tokio::spawn(redirecting.accept(number, listener, settings.clone(), stop.clone()));
        }
        let receiving = receive(&server, sockets.udp).map_err(StartError::Runtime)?;
        let receiving = Mutex::new(Some(receiving));
        Ok(Self { server, registry, secret, receiving, redirecting })
    }

    /// Goes on with the zones of other settings.
    pub(crate) fn change(&self, all: &Settings, settings: &DnsSettings) {
        self.redirecting.change((all, settings));
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

fn from_std(listener: std::net::TcpListener) -> Result<tokio::net::TcpListener, StartError> {
    tokio::net::TcpListener::from_std(listener).map_err(StartError::Runtime)
}

fn identity(settings: &DnsSettings, secret: [u8; 16]) -> Identity {
    Identity {
        nsid: settings.nsid.clone(),
        cookies: Cookies::new(settings.cookie_secret.unwrap_or(secret)),
        limit: settings.limit,
    }
}
