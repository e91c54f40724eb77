//! A bounded number of places that clients share: requests that this node serves, open connections.
//!
//! ```text
//!   a client may have as many places as are free now
//! ```
//!
//! This is the dynamic threshold of shared-memory switches (Choudhury and Hahne, IEEE/ACM Transactions on
//! Networking 6(2), 1998). One client has half of the places at most, two have a third each, and with any
//! number of greedy clients some places stay free for one that has none. Nothing waits here, so this is a
//! few counters and no queue.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// Counters of clients. Two clients of one counter share its places, with a chance of 1 in so many.
const COUNTERS: usize = 4096;

/// See the module.
#[derive(Debug)]
pub struct ClientShares {
    bound: u32,
    held: AtomicU32,
    by_client: Box<[AtomicU32]>,
    /// Differs in each process, so that no client can choose another one's counter.
    hasher: RandomState,
}

/// One place; free again when dropped.
#[derive(Debug)]
pub struct ClientPlace {
    shares: Arc<ClientShares>,
    counter: usize,
}

impl ClientShares {
    /// `bound` places.
    pub fn new(bound: u32) -> Arc<Self> {
        Arc::new(Self {
            bound,
            held: AtomicU32::new(0),
            by_client: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::new(),
        })
    }

    /// A place for `client`; `None` when it has as many as are free.
    pub fn enter(self: &Arc<Self>, client: IpAddr) -> Option<ClientPlace> {
        let counter = self.hasher.hash_one(client) as usize % COUNTERS;
        let others = self.held.fetch_add(1, Relaxed);
        let own = self.by_client[counter].fetch_add(1, Relaxed);
        let place = ClientPlace { shares: self.clone(), counter };
        (own < self.bound.saturating_sub(others)).then_some(place)
    }

    /// The places that are taken.
    pub fn held(&self) -> u32 {
        self.held.load(Relaxed)
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        self.shares.held.fetch_sub(1, Relaxed);
        self.shares.by_client[self.counter].fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn greedy_clients_leave_places_for_one_that_has_none() {
        let shares = ClientShares::new(100);
        let mut places = Vec::new();
        for (number, has) in [(1, 50), (2, 25), (3, 13), (4, 6)] {
            let got: Vec<_> = std::iter::from_fn(|| shares.enter(client(number))).collect();
            assert_eq!(got.len(), has, "client {number}");
            places.extend(got);
        }
        assert!(shares.enter(client(1)).is_none());
        assert!(shares.enter(client(5)).is_some());
        drop(places);
        assert_eq!(shares.held(), 0);
        assert!(shares.by_client.iter().all(|count| count.load(Relaxed) == 0));
    }

    #[test]
    fn one_place_serves_one_after_another() {
        let shares = ClientShares::new(1);
        let place = shares.enter(client(1));
        assert!(place.is_some() && shares.enter(client(2)).is_none());
        drop(place);
        assert!(shares.enter(client(2)).is_some());
    }
}
