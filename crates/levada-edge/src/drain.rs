//! Draining: a node that is to have no clients soon, and goes on running.
//!
//! ```text
//! begun    readiness says no; connections end with the request that they are at
//! closing  downloads are ended in the middle, so many a second (at once, or when the route is gone)
//! ```
//!
//! A download is ended by an orderly close where its client can tell that something is missing, since its
//! length is known: more clients ask for the rest after that than after a reset. Each is ended once at
//! most: one that begins while the node drains has nowhere else to go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_net::stop::once_changed;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::{sync::watch, time::Instant};

/// What is shorter than this is faster sent than asked for again.
const LEAST_LEFT: u64 = 256 << 10;

/// Whether the node drains, and who may be sent away now.
pub(crate) struct Drain {
    begun: watch::Sender<bool>,
    /// Of the two flags that a body looks at for each piece, the one that is set last.
    closing: AtomicBool,
    bucket: Mutex<Bucket>,
    /// What `limits.drain_rate` says.
    rate: u32,
    running: AtomicU64,
    moved: Counter,
}

/// One place at a time, a rate apart.
struct Bucket {
    gap: Duration,
    next: Instant,
}

impl Bucket {
    /// What was not used up to now is lost but for a moment's worth: bodies ask when they have a piece to
    /// send, and none may happen to.
    fn take(&mut self, now: Instant) -> bool {
        let free = now >= self.next;
        if free {
            self.next = self.next.max(now - SAVED) + self.gap;
        }
        free
    }
}

/// A long download, which may be ended in the middle. Counts while that is so.
pub(crate) struct Movable {
    drain: Arc<Drain>,
    left: u64,
}

impl Movable {
    /// A body of so many bytes, unless it is short, or begins too late to go anywhere else.
    pub(crate) fn new(drain: &Arc<Drain>, length: u64) -> Option<Self> {
        let movable = length >= LEAST_LEFT && !drain.is_on();
        movable.then(|| {
            drain.running.fetch_add(1, Relaxed);
            Self { drain: drain.clone(), left: length }
        })
    }

    /// Whether it is to end now.
    pub(crate) fn ends(&self) -> bool {
        self.drain.closing.load(Relaxed) && self.drain.take(Instant::now())
    }

    /// So much of it is on its way. Whether it is still long.
    pub(crate) fn sent(&mut self, bytes: usize) -> bool {
        self.left = self.left.saturating_sub(bytes as u64);
        self.left >= LEAST_LEFT
    }
}

impl Drop for Movable {
    fn drop(&mut self) {
        self.drain.running.fetch_sub(1, Relaxed);
    }
}

impl Drain {
    /// `moved` counts who was sent away.
    pub(crate) fn new(rate: u32, moved: Counter) -> Arc<Self> {
        Arc::new(Self {
            begun: watch::Sender::new(false),
            closing: AtomicBool::new(false),
            bucket: Mutex::new(Bucket { gap: gap(rate), next: Instant::now() }),
            rate,
            running: AtomicU64::new(0),
            moved,
        })
    }

    /// Begins to drain, or changes the rate of one that runs.
    pub(crate) fn begin(&self, rate: Option<u32>) {
        *self.bucket.lock() = Bucket { gap: gap(rate.unwrap_or(self.rate)), next: Instant::now() };
        self.begun.send_replace(true);
    }

    /// From now on downloads are ended.
    pub(crate) fn close(&self) {
        self.closing.store(*self.begun.borrow(), Relaxed);
    }

    /// Serves as before.
    pub(crate) fn undo(&self) {
        self.closing.store(false, Relaxed);
        self.begun.send_replace(false);
    }

    /// Whether downloads are being ended.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// Hears of every beginning and every end.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.begun.subscribe()
    }

    pub(crate) fn is_on(&self) -> bool {
        *self.begun.borrow()
    }

    /// Returns when a drain has begun: for connections, which ask at each of their turns.
    pub(crate) async fn begun(&self) {
        let mut receiver = self.begun.subscribe();
        let news = receiver.clone();
        let begun = async { drop(receiver.wait_for(|begun| *begun).await) };
        once_changed(&news, begun).await;
    }

    /// Whether a download may be ended now. Who is told so is counted.
    fn take(&self, now: Instant) -> bool {
        let taken = self.bucket.lock().take(now);
        self.moved.inc_by(taken.into());
        taken
    }

    /// Long downloads that run.
    pub(crate) fn running(&self) -> u64 {
        self.running.load(Relaxed)
    }

    /// How many were ended in the middle, since the start.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.get()
    }
}

fn gap(rate: u32) -> Duration {
    Duration::from_secs(1) / rate.max(1)
}

/// How far a rate that was not used may be caught up with.
const SAVED: Duration = Duration::from_millis(100);

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
        let drain = Drain::new(1_000_000, Counter::default());
        assert!(Movable::new(&drain, LEAST_LEFT - 1).is_none());
        let mut early = Movable::new(&drain, LEAST_LEFT + 10).unwrap();
        assert!(!early.ends());
        drain.begin(None);
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
    fn a_drain_that_was_undone_closes_nothing() {
        let drain = Drain::new(1, Counter::default());
        let download = Movable::new(&drain, u64::MAX).unwrap();
        drain.begin(Some(1_000));
        drain.undo();
        drain.close();
        assert!(!download.ends());
    }
}
