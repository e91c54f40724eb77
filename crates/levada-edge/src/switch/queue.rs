//! How many requests a front-end leaves outstanding at its servers; the rest waits here, in the order in
//! which it came (ASPLOS'98 Sec. 2.3).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::failure::Failure;

/// The places at all servers of a site, and the queue before them.
#[derive(Default)]
pub(crate) struct AdmissionQueue {
    state: Mutex<AdmissionState>,
}

#[derive(Default)]
struct AdmissionState {
    limit: usize,
    length: usize,
    wait: Duration,
    admitted: usize,
    waiting: VecDeque<WaitingRequest>,
    tickets: u64,
}

struct WaitingRequest {
    ticket: u64,
    place: oneshot::Sender<Admitted>,
}

/// A place; free again when dropped.
pub(crate) struct Admitted(Arc<AdmissionQueue>);

/// A request in the queue; leaves it when dropped.
struct QueuedRequest<'a> {
    queue: &'a AdmissionQueue,
    ticket: u64,
}

impl AdmissionQueue {
    /// How many may wait, and for how long.
    pub(super) fn bound(&self, length: usize, wait: Duration) {
        let mut state = self.state.lock();
        (state.length, state.wait) = (length, wait);
    }

    /// So many may be outstanding from now on. More than that stay where they are until they end.
    pub(super) fn limit(self: &Arc<Self>, limit: usize) {
        let next = {
            let mut state = self.state.lock();
            state.limit = limit;
            state.admit()
        };
        self.let_in(next);
    }

    /// A place, if there is one that nobody waits for.
    pub(super) fn enter_now(self: &Arc<Self>) -> Option<Admitted> {
        self.state.lock().take().then(|| Admitted(self.clone()))
    }

    /// Waits for a place.
    pub(super) async fn enter(self: &Arc<Self>) -> Result<Admitted, Failure> {
        let (ticket, wait, place) = {
            let mut state = self.state.lock();
            if state.take() {
                return Ok(Admitted(self.clone()));
            }
            if state.waiting.len() >= state.length {
                return Err(Failure::QueueFull);
            }
            state.tickets += 1;
            let ticket = state.tickets;
            let (sender, place) = oneshot::channel();
            state.waiting.push_back(WaitingRequest { ticket, place: sender });
            (ticket, state.wait, place)
        };
        let _queued = QueuedRequest { queue: self, ticket };
        match tokio::time::timeout(wait, place).await {
            Ok(Ok(admitted)) => Ok(admitted),
            _ => Err(Failure::QueueTimeout),
        }
    }

    /// Requests at the servers, those that wait, and how many there may be at the servers.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let state = self.state.lock();
        (state.admitted, state.waiting.len(), state.limit)
    }

    /// Should one of them wait no more, its place is dropped, and goes to the next.
    fn let_in(self: &Arc<Self>, next: Vec<WaitingRequest>) {
        for waiting in next {
            let _ = waiting.place.send(Admitted(self.clone()));
        }
    }
}

impl AdmissionState {
    /// Takes a place that nobody waits for.
    fn take(&mut self) -> bool {
        let free = self.admitted < self.limit && self.waiting.is_empty();
        self.admitted += usize::from(free);
        free
    }

    /// Takes out of the queue whom there are places for; the places count as taken.
    fn admit(&mut self) -> Vec<WaitingRequest> {
        let free = self.limit.saturating_sub(self.admitted).min(self.waiting.len());
        self.admitted += free;
        self.waiting.drain(..free).collect()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.state.lock();
            state.admitted -= 1;
            state.admit()
        };
        self.0.let_in(next);
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        // Tickets grow, so the queue is sorted by them.
        if let Ok(at) = state.waiting.binary_search_by_key(&self.ticket, |waiting| waiting.ticket) {
            state.waiting.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn queue(limit: usize, length: usize) -> Arc<AdmissionQueue> {
        let queue = Arc::<AdmissionQueue>::default();
        queue.bound(length, Duration::from_secs(3600));
        queue.limit(limit);
        queue
    }

    type Entering = Pin<Box<dyn Future<Output = Result<Admitted, Failure>>>>;

    fn entering(queue: &Arc<AdmissionQueue>) -> Entering {
        let queue = queue.clone();
        Box::pin(async move { queue.enter().await })
    }

    fn poll(entering: &mut Entering) -> Option<Result<Admitted, Failure>> {
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(got) => Some(got),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn who_came_first_goes_first() {
        let queue = queue(1, 3);
        let place = poll(&mut entering(&queue)).unwrap().unwrap();
        let mut waiting: Vec<_> = (0..3).map(|_| entering(&queue)).collect();
        assert!(waiting.iter_mut().all(|one| poll(one).is_none()));
        assert!(matches!(poll(&mut entering(&queue)), Some(Err(Failure::QueueFull))));
        drop(place);
        for mut next in waiting {
            assert!(poll(&mut next).is_some_and(|got| got.is_ok()));
        }
        assert_eq!(queue.counts(), (0, 0, 1));
    }

    #[tokio::test]
    async fn place_of_one_who_left_goes_to_the_next() {
        let queue = queue(1, 3);
        let place = poll(&mut entering(&queue)).unwrap().unwrap();
        let (mut left, mut gone, mut stays) =
            (entering(&queue), entering(&queue), entering(&queue));
        assert!([&mut left, &mut gone, &mut stays].into_iter().all(|one| poll(one).is_none()));
        drop(left);
        drop(place);
        // It was given the place and leaves without having looked.
        drop(gone);
        assert!(poll(&mut stays).is_some_and(|got| got.is_ok()));
        drop(stays);
        assert_eq!(queue.counts(), (0, 0, 1));
    }

    #[tokio::test]
    async fn limit_that_rises_lets_in_and_one_that_falls_ends_nothing() {
        let queue = queue(0, 3);
        let mut waiting: Vec<_> = (0..2).map(|_| entering(&queue)).collect();
        assert!(waiting.iter_mut().all(|one| poll(one).is_none()));
        queue.limit(2);
        let places: Vec<_> = waiting.iter_mut().filter_map(|one| poll(one)?.ok()).collect();
        queue.limit(1);
        assert_eq!((places.len(), queue.counts()), (2, (2, 0, 1)));
        let mut late = entering(&queue);
        assert!(poll(&mut late).is_none());
        drop(places);
        assert!(poll(&mut late).is_some());
    }

    #[tokio::test]
    async fn wait_ends_in_time() {
        let queue = queue(0, 1);
        queue.bound(1, Duration::from_millis(10));
        assert!(matches!(queue.enter().await, Err(Failure::QueueTimeout)));
        assert_eq!(queue.counts(), (0, 0, 0));
    }
}
