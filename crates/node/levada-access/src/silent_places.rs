//! The places of connections that have shown nothing yet: no proof, no request.
//!
//! Anyone can open such connections. So these are few, and a newcomer always gets a place. When all are taken,
//! the network that has most of them loses its oldest one.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug)]
pub struct SilentPlaces {
    bound: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// The oldest first.
    entries: VecDeque<Entry>,
    /// How many connections of each network may be closed.
    by_network: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    network: IpAddr,
    is_busy: bool,
    gives_way: oneshot::Sender<()>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub struct SilentPlace {
    places: Arc<SilentPlaces>,
    id: u64,
}

/// As long as it lives, its connection keeps its place.
#[derive(Debug)]
pub struct BusyPlace<'a>(&'a SilentPlace);

impl SilentPlaces {
    /// So many places, all of them free.
    pub fn new(bound: usize) -> Arc<Self> {
        Arc::new(Self { bound, taken: Mutex::default() })
    }

    /// The place of a new connection of `network`. The receiver gets a message when the connection has to give
    /// way to another, and an error when its place is dropped before.
    pub fn enter(self: &Arc<Self>, network: IpAddr) -> (SilentPlace, oneshot::Receiver<()>) {
        let mut taken = self.taken.lock();
        if taken.entries.len() >= self.bound {
            taken.give_way();
        }
        let id = taken.next;
        taken.next += 1;
        let (gives_way, given_way) = oneshot::channel();
        taken.entries.push_back(Entry { id, network, is_busy: false, gives_way });
        *taken.by_network.entry(network).or_default() += 1;
        (SilentPlace { places: self.clone(), id }, given_way)
    }

    /// Lets a connection give way, if there is one.
    pub fn give_way(&self) {
        self.taken.lock().give_way();
    }
}

impl Taken {
    fn give_way(&mut self) {
        let most = self.by_network.values().max();
        let is_first =
            |entry: &Entry| !entry.is_busy && self.by_network.get(&entry.network) == most;
        let id = self.entries.iter().find(|entry| is_first(entry)).map(|entry| entry.id);
        if let Some(entry) = id.and_then(|id| self.remove(id)) {
            let _ = entry.gives_way.send(());
        }
    }

    fn find(&self, id: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        self.set_busy(id, true);
        self.entries.remove(self.find(id)?)
    }

    fn set_busy(&mut self, id: u64, is_busy: bool) {
        let Some(entry) = self.find(id).and_then(|at| self.entries.get_mut(at)) else { return };
        if std::mem::replace(&mut entry.is_busy, is_busy) == is_busy {
            return;
        }
        let count = self.by_network.entry(entry.network).or_default();
        match is_busy {
            true if *count <= 1 => drop(self.by_network.remove(&entry.network)),
            true => *count -= 1,
            false => *count += 1,
        }
    }
}

impl SilentPlace {
    /// Keeps the place while the connection has work.
    pub fn busy(&self) -> BusyPlace<'_> {
        self.places.taken.lock().set_busy(self.id, true);
        BusyPlace(self)
    }
}

impl Drop for BusyPlace<'_> {
    fn drop(&mut self) {
        self.0.places.taken.lock().set_busy(self.0.id, false);
    }
}

impl Drop for SilentPlace {
    fn drop(&mut self) {
        self.places.taken.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError;

    fn network(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    #[test]
    fn oldest_gives_way_to_a_newcomer() {
        let places = SilentPlaces::new(4);
        let mut open: Vec<_> = (0..4).map(|number| places.enter(network(number))).collect();
        let _newcomer = places.enter(network(9));
        assert_eq!(open[0].1.try_recv(), Ok(()));
        assert!(open[1].1.try_recv().is_err());
        drop(open.remove(1));
        let _into_the_gap = places.enter(network(9));
        assert_eq!(open[1].1.try_recv(), Err(TryRecvError::Empty));
    }

    #[test]
    fn networks_with_most_places_displace_themselves_only() {
        let places = SilentPlaces::new(7);
        let (_other_place, mut other) = places.enter(network(1));
        let mut open: Vec<_> = (0..20).map(|at| places.enter(network(2 + at % 3))).collect();
        assert_eq!(other.try_recv(), Err(TryRecvError::Empty));
        let displaced = open.iter_mut().filter_map(|(_, given)| given.try_recv().ok()).count();
        assert_eq!(displaced, 14);
    }

    #[test]
    fn connection_with_work_keeps_its_place_until_the_work_ends() {
        let places = SilentPlaces::new(2);
        let (first, mut given_way) = places.enter(network(1));
        let busy = first.busy();
        let _others: Vec<_> = (0..9).map(|_| places.enter(network(1))).collect();
        assert_eq!(given_way.try_recv(), Err(TryRecvError::Empty));
        drop(busy);
        let _newcomer = places.enter(network(1));
        assert_eq!(given_way.try_recv(), Ok(()));
    }

    #[test]
    fn place_that_is_dropped_is_free_and_no_message_is_sent() {
        let places = SilentPlaces::new(4);
        let (place, mut given_way) = places.enter(network(1));
        drop(place.busy());
        drop(place);
        assert_eq!(given_way.try_recv(), Err(TryRecvError::Closed));
        let taken = places.taken.lock();
        assert!(taken.entries.is_empty() && taken.by_network.is_empty());
    }
}
