//! Draining: moves clients away from a node that goes on running.
//!
//! ```text
//! started  the node is not ready; connections end with their next response, which says so
//! closing  ends downloads in the middle, at a rate (at once, or when the route is withdrawn)
//! ```
//!
//! A download is ended by an orderly close. Its length is known, so that the client can tell that bytes
//! are missing, and more clients ask for the rest after a close than after a reset. Each download is
//! ended once at most: one that begins while the node drains came back to it and has no other node to
//! go to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_net::stop::once_changed;
use levada_observe::metrics::{Counter, Gauge, Registry};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, futures::Notified, watch},
    time::Instant,
};

/// A shorter rest is not moved: sending it is faster than a new request for it.
const MIN_REST: u64 = 256 << 10;

/// The state of a node's drain, and the rate at which downloads are ended.
pub struct Drain {
    begun: watch::Sender<bool>,
    /// Set after the drain has started. A body looks at this flag for each piece.
    closing: AtomicBool,
    bucket: Mutex<Bucket>,
    /// Another process serves in the place of this one.
    left: watch::Sender<bool>,
    /// Connections end with their next response. Every response looks at this flag.
    ends: AtomicBool,
    running: AtomicU64,
    metrics: DrainMetrics,
    /// Notified of each drain, and of the stop.
    resting: Notify,
}

/// A token bucket: tokens become available one at a time, `gap` apart.
struct Bucket {
    gap: Duration,
    next: Instant,
}

impl Bucket {
    /// Takes a token if one is available. Unused tokens are lost except for those of a short time:
    /// bodies ask only when they have a piece to send, which may be rare.
    fn take(&mut self, now: Instant) -> bool {
        let free = now >= self.next;
        if free {
            self.next = self.next.max(now - MAX_SAVED) + self.gap;
        }
        free
    }
}

/// A long download that may be ended in the middle. It is counted while it lives.
pub struct Movable {
    drain: Arc<Drain>,
    left: u64,
}

impl Movable {
    /// A body of `length` bytes. `None` if it is short, or if the node drains already.
    pub fn new(drain: &Arc<Drain>, length: u64) -> Option<Self> {
        let movable = length >= MIN_REST && !drain.is_on();
        movable.then(|| {
            drain.running.fetch_add(1, Relaxed);
            Self { drain: drain.clone(), left: length }
        })
    }

    /// Whether the download must end now.
    pub fn ends(&self) -> bool {
        self.drain.closing.load(Relaxed) && self.drain.take(Instant::now())
    }

    /// Notes that bytes were sent. Returns whether the rest is still long.
    pub fn sent(&mut self, bytes: usize) -> bool {
        self.left = self.left.saturating_sub(bytes as u64);
        self.left >= MIN_REST
    }
}

impl Drop for Movable {
    fn drop(&mut self) {
        self.drain.running.fetch_sub(1, Relaxed);
    }
}

/// The metrics of drains.
#[derive(Clone)]
pub struct DrainMetrics {
    draining: Gauge,
    moved: Counter,
}

impl DrainMetrics {
    /// The metrics, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        Self {
            draining: registry.metric("draining", "Whether the node drains"),
            moved: registry.metric("downloads_moved", "Downloads that a drain ended in the middle"),
        }
    }
}

impl Drain {
    /// A node that does not drain.
    pub fn new(metrics: DrainMetrics) -> Arc<Self> {
        Arc::new(Self {
            begun: watch::Sender::new(false),
            closing: AtomicBool::new(false),
            bucket: Mutex::new(Bucket { gap: Duration::ZERO, next: Instant::now() }),
            left: watch::Sender::new(false),
            ends: AtomicBool::new(false),
            running: AtomicU64::new(0),
            metrics,
            resting: Notify::new(),
        })
    }

    /// Begins a drain, or changes the rate of a running one.
    pub fn begin(&self, rate: u32) {
        *self.bucket.lock() = Bucket { gap: gap(rate), next: Instant::now() };
        self.end_connections();
        self.begun.send_replace(true);
        self.metrics.draining.set(1);
        self.rouse();
    }

    /// Wakes all connections that rest.
    pub fn rouse(&self) {
        self.resting.notify_waiters();
    }

