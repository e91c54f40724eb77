//! Clients whose connections were given up as dormant, and that may come back at once.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use levada_types::Key;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::round_trips::ClientRoundTrips;

/// Clients whose connections were given up within the last seconds. A client that asks for the rest soon
/// had not gone away: its connection was given up too early.
#[derive(Default)]
pub struct GivenUpClients {
    len: AtomicUsize,
    recent: Mutex<VecDeque<(Instant, IpAddr, Key)>>,
    /// The round trips of all clients, which the same watch sees.
    pub round_trips: ClientRoundTrips,
}

impl GivenUpClients {
    /// Notes that the connection of `client` was given up while it got `key`.
    pub fn note(&self, client: IpAddr, key: Key) {
        let mut recent = self.recent.lock();
        if recent.len() == MAX_CLIENTS {
            recent.pop_front();
        }
        recent.push_back((Instant::now(), client, key));
        self.len.store(recent.len(), Relaxed);
    }

    /// Whether a request for the rest of `key` comes from a client that was just given up.
    pub fn returns(&self, client: IpAddr, key: Key) -> bool {
        if self.len.load(Relaxed) == 0 {
            return false;
        }
        let mut recent = self.recent.lock();
        let old = recent.partition_point(|(lost, ..)| lost.elapsed() > RETURN);
        drop(recent.drain(..old));
        let found = recent.iter().position(|(_, c, k)| (*c, *k) == (client, key));
        if let Some(found) = found {
            recent.remove(found);
        }
        self.len.store(recent.len(), Relaxed);
        found.is_some()
    }
}

/// A client that had not gone away comes back within this time.
const RETURN: Duration = Duration::from_secs(5);
/// The most clients that are remembered.
const MAX_CLIENTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_for_the_same_object_counts_once() {
        let (lost, here, there) =
            (GivenUpClients::default(), IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert!(!lost.returns(here, Key(1)));
        lost.note(here, Key(1));
        assert!(!lost.returns(here, Key(2)));
        assert!(!lost.returns(there, Key(1)));
        assert!(lost.returns(here, Key(1)));
        assert!(!lost.returns(here, Key(1)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let lost = GivenUpClients::default();
        for key in 0..=MAX_CLIENTS as u64 {
            lost.note(IpAddr::from([10, 0, 0, 1]), Key(key));
        }
        assert!(!lost.returns(IpAddr::from([10, 0, 0, 1]), Key(0)));
        assert!(lost.returns(IpAddr::from([10, 0, 0, 1]), Key(1)));
    }
}
