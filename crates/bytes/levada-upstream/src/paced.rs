//! A limit on the long responses that a node asks of an origin at once. It follows what the origin can do.
//!
//! ```text
//!   head in time, and others wait ──> limit + 1 / limit        in time: 4 times the quickest of late, and 200 ms
//!   head late, or none            ──> limit * 0.7, once in the time of a head
//! ```
//!
//! Responses beyond what the origin's link carries only take it from each other: connections lose packets and
//! stand still, and heads come late. Their time is what tells a full link from one that is far away, where
//! more connections carry more.
//!
//! Requests beyond the limit wait. The order is that of arrival plus twenty seconds for each piece that the client
//! takes before this one: the first pieces of a client that has just come go before the sixteenth pieces of all
//! others, and no piece waits for ever. The wait is not bounded while the origin sends to anyone.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use levada_policy::ClientShare;
use parking_lot::Mutex;

use crate::{AdmittedRequest, FairQueue, ServerFailure, queue::CHECK_INTERVAL};

/// Responses at once, before anything is known of the origin: the window of one large file. Fewer of them make the
/// first file of a node slower.
const FIRST: f64 = 16.0;
/// All nodes of a cluster together: twice that. A file's pieces are divided over the nodes, and pieces of a first
/// client that are let in before others wait do not keep the order of turns.
const FIRST_OF_ALL: f64 = 2.0 * FIRST;
/// And at least: one that stands still leaves the other.
const LEAST: f64 = 2.0;
/// Requests that may wait.
const LENGTH: usize = 10_000;
/// A head is late after so many times the quickest, and this.
const LATE: u32 = 4;
const SPARE: Duration = Duration::from_millis(200);
/// The time by which a piece may be overtaken for each piece before it.
const AHEAD: Duration = Duration::from_secs(20);
/// As many notices reach the asking node in the time of its timeout.
const NOTICES: u32 = 4;

/// The queue before long responses of one site's origins.
pub struct PacedQueue {
    queue: Arc<FairQueue<()>>,
    pace: Mutex<Pace>,
    /// When the queue was made: turns are times since then.
    made: Instant,
}

#[derive(Debug)]
struct Pace {
    limit: f64,
    /// The time of the quickest head. It is forgotten slowly: routes change.
    quickest: Option<Duration>,
    /// The next moment at which the limit may fall.
    steady_until: Option<Instant>,
}

/// A place for one long response; free again when dropped.
pub struct PacedPlace {
    queue: Arc<PacedQueue>,
    _admitted: AdmittedRequest<()>,
    begun: Instant,
}

impl PacedQueue {
    /// The queue of one of so many nodes.
    pub fn new(nodes: usize) -> Arc<Self> {
        let pace = Pace::new(nodes);
        let queue = FairQueue::new(ClientShare::All, pace.limit as usize, LENGTH, Duration::MAX);
        Arc::new(Self { queue, pace: Mutex::new(pace), made: Instant::now() })
    }

    /// Waits for a place for a piece that its client takes after `ahead` others, as long as it `is_wanted`.
    ///
    /// # Errors
    /// When the queue is full, the request is not wanted any more, or no origin has been `moving` for the time of
    /// `timeout`.
    pub async fn enter(
        self: &Arc<Self>,
        ahead: u32,
        timeout: Duration,
        moving: impl Fn() -> bool,
        is_wanted: impl Fn() -> bool,
    ) -> Result<PacedPlace, ServerFailure> {
        let place =
            |_admitted| PacedPlace { queue: self.clone(), _admitted, begun: Instant::now() };
        if let Some(admitted) = self.queue.enter_now(()) {
            return Ok(place(admitted));
        }
        let mut moved = Instant::now();
        let turn = (moved - self.made) + AHEAD * ahead;
        let check = || {
            if !is_wanted() {
                return Err(ServerFailure::QueueTimeout);
            } else if moving() {
                moved = Instant::now();
            } else if moved.elapsed() >= timeout {
                return Err(ServerFailure::ResponseTimeout);
            }
            Ok(())
        };
        let admitted = self.queue.enter_while((), turn, check).await?;
        is_wanted().then(|| place(admitted)).ok_or(ServerFailure::QueueTimeout)
    }

    /// Awaits an outcome, and calls `tell` every second while it is awaited and the origin is `moving`: more often
    /// where the caller's `timeout` is short.
    pub async fn telling<T>(
        outcome: impl Future<Output = T>,
        timeout: Duration,
        moving: impl Fn() -> bool,
        tell: impl Fn(),
    ) -> T {
        let mut outcome = std::pin::pin!(outcome);
        let every = CHECK_INTERVAL.min(timeout / NOTICES);
        loop {
            match tokio::time::timeout(every, &mut outcome).await {
                Ok(outcome) => return outcome,
                Err(_) if moving() => tell(),
                Err(_) => {}
            }
        }
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.queue.counts().waiting
    }
}

