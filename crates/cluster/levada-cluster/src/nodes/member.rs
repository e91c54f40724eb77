//! One node of the cluster, as long as it is a member.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONTENT_TYPE, HOST},
};
use levada_upstream::{
    Change, HealthCheck, RoundTrips, Server, ServerFailure, ServerKind, UpstreamHead, WatchedServer,
};
use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

use crate::nodes::{PeerLog, Peers};

/// The target of a probe of a peer.
pub const PROBE: &str = "/.levada/health";
/// From a peer: the stored response is wanted, stale too, since the servers behind it do not answer.
pub const STORED: HeaderName = HeaderName::from_static("levada-stored");

/// A node at one address. At another address it is another member with the same name, health and log.
pub struct Member {
    /// The server.
    pub server: Arc<Server>,
    /// The known part of its purge log.
    pub log: Arc<PeerLog>,
    /// The number that it keeps when indices change. It is given to another node only after it has left.
    pub slot: usize,
    pub(crate) peers: Weak<Peers>,
    trips: RoundTrips,
    /// The task that watches it.
    pub(crate) watch: Mutex<Option<AbortHandle>>,
    gone: watch::Sender<bool>,
}

impl Member {
    pub(crate) fn new(
        server: Arc<Server>,
        log: Arc<PeerLog>,
        slot: usize,
        peers: Weak<Peers>,
    ) -> Arc<Self> {
        let gone = watch::Sender::new(false);
        let (trips, watch) = (RoundTrips::default(), Mutex::default());
        Arc::new(Self { server, log, slot, peers, trips, watch, gone })
    }

    /// The round trip to it, as probes have measured it at this address.
    pub(crate) fn measured_trip(&self) -> Option<Duration> {
        self.trips.shown()
    }

    /// Returns when it is no member any more, or is at another address.
    pub async fn gone(&self) {
        // The sender lives as long as this does.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    pub(crate) fn leave(&self) {
        self.stop_watch();
        self.gone.send_replace(true);
    }

    pub(crate) fn stop_watch(&self) {
        if let Some(watch) = self.watch.lock().take() {
            watch.abort();
        }
    }

    /// Sends a short request to its listener for peers. Returns the status and up to `most` bytes of the answer.
    ///
    /// # Errors
    /// The reason why there is no whole answer.
    pub async fn ask(
        &self,
        method: Method,
        path: &'static str,
        json: Bytes,
        most: usize,
    ) -> Result<(StatusCode, Bytes), ServerFailure> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(host) = HeaderValue::from_str(&self.server.address.to_string()) {
            headers.insert(HOST, host);
        }
        let uri = http::Uri::from_static(path);
        let head = UpstreamHead { method, uri, headers, ..UpstreamHead::get("/") };
        self.server.ask(&head, json, most).await
    }
}

/// A peer under watch.
#[derive(Clone)]
pub struct WatchedPeer {
    /// The peer.
    pub member: Arc<Member>,
    pub(crate) check: Arc<HealthCheck>,
}

impl WatchedServer for WatchedPeer {
    const KIND: ServerKind = ServerKind::Peer;

    fn server(&self) -> &Arc<Server> {
        &self.member.server
    }

    fn check(&self) -> &HealthCheck {
        &self.check
    }

    async fn probe(&self) -> bool {
        let server = &self.member.server;
        let mut head = UpstreamHead::get(PROBE);
        if let Ok(host) = HeaderValue::from_str(&server.address.to_string()) {
            head.headers.insert(HOST, host);
        }
        server.probe(&head).await
    }

    fn measured(&self, took: Duration) {
        if self.member.trips.note(took)
            && let Some(peers) = self.member.peers.upgrade()
        {
            peers.view_changed();
        }
    }

    /// A probe shows only that a peer is there.
    fn counts_answers(&self) -> bool {
        true
    }

    fn changed(&self, _change: Change) {
        if let Some(peers) = self.member.peers.upgrade() {
            peers.view_changed();
        }
    }
}
