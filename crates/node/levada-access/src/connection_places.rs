//! The places of clients' connections: how many there are, and how clients share them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::client_shares::ClientShares;

/// See the module.
pub struct ConnectionPlaces {
    /// All of them.
    pub all: Arc<Semaphore>,
    count: Mutex<usize>,
    /// The same number, as clients share it.
    pub shares: Arc<ClientShares>,
}

impl ConnectionPlaces {
    /// So many places, all of them free.
    pub fn new(connections: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(connections)),
            count: Mutex::new(connections),
            shares: ClientShares::new(connections as u32),
        }
    }

    /// Changes their number. Open connections stay open. Must be called on a runtime.
    pub fn set(&self, connections: usize) {
        let before = std::mem::replace(&mut *self.count.lock(), connections);
        self.shares.set_bound(connections as u32);
        self.all.add_permits(connections.saturating_sub(before));
        let fewer = before.saturating_sub(connections);
        let taken = fewer - self.all.forget_permits(fewer);
        if taken > 0 {
            let places = self.all.clone();
            tokio::spawn(async move {
                for _ in 0..taken {
                    let Ok(place) = places.acquire().await else { return };
                    place.forget();
                }
            });
        }
    }
}
