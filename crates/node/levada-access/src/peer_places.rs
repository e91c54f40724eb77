//! The places of connections at the listener for peers.
//!
//! Anyone can open connections that have not proved that they come from a peer. So these have places of their
//! own, and hold none of the peers'. A proof takes one round trip: a newcomer from a peer gives its place back
//! at once.

use std::{net::IpAddr, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::silent_places::{SilentPlace, SilentPlaces};

/// The places of one listener.
#[derive(Debug)]
pub struct PeerPlaces {
    proven: Arc<Semaphore>,
    unproven: Arc<SilentPlaces>,
}

impl PeerPlaces {
    /// Places for `proven` connections of peers, and for `unproven` others.
    pub fn new(proven: usize, unproven: usize) -> Arc<Self> {
        let proven = Arc::new(Semaphore::new(proven));
        Arc::new(Self { proven, unproven: SilentPlaces::new(unproven) })
    }

    /// The place of a connection that has proved that it comes from a peer.
    pub async fn proven(&self) -> Option<OwnedSemaphorePermit> {
        self.proven.clone().acquire_owned().await.ok()
    }

    /// The place of a new connection of `network`, as [`SilentPlaces::enter`] gives it.
    pub fn enter(&self, network: IpAddr) -> (SilentPlace, oneshot::Receiver<()>) {
        self.unproven.enter(network)
    }
}
