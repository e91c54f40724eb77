//! A client's connection, as requests see it.

use std::{
    borrow::Cow,
    net::IpAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use http::HeaderValue;
use levada_access::pace::Pacer;
use levada_http::{Interim, Interims, ZeroCopyQueue};
use levada_redirector::handoff::SilencedSocket;
use levada_tls::client_certificates::CertifiedClient;
use levada_types::Key;
use parking_lot::Mutex;

use levada_config::Limits;

/// The kind of listener that a request arrived at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// A listener for clients.
    Client {
        /// Whether over TLS.
        tls: bool,
    },
    /// The listener for peers.
    Peer,
}

/// A client's connection, as the requests on it see it.
#[derive(Debug)]
pub struct ClientConnection {
    pub(crate) listener: ListenerKind,
    pub(crate) client: IpAddr,
    /// Whether the other end has proved that it is a peer.
    pub(crate) is_peer: bool,
    /// Its certificate, if the site that the connection was made for asks for one.
    pub(crate) certified: Option<Arc<CertifiedClient>>,
    address: OnceLock<HeaderValue>,
    /// The rate of its responses, in bytes per second, where the last site that it asked bounds it.
    pacer: Mutex<Option<(u64, Arc<Pacer>)>>,
    /// The key of the last request: the sweep of dormant connections notes it.
    pub(crate) last_key: Arc<AtomicU64>,
    /// The interim responses, over HTTP/1.1.
    pub(crate) interims: Arc<Interims>,
    /// The chunks that the system sends by itself, over HTTP/1 without TLS.
    pub(crate) zero_copy: Option<Arc<ZeroCopyQueue>>,
    /// Set on a connection that a front-end has handed over.
    pub(crate) silenced: Option<Arc<SilencedSocket>>,
    /// The offer of HTTP/3 in its responses.
    pub(crate) alt_svc: Option<HeaderValue>,
}

/// The other end of a connection.
pub struct Who {
    /// Its address.
    pub client: IpAddr,
    /// Whether it is a peer that has proved so.
    pub is_peer: bool,
    /// Its certificate, if it showed one.
    pub certified: Option<Arc<CertifiedClient>>,
    /// The offer of HTTP/3 in its responses.
    pub alt_svc: Option<HeaderValue>,
}

impl ClientConnection {
    /// A connection that has just come. `last_key` is that of its last request, for the watch for dormant ones.
    pub fn new(
        listener: ListenerKind,
        who: Who,
        plain: bool,
        last_key: Arc<AtomicU64>,
    ) -> Arc<Self> {
        let Who { client, is_peer, certified, alt_svc } = who;
        Arc::new(Self {
            listener,
            client,
            is_peer,
            certified,
            address: OnceLock::new(),
            pacer: Default::default(),
            last_key,
            interims: Arc::default(),
            zero_copy: plain.then(Arc::default),
            silenced: None,
            alt_svc,
        })
    }

    /// A connection that a front-end has handed over, or that has come back from a back-end.
    pub(crate) fn handed_over(client: IpAddr, silenced: Option<Arc<SilencedSocket>>) -> Arc<Self> {
        Arc::new(Self {
            listener: ListenerKind::Client { tls: false },
            client,
            is_peer: false,
            certified: None,
            address: OnceLock::new(),
            pacer: Default::default(),
            last_key: Arc::default(),
            interims: Arc::default(),
            zero_copy: Some(Arc::default()),
            silenced,
            alt_svc: None,
        })
    }

    /// The limits of its kind of listener.
    pub(crate) fn limits<'l>(&self, limits: &'l Limits) -> Cow<'l, Limits> {
        match self.listener {
            ListenerKind::Client { .. } => Cow::Borrowed(limits),
            ListenerKind::Peer => Cow::Owned(limits.of_peers()),
        }
    }

    pub(crate) fn set_last_key(&self, key: Key) {
        self.last_key.store(key.0, Relaxed);
    }

    /// The client's address as a field value, written once for all requests of the connection.
    pub(crate) fn address(&self) -> &HeaderValue {
        self.address.get_or_init(|| {
            let address = HeaderValue::try_from(self.client.to_string());
            address.unwrap_or_else(|_| HeaderValue::from_static("unknown"))
        })
    }

    /// What its responses share that have this rate in bytes per second.
    pub(crate) fn pacer(&self, rate: u64) -> Arc<Pacer> {
        let mut pacer = self.pacer.lock();
        match &*pacer {
            Some((known, shared)) if *known == rate => shared.clone(),
            _ => pacer.insert((rate, Pacer::new(rate))).1.clone(),
        }
    }

    /// Where the interim responses to the request that is being answered go, if its client takes any.
    pub(crate) fn interim(&self) -> Option<Interim> {
        self.interims.of_this_request()
    }
}
