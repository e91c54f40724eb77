//! The places of connections at the listener for peers.
//!
//! Anyone can open connections that have not proved that they come from a peer. So these are few, and hold
//! none of the peers' places. When they are too many, one that is there gives way to the newcomer, which may be
//! a peer: a proof takes one round trip. The oldest of the newcomer's own network gives way if that network has
//! half of the places, or else the oldest of all.

use std::{collections::VecDeque, net::IpAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The places of one listener.
#[derive(Debug)]
pub struct PeerPlaces {
    proven: Arc<Semaphore>,
    /// The most connections without a proof.
    bound: usize,
    unproven: Mutex<Unproven>,
}

#[derive(Debug, Default)]
struct Unproven {
    next: u64,
    /// The oldest first.
    open: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    network: IpAddr,
    gives_way: oneshot::Sender<()>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub struct UnprovenPlace {
    places: Arc<PeerPlaces>,
    id: u64,
}

impl PeerPlaces {
    /// Places for `proven` connections of peers, and for `unproven` others.
    pub fn new(proven: usize, unproven: usize) -> Arc<Self> {
        let proven = Arc::new(Semaphore::new(proven));
        Arc::new(Self { proven, bound: unproven, unproven: Mutex::default() })
    }

    /// The place of a connection that has proved that it comes from a peer.
    pub async fn proven(&self) -> Option<OwnedSemaphorePermit> {
        self.proven.clone().acquire_owned().await.ok()
    }

    /// The place of a new connection of `network`. The receiver gets a message when the connection has to give
    /// way to another, and an error when its place is dropped before.
    pub fn enter(self: &Arc<Self>, network: IpAddr) -> (UnprovenPlace, oneshot::Receiver<()>) {
        let mut unproven = self.unproven.lock();
        if unproven.open.len() >= self.bound {
            let of_network = || unproven.open.iter().filter(|entry| entry.network == network);
            let own = of_network().next().filter(|_| of_network().count() * 2 >= self.bound);
            let id = own.or(unproven.open.front()).map(|entry| entry.id);
            if let Some(entry) = unproven.remove(id) {
                let _ = entry.gives_way.send(());
            }
        }
        let id = unproven.next;
        unproven.next += 1;
        let (gives_way, given_way) = oneshot::channel();
        unproven.open.push_back(Entry { id, network, gives_way });
        (UnprovenPlace { places: self.clone(), id }, given_way)
    }
}

impl Unproven {
    fn remove(&mut self, id: Option<u64>) -> Option<Entry> {
        let at = self.open.binary_search_by_key(&id?, |entry| entry.id).ok()?;
        self.open.remove(at)
    }
}

impl Drop for UnprovenPlace {
    fn drop(&mut self) {
        self.places.unproven.lock().remove(Some(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    #[test]
    fn oldest_gives_way_to_a_newcomer() {
        let places = PeerPlaces::new(4, 4);
        let mut open: Vec<_> = (0..4).map(|number| places.enter(network(number))).collect();
        let _newcomer = places.enter(network(9));
        assert_eq!(open[0].1.try_recv(), Ok(()));
        assert!(open[1].1.try_recv().is_err());
        drop(open.remove(1));
        let _into_the_gap = places.enter(network(9));
        assert_eq!(open[1].1.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    }

    #[test]
    fn network_with_half_of_the_places_displaces_itself_only() {
        let places = PeerPlaces::new(4, 4);
        let (_other_place, mut other) = places.enter(network(1));
        let mut open: Vec<_> = (0..9).map(|_| places.enter(network(2))).collect();
        assert_eq!(other.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        let displaced = open.iter_mut().filter_map(|(_, told)| told.try_recv().ok()).count();
        assert_eq!(displaced, 6);
    }

    #[test]
    fn proof_frees_the_place_and_nobody_is_told() {
        let places = PeerPlaces::new(4, 4);
        let (place, mut told) = places.enter(network(1));
        drop(place);
        assert_eq!(told.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(places.unproven.lock().open.is_empty());
    }
}
