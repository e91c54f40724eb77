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

use crate::memory_bound::MemoryPressure;
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

/// The places of a client when memory is nearly full: more than a browser has connections.
const FEW: u32 = 16;
/// The same before all clients are turned away.
const FEWER: u32 = 4;

/// See the module.
#[derive(Debug)]
pub struct ClientShares {
    bound: AtomicU32,
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
            bound: AtomicU32::new(bound),
            held: AtomicU32::new(0),
            by_client: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::new(),
        })
    }

    /// A place for `client`; `None` when it has as many as are free, or as there may be under this pressure.
    pub fn enter(self: &Arc<Self>, client: IpAddr, under: MemoryPressure) -> Option<ClientPlace> {
        let most = match under {
            MemoryPressure::None => u32::MAX,
            MemoryPressure::Some => FEW,
            MemoryPressure::High => FEWER,
            MemoryPressure::Full => return None,
        };
        let counter = self.hasher.hash_one(client) as usize % COUNTERS;
        let others = self.held.fetch_add(1, Relaxed);
        let own = self.by_client[counter].fetch_add(1, Relaxed);
        let place = ClientPlace { shares: self.clone(), counter };
        let bound = self.bound.load(Relaxed);
        (own < bound.saturating_sub(others).min(most)).then_some(place)
    }

    /// Changes the number of places. Taken places stay taken.
    pub fn set_bound(&self, bound: u32) {
        self.bound.store(bound, Relaxed);
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
            let got: Vec<_> =
                std::iter::from_fn(|| shares.enter(client(number), MemoryPressure::None)).collect();
            assert_eq!(got.len(), has, "client {number}");
            places.extend(got);
        }
        assert!(shares.enter(client(1), MemoryPressure::None).is_none());
        assert!(shares.enter(client(5), MemoryPressure::None).is_some());
        drop(places);
        assert_eq!(shares.held(), 0);
        assert!(shares.by_client.iter().all(|count| count.load(Relaxed) == 0));
    }

    #[test]
    fn memory_that_is_nearly_full_refuses_greedy_clients_first() {
        let shares = ClientShares::new(1000);
        let greedy: Vec<_> =
            (0..100).map(|_| shares.enter(client(1), MemoryPressure::None)).collect();
        assert!(greedy.iter().all(Option::is_some));
        assert!(shares.enter(client(1), MemoryPressure::Some).is_none());
        assert!(shares.enter(client(2), MemoryPressure::Some).is_some());
        let fewer: Vec<_> = (0..5).map(|_| shares.enter(client(3), MemoryPressure::High)).collect();
        assert_eq!(fewer.iter().flatten().count(), 4);
        drop(fewer);
        assert!(shares.enter(client(2), MemoryPressure::Full).is_none());
        drop(greedy);
        assert_eq!(shares.held(), 0);
    }

    #[test]
    fn one_place_serves_one_after_another() {
        let shares = ClientShares::new(1);
        let place = shares.enter(client(1), MemoryPressure::None);
        assert!(place.is_some() && shares.enter(client(2), MemoryPressure::None).is_none());
        drop(place);
        assert!(shares.enter(client(2), MemoryPressure::None).is_some());
    }
}