impl PacedPlace {
    /// The head of the response has come, or there is none.
    pub fn answered(&self, is_good: bool) {
        let PacedQueue { queue, pace, .. } = &*self.queue;
        let (now, mut pace) = (Instant::now(), pace.lock());
        pace.answered(now - self.begun, is_good, queue.counts().waiting > 0, now);
        queue.limit(pace.limit as usize);
    }
}

impl Pace {
    fn new(nodes: usize) -> Self {
        let limit = (FIRST_OF_ALL / nodes.max(1) as f64).clamp(LEAST, FIRST);
        Self { limit, quickest: None, steady_until: None }
    }

    /// Takes in the time of a head.
    fn answered(&mut self, took: Duration, is_good: bool, waits: bool, now: Instant) {
        let quickest = self.quickest.unwrap_or(took);
        let in_time = is_good && took <= quickest * LATE + SPARE;
        if is_good {
            self.quickest = Some(took.min(quickest + quickest / 64));
        }
        if !in_time && self.steady_until.is_none_or(|until| until <= now) {
            self.limit = (self.limit * 0.7).max(LEAST);
            self.steady_until = Some(now + took);
        } else if in_time && waits {
            self.limit += 1.0 / self.limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn limit_falls_once_in_the_time_of_a_late_head_and_keeps_two() {
        let (mut pace, now) = (Pace::new(1), Instant::now());
        let mut after = |took: u32, is_good, wait: u32| {
            pace.answered(took * MS, is_good, true, now + wait * MS);
            pace.limit as usize
        };
        assert_eq!(after(40, true, 0), 16);
        assert_eq!(after(2000, true, 0), 11);
        assert_eq!(after(2000, true, 1999), 11);
        assert_eq!(after(100, false, 2000), 7, "no head");
        let falls = (1..20).map(|at| after(2000, true, at * 10_000));
        assert_eq!(falls.last(), Some(2));
    }

    #[test]
    fn limit_grows_by_one_in_as_many_heads_while_others_wait() {
        let (mut pace, now) = (Pace::new(1), Instant::now());
        (0..100).for_each(|_| pace.answered(40 * MS, true, false, now));
        assert_eq!(pace.limit as usize, 16, "nobody waits");
        (0..17).for_each(|_| pace.answered(300 * MS, true, true, now));
        assert_eq!(pace.limit as usize, 17, "far away is not late");
    }

    #[test]
    fn nodes_of_a_cluster_begin_with_their_parts() {
        let limits = [0, 1, 2, 3, 8, 100].map(|nodes| Pace::new(nodes).limit as usize);
        assert_eq!(limits, [16, 16, 16, 10, 4, 2]);
    }

    type Entered = Result<PacedPlace, ServerFailure>;
    type Entering = std::pin::Pin<Box<dyn Future<Output = Entered>>>;

    /// A piece that has asked for a place.
    fn enter(queue: &Arc<PacedQueue>, ahead: u32) -> Entering {
        let queue = queue.clone();
        Box::pin(async move { queue.enter(ahead, LONG, || true, || true).await })
    }

    async fn waits(entering: &mut Entering) -> bool {
        tokio::time::timeout(MS, entering).await.is_err()
    }

    /// A queue whose places are all taken.
    async fn full() -> (Arc<PacedQueue>, Vec<PacedPlace>) {
        let (queue, mut places) = (PacedQueue::new(1), Vec::new());
        for _ in 0..FIRST as usize {
            places.push(enter(&queue, 0).await.ok().unwrap());
        }
        (queue, places)
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_that_clients_take_next_get_the_places_first() {
        let (queue, mut places) = full().await;
        let mut waiting: Vec<_> =
            [15, 1, 0, 1, 0].map(|ahead| (ahead, enter(&queue, ahead))).into();
        for (_, one) in &mut waiting {
            assert!(waits(one).await);
        }
        assert_eq!(queue.waiting(), 5);
        // It leaves the queue.
        drop(waiting.remove(1));
        let mut served = Vec::new();
        while let Some(place) = places.pop().filter(|_| !waiting.is_empty()) {
            drop(place);
            for at in (0..waiting.len()).rev() {
                if !waits(&mut waiting[at].1).await {
                    served.push(waiting.remove(at).0);
                }
            }
        }
        assert_eq!((served, queue.waiting()), (vec![0, 0, 1, 15], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn request_waits_while_the_origin_sends_and_fails_when_it_stands_still() {
        let (queue, _places) = full().await;
        let begun = tokio::time::Instant::now();
        let moving = || begun.elapsed() < Duration::from_secs(1000);
        let timeout = Duration::from_millis(10);
        let entered = queue.enter(0, timeout, moving, || true).await;
        assert_eq!(entered.err(), Some(ServerFailure::ResponseTimeout));
        assert!(!moving(), "after {:?}", begun.elapsed());
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_nobody_wants_leaves_the_queue() {
        let (queue, mut places) = full().await;
        let entered = queue.enter(0, LONG, || true, || false).await;
        assert!(entered.is_err() && queue.waiting() == 0);
        places.pop();
        assert!(enter(&queue, 0).await.is_ok(), "the place is free");
    }
}
