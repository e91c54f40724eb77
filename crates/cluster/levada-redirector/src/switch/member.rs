//! One server of a switch and the requests that it holds, at any place of the list.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_policy::{LoadTable, NodeIndex};
use levada_upstream::{RoundTrips, Server};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// A server with the state that outlives a reload.
pub struct Member {
    /// The server.
    pub server: Arc<Server>,
    /// The round trips to it.
    pub(crate) trips: RoundTrips,
    seat: Mutex<Seat>,
    drained: AtomicBool,
    /// Requests that were sent to it.
    pub(crate) requests: AtomicU64,
    /// Requests that it did not answer.
    pub(crate) failures: AtomicU64,
    /// The task that watches it.
    pub(crate) watch: Mutex<Option<AbortHandle>>,
}

/// The place where policies look up its load. A reload changes the list of servers and the table; requests
/// that were sent before it still count.
struct Seat {
    loads: Arc<LoadTable>,
    at: Option<NodeIndex>,
    held: u32,
}

/// One request that a server holds, until it is dropped.
pub(crate) struct HeldRequest(Arc<Member>);

impl Member {
    pub(crate) fn new(server: Arc<Server>) -> Arc<Self> {
        Arc::new(Self {
            server,
            trips: RoundTrips::default(),
            seat: Mutex::new(Seat { loads: LoadTable::new(0), at: None, held: 0 }),
            drained: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            watch: Mutex::default(),
        })
    }

    /// Counts another request, if the server then holds at most `most`.
    pub(crate) fn hold(self: &Arc<Self>, most: u32) -> Option<HeldRequest> {
        let mut seat = self.seat.lock();
        if seat.held >= most {
            return None;
        }
        seat.held += 1;
        seat.show();
        self.requests.fetch_add(1, Relaxed);
        Some(HeldRequest(self.clone()))
    }

    /// Moves it to a place of a table, or to none when it has left the list.
    pub(crate) fn sit(&self, loads: &Arc<LoadTable>, at: Option<NodeIndex>) {
        let mut seat = self.seat.lock();
        (seat.loads, seat.at) = (loads.clone(), at);
        seat.show();
    }

    /// Its place in the list.
    pub(crate) fn at(&self) -> Option<NodeIndex> {
        self.seat.lock().at
    }

    /// Requests that it holds.
    pub fn held(&self) -> u32 {
        self.seat.lock().held
    }

    /// Whether it gets no new requests.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Relaxed)
    }

    pub(crate) fn set_drained(&self, drained: bool) {
        self.drained.store(drained, Relaxed);
    }

    /// The round trip to it, as health probes have measured it.
    pub fn measured_trip(&self) -> Option<Duration> {
        self.trips.shown()
    }

    /// Requests that were sent to it, and requests that it did not answer.
    pub fn totals(&self) -> (u64, u64) {
        (self.requests.load(Relaxed), self.failures.load(Relaxed))
    }

    pub(crate) fn stop_watch(&self) {
        if let Some(watch) = self.watch.lock().take() {
            watch.abort();
        }
    }
}

impl Seat {
    fn show(&self) {
        if let Some(at) = self.at {
            self.loads.set(at, self.held);
        }
    }
}

impl HeldRequest {
    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.0
    }
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        let mut seat = self.0.seat.lock();
        seat.held -= 1;
        seat.show();
    }
}