    /// Returns when connections that rest are woken after this call.
    pub fn roused(&self) -> Notified<'_> {
        self.resting.notified()
    }

    /// Begins to end downloads.
    pub fn close(&self) {
        self.closing.store(*self.begun.borrow(), Relaxed);
    }

    /// Undoes the drain.
    pub fn undo(&self) {
        self.closing.store(false, Relaxed);
        self.ends.store(*self.left.borrow(), Relaxed);
        self.begun.send_replace(false);
        self.metrics.draining.set(0);
    }

    /// Whether downloads are being ended.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// A receiver of every beginning and every end of a drain.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.begun.subscribe()
    }

    /// Another process serves from now on: connections end after their next response, which says so. Unlike
    /// in a drain, one without a request stays open.
    pub fn leave(&self) {
        self.end_connections();
        self.left.send_replace(true);
    }

    /// Has every response say from now on that its connection ends.
    pub fn end_connections(&self) {
        self.ends.store(true, Relaxed);
    }

    /// Whether connections end with their next response: in a drain, after an upgrade and in a stop.
    #[inline]
    pub fn ends_connections(&self) -> bool {
        self.ends.load(Relaxed)
    }

    /// Returns when another process serves. Connections call this at each poll.
    pub async fn left(&self) {
        let mut receiver = self.left.subscribe();
        let changes = receiver.clone();
        let left = async { drop(receiver.wait_for(|left| *left).await) };
        once_changed(&changes, left).await;
    }

    /// Whether the node drains.
    pub fn is_on(&self) -> bool {
        *self.begun.borrow()
    }

    /// Returns when a drain has started. Connections call this at each poll.
    pub async fn begun(&self) {
        let mut receiver = self.begun.subscribe();
        let changes = receiver.clone();
        let begun = async { drop(receiver.wait_for(|begun| *begun).await) };
        once_changed(&changes, begun).await;
    }

    /// Whether a download may be ended now. If so, counts it.
    fn take(&self, now: Instant) -> bool {
        let taken = self.bucket.lock().take(now);
        self.metrics.moved.inc_by(taken.into());
        taken
    }

    /// The number of long downloads.
    pub fn running(&self) -> u64 {
        self.running.load(Relaxed)
    }

    /// The number of downloads ended in the middle since the start.
    pub fn moved(&self) -> u64 {
        self.metrics.moved.get()
    }
}

fn gap(rate: u32) -> Duration {
    Duration::from_secs(1) / rate.max(1)
}

/// Tokens of this time are saved when they are not used.
const MAX_SAVED: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_a_rate_apart_and_hardly_saved_up() {
        let begun = Instant::now();
        let mut bucket = Bucket { gap: gap(50), next: begun };
        let taken = |bucket: &mut Bucket, millis| {
            let now = begun + Duration::from_millis(millis);
            std::iter::from_fn(|| bucket.take(now).then_some(())).count()
        };
        assert_eq!(taken(&mut bucket, 0), 1);
        assert_eq!(taken(&mut bucket, 19), 0);
        assert_eq!(taken(&mut bucket, 20), 1);
        assert_eq!(taken(&mut bucket, 5_000), 6, "a tenth of a second is caught up with");
    }

    #[test]
    fn only_what_is_long_and_began_before_is_ended() {
        let drain = Drain::new(DrainMetrics::registered(&mut Registry::default()));
        assert!(Movable::new(&drain, MIN_REST - 1).is_none());
        let mut early = Movable::new(&drain, MIN_REST + 10).unwrap();
        assert!(!early.ends());
        drain.begin(1_000_000);
        assert!(Movable::new(&drain, u64::MAX).is_none());
        assert!(!early.ends(), "not before the route is gone");
        drain.close();
        assert!(early.ends());
        assert!(early.sent(10) && !early.sent(1), "the rest is short");
        assert_eq!((drain.running(), drain.moved()), (1, 1));
        drop(early);
        drain.undo();
        assert_eq!(drain.running(), 0);
        assert!(!drain.is_on() && Movable::new(&drain, u64::MAX).is_some_and(|late| !late.ends()));
    }

    #[test]
    fn connections_end_in_a_drain_and_after_an_upgrade() {
        let drain = Drain::new(DrainMetrics::registered(&mut Registry::default()));
        drain.begin(1);
        assert!(drain.ends_connections());
        drain.undo();
        assert!(!drain.ends_connections());
        drain.leave();
        drain.undo();
        assert!(drain.ends_connections(), "another process still serves");
    }

    #[test]
    fn a_drain_that_was_undone_closes_nothing() {
        let drain = Drain::new(DrainMetrics::registered(&mut Registry::default()));
        let download = Movable::new(&drain, u64::MAX).unwrap();
        drain.begin(1_000);
        drain.undo();
        drain.close();
        assert!(!download.ends());
    }
}
