//! One node of the cluster, as long as it is a member.

use std::sync::{Arc, Weak};

use http::{HeaderValue, header::HOST};
use levada_upstream::{Change, HealthCheck, Server, ServerKind, UpstreamHead, WatchedServer};
use parking_lot::Mutex;
use tokio::{sync::watch, task::AbortHandle};

use crate::{PeerLog, Peers};

/// The target of a probe of a peer.
pub const PROBE: &str = "/.levada/health";

/// A node at one address. At another address it is another member with the same name, health and log.
pub struct Member {
    /// The server.
    pub server: Arc<Server>,
    /// The known part of its purge log.
    pub log: Arc<PeerLog>,
    /// The number that it keeps when indices change. It is given to another node only after it has left.
    pub slot: usize,
    pub(crate) peers: Weak<Peers>,
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
        Arc::new(Self { server, log, slot, peers, watch: Mutex::default(), gone })
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

    /// A head as it takes it from a peer: over HTTP/2 with an absolute URI.
    pub fn address(&self, head: &UpstreamHead) -> UpstreamHead {
        let mut head = head.clone();
        if self.server.speaks_h2() {
            let host = head.headers.remove(HOST);
            let authority = host.as_ref().and_then(|h| h.to_str().ok()).unwrap_or("peer");
            let target = head.uri.path_and_query().map_or("/", |t| t.as_str());
            let uri = http::Uri::builder().scheme("http").authority(authority);
            head.uri = uri.path_and_query(target).build().unwrap_or_default();
            head.version = http::Version::HTTP_2;
        }
        head
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
        server.probe(&self.member.address(&head)).await
    }

    /// A probe shows only that a peer is there.
    fn counts_answers(&self) -> bool {
        true
    }

    fn changed(&self, _change: Change) {
        if let Some(peers) = self.member.peers.upgrade() {
            peers.health_changed(&self.member);
        }
    }
}
