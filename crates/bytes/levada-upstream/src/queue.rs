//! The fair queue before a limited number of places: at a site's origins, at the servers of a switch, at
//! one server.
//!
//! [`Turns`] decides who is next; this file waits, bounds the wait, and frees a place on drop. A request that leaves
//! the queue, or does not take the place that it is given, leaves it to the next.
//!
//! At the origins of a site the queue is fair to clients. Misses must not overload the origin,
//! for any URLs that are requested (OSDI'02 Sec. 5.2.4: requests for invalid or random URLs). At a switch and at
//! one server all requests count as one client, so they are served in the order of arrival (ASPLOS'98
//! Sec. 2.3).
//!
//! A response whose reader falls behind asks nothing of the origin. Its place is given to a request that
//! waits, and taken again, without waiting, when the reader goes on.
//!
//! A request whose head is late may have to end, for a client that is known ([`KnownClients`]).

use std::{
    collections::BTreeMap,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use levada_policy::{ClientShare, Full, Ticket, Turns};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{KnownClients, ServerFailure};

/// Places, and the requests of clients `C` that wait for one.
pub struct FairQueue<C: Ord + Copy + Hash> {
    state: Mutex<FairQueueState<C>>,
    /// The clients that go before others; none where all requests count as one client.
    known: Option<Arc<KnownClients>>,
}

struct FairQueueState<C: Ord + Copy + Hash> {
    turns: Turns<C, oneshot::Sender<AdmittedRequest<C>>>,
    wait: Duration,
    /// The responses under way whose readers may fall behind, and the number of the last one.
    readers: BTreeMap<u64, (C, Arc<Mutex<Reader>>)>,
    last_reader: u64,
    /// The late requests by the numbers that they have in `turns`, and how each learns that it gives way.
    late: BTreeMap<u64, oneshot::Sender<()>>,
}

type Waiter<C> = (C, oneshot::Sender<AdmittedRequest<C>>);

/// The reader of a response that is under way.
#[derive(Default)]
struct Reader {
    /// Since when the next piece waits for the reader.
    behind: Option<Instant>,
    /// Its place was given to another request.
    lent: bool,
}

/// A reader that takes nothing for this long has fallen behind.
const BEHIND: Duration = Duration::from_secs(1);
/// The interval at which a request that waits checks whether readers have fallen behind, and whether it may wait on.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How many requests are admitted, wait, and may be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCounts {
    /// Requests that have a place.
    pub admitted: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// Places.
    pub limit: usize,
}

impl QueueCounts {
    /// Whether no place is free.
    pub const fn are_full(self) -> bool {
        self.admitted >= self.limit
    }
}

/// A place; free again when dropped.
pub struct AdmittedRequest<C: Ord + Copy + Hash> {
    queue: Arc<FairQueue<C>>,
    client: C,
    /// Its number among the late ones.
    late: Option<u64>,
    is_answered: bool,
    reader: Option<(u64, Arc<Mutex<Reader>>)>,
}

/// A request in the queue; leaves it when dropped.
struct QueuedRequest<'a, C: Ord + Copy + Hash> {
    queue: &'a FairQueue<C>,
    client: C,
    ticket: Ticket,
}

impl<C: Ord + Copy + Hash> FairQueue<C> {
    /// So many places, and a queue of this length before them, in which a request waits so long at most.
    pub fn new(share: ClientShare, places: usize, length: usize, wait: Duration) -> Arc<Self> {
        Self::make(Turns::new(share, places, length), wait, None)
    }

    /// The same with places that clients share, and of which late requests may lose theirs to `known` clients.
    pub fn shared(
        places: usize,
        length: usize,
        wait: Duration,
        known: &Arc<KnownClients>,
    ) -> Arc<Self> {
        let turns = Turns::new(ClientShare::Dynamic, places, length);
        Self::make(turns, wait, Some(known.clone()))
    }

    fn make(
        turns: Turns<C, oneshot::Sender<AdmittedRequest<C>>>,
        wait: Duration,
        known: Option<Arc<KnownClients>>,
    ) -> Arc<Self> {
        let (readers, late) = (BTreeMap::new(), BTreeMap::new());
        let state = FairQueueState { turns, wait, readers, last_reader: 0, late };
        Arc::new(Self { state: Mutex::new(state), known })
    }

    /// Changes how many may wait, and for how long. Requests that wait keep their deadline.
    pub fn bound(&self, length: usize, wait: Duration) {
        let mut state = self.state.lock();
        state.turns.set_length(length);
        state.wait = wait;
    }

    /// Changes the number of places. Requests beyond it stay admitted until they end.
    pub fn limit(self: &Arc<Self>, places: usize) {
        let admitted = {
            let state = &mut *self.state.lock();
            state.turns.set_places(places);
            state.next()
        };
        self.admit(admitted);
    }

    /// A place, if the request need not wait for it.
    pub fn enter_now(self: &Arc<Self>, client: C) -> Option<AdmittedRequest<C>> {
        let taken = self.state.lock().turns.take(client);
        taken.then(|| AdmittedRequest::new(self, client))
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// When the queue is full, or no place became free in time.
    pub async fn enter(self: &Arc<Self>, client: C) -> Result<AdmittedRequest<C>, ServerFailure> {
        if let Some(place) = self.enter_now(client) {
            return Ok(place);
        }
        let wait = self.state.lock().wait;
        let entering = self.enter_while(client, Duration::ZERO, || Ok(()));
        tokio::time::timeout(wait, entering).await.unwrap_or(Err(ServerFailure::QueueTimeout))
    }

    /// Waits for a place as long as `check` allows, behind the client's requests of the same rank or a lower one.
    ///
    /// # Errors
    /// When the queue is full, or with that of `check`.
    pub(crate) async fn enter_while(
        self: &Arc<Self>,
        client: C,
        rank: Duration,
        mut check: impl FnMut() -> Result<(), ServerFailure>,
    ) -> Result<AdmittedRequest<C>, ServerFailure> {
        let is_known = self.known.as_ref().is_some_and(|known| known.has(&client));
        let (ticket, mut place, admitted) = {
            let state = &mut *self.state.lock();
            if state.turns.take(client) {
                return Ok(AdmittedRequest::new(self, client));
            }
            let (sender, place) = oneshot::channel();
            let ticket = state.turns.wait(client, is_known, rank, sender);
            let ticket = ticket.map_err(|Full| ServerFailure::QueueFull)?;
            (ticket, place, if is_known { state.next() } else { Vec::new() })
        };
        let _queued = QueuedRequest { queue: self, client, ticket };
        self.admit(admitted);
        loop {
            self.lend(Instant::now());
            match tokio::time::timeout(CHECK_INTERVAL, &mut place).await {
                // Without a place it gave way to a client that waits less often.
                Ok(place) => return place.map_err(|_| ServerFailure::QueueFull),
                Err(_) => check()?,
            }
        }
    }

    /// Gives the places of responses whose readers have fallen behind to requests that wait.
    fn lend(self: &Arc<Self>, now: Instant) {
        let mut admitted = Vec::new();
        {
            let FairQueueState { turns, readers, .. } = &mut *self.state.lock();
            for (client, reader) in readers.values() {
                if turns.waiting() == 0 {
                    break;
                }
                let mut reader = reader.lock();
                if !reader.lent && reader.behind.is_some_and(|since| now - since >= BEHIND) {
                    reader.lent = true;
                    admitted.extend(turns.leave(*client));
                    admitted.extend(std::iter::from_fn(|| turns.admit_next()));
                }
            }
        }
        self.admit(admitted);
    }

    /// The requests and places at this moment.
    pub fn counts(&self) -> QueueCounts {
        let turns = &self.state.lock().turns;
        QueueCounts { admitted: turns.taken(), waiting: turns.waiting(), limit: turns.places() }
    }

    /// Gives places to waiters. If a request waits no more, its place is dropped, and goes to the next.
    fn admit(self: &Arc<Self>, waiters: Vec<Waiter<C>>) {
        for (client, waiter) in waiters {
            let _ = waiter.send(AdmittedRequest::new(self, client));
        }
    }
}

impl<C: Ord + Copy + Hash> FairQueueState<C> {
    fn not_late(&mut self, number: u64) {
        self.late.remove(&number);
        self.turns.not_late(number);
    }

    /// The waiters that get a place now. Late requests learn that they give way.
    fn next(&mut self) -> Vec<Waiter<C>> {
        let admitted = std::iter::from_fn(|| self.turns.admit_next()).collect();
        while let Some(late) = self.turns.gives_way() {
            let _ = self.late.remove(&late).map(|request| request.send(()));
        }
        admitted
    }
}

impl<C: Ord + Copy + Hash> AdmittedRequest<C> {
    fn new(queue: &Arc<FairQueue<C>>, client: C) -> Self {
        Self { queue: queue.clone(), client, late: None, is_answered: false, reader: None }
    }

    /// The head of its response is late. The request has to end when this is ready; once it has been asked for.
    pub(crate) fn late(&mut self) -> Option<oneshot::Receiver<()>> {
        let known = self.queue.known.as_ref().filter(|_| self.late.is_none())?;
        known.note(&self.client, false);
        let (sender, gives_way) = oneshot::channel();
        let admitted = {
            let state = &mut *self.queue.state.lock();
            let number = state.turns.late();
            self.late = Some(number);
            state.late.insert(number, sender);
            state.next()
        };
        self.queue.admit(admitted);
        Some(gives_way)
    }

    /// The head of its response has come. From now on the place can be given to others while the reader of the
    /// response falls behind.
    pub(crate) fn answered(&mut self) {
        self.is_answered = true;
        if let Some(known) = &self.queue.known {
            known.note(&self.client, true);
        }
        let reader = Arc::<Mutex<Reader>>::default();
        let mut admitted = Vec::new();
        {
            let state = &mut *self.queue.state.lock();
            state.last_reader += 1;
            state.readers.insert(state.last_reader, (self.client, reader.clone()));
            self.reader = Some((state.last_reader, reader));
            if let Some(late) = self.late.take() {
                state.not_late(late);
                admitted = state.next();
            }
        }
        self.queue.admit(admitted);
    }

    /// Whether the next piece of the response waits for its reader now.
    pub(crate) fn reader_is_behind(&self, is_behind: bool) {
        let Some((_, reader)) = &self.reader else { return };
        let mut reader = reader.lock();
        reader.behind = is_behind.then(Instant::now);
        if std::mem::take(&mut reader.lent) {
            drop(reader);
            self.queue.state.lock().turns.take_again(self.client);
        }
    }
}

impl<C: Ord + Copy + Hash> Drop for AdmittedRequest<C> {
    fn drop(&mut self) {
        if let Some(known) = self.queue.known.as_ref().filter(|_| !self.is_answered) {
            known.note(&self.client, false);
        }
        let admitted = {
            let state = &mut *self.queue.state.lock();
            let reader = self.reader.as_ref().and_then(|(number, _)| state.readers.remove(number));
            if reader.is_some_and(|(_, reader)| reader.lock().lent) {
                return;
            }
            if let Some(late) = self.late {
                state.not_late(late);
            }
            let mut admitted: Vec<_> = state.turns.leave(self.client).into_iter().collect();
            admitted.append(&mut state.next());
            admitted
        };
        self.queue.admit(admitted);
    }
}

impl<C: Ord + Copy + Hash> Drop for QueuedRequest<'_, C> {
    fn drop(&mut self) {
        self.queue.state.lock().turns.withdraw(self.client, self.ticket);
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

    const LONG: Duration = Duration::from_secs(3600);

    /// Requests of clients that have as many places as are free.
    fn fair(places: usize, length: usize) -> Arc<FairQueue<u8>> {
        FairQueue::new(ClientShare::Dynamic, places, length, LONG)
    }

    /// Requests in the order of arrival.
    fn queue(places: usize, length: usize) -> Arc<FairQueue<u8>> {
        FairQueue::new(ClientShare::All, places, length, LONG)
    }

    type Entered = Result<AdmittedRequest<u8>, ServerFailure>;
    type Entering = Pin<Box<dyn Future<Output = Entered>>>;

    /// A request that has asked for a place, and what it got so far.
    fn enter(queue: &Arc<FairQueue<u8>>, client: u8) -> (Entering, Option<Entered>) {
        let queue = queue.clone();
        let mut entering: Entering = Box::pin(async move { queue.enter(client).await });
        let got = poll(&mut entering);
        (entering, got)
    }

    fn poll(entering: &mut Entering) -> Option<Entered> {
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(got) => Some(got),
            Poll::Pending => None,
        }
    }

    fn counts(queue: &FairQueue<u8>) -> (usize, usize, usize) {
        let QueueCounts { admitted, waiting, limit } = queue.counts();
        (admitted, waiting, limit)
    }

    #[tokio::test]
    async fn greedy_clients_leave_a_place_for_others() {
        let queue = fair(4, 10);
        let greedy: Vec<_> = (0..5).map(|_| enter(&queue, 1)).collect();
        assert_eq!(greedy.iter().filter(|(_, got)| got.is_some()).count(), 2);
        let others: Vec<_> = (0..5).map(|_| enter(&queue, 2)).collect();
        assert_eq!(others.iter().filter(|(_, got)| got.is_some()).count(), 1);
        assert_eq!(counts(&queue), (3, 7, 4));
        assert!(enter(&queue, 3).1.is_some(), "a place is left for another client");
        drop((greedy, others));
        assert_eq!(counts(&queue), (0, 0, 4));
    }

    #[tokio::test]
    async fn turns_go_round_the_clients() {
        let queue = fair(2, 20);
        let mut places = vec![enter(&queue, 9).1.unwrap(), enter(&queue, 8).1.unwrap()];
        let mut waiting = Vec::new();
        for client in [1, 1, 1, 1, 2, 3, 3] {
            let (entering, got) = enter(&queue, client);
            assert!(got.is_none());
            waiting.push((client, entering));
        }
        let mut served = Vec::new();
        while let Some(place) = places.pop() {
            drop(place);
            waiting.retain_mut(|(client, entering)| match poll(entering) {
                Some(got) => {
                    served.push(*client);
                    places.insert(0, got);
                    false
                }
                None => true,
            });
        }
        assert_eq!(served, [1, 2, 3, 1, 3, 1, 1]);
        assert_eq!(counts(&queue), (0, 0, 2));
    }

    #[tokio::test]
    async fn client_that_waits_most_often_gives_way_in_a_full_queue() {
        let queue = fair(1, 3);
        let _place = enter(&queue, 9).1.unwrap();
        let mut greedy: Vec<_> = (0..3).map(|_| enter(&queue, 1)).collect();
        assert!(matches!(enter(&queue, 1).1, Some(Err(ServerFailure::QueueFull))));
        let (_second, got) = enter(&queue, 2);
        assert!(got.is_none());
        let sent_away = greedy.iter_mut().map(|(entering, _)| poll(entering));
        let sent_away: Vec<_> =
            sent_away.map(|got| matches!(got, Some(Err(ServerFailure::QueueFull)))).collect();
        assert_eq!(sent_away, [false, false, true]);
        // With two against one, no client gives way any more.
        assert!(matches!(enter(&queue, 2).1, Some(Err(ServerFailure::QueueFull))));
        let (_third, got) = enter(&queue, 3);
        assert!(got.is_none());
        assert!(matches!(enter(&queue, 4).1, Some(Err(ServerFailure::QueueFull))));
        assert_eq!(counts(&queue), (1, 3, 1));
    }

    #[tokio::test]
    async fn requests_of_one_client_are_admitted_in_the_order_of_arrival() {
        let queue = queue(1, 3);
        let place = enter(&queue, 0).1.unwrap();
        let mut waiting: Vec<_> = (0..3).map(|_| enter(&queue, 0)).collect();
        assert!(waiting.iter().all(|(_, got)| got.is_none()));
        assert!(matches!(enter(&queue, 0).1, Some(Err(ServerFailure::QueueFull))));
        assert!(queue.enter_now(0).is_none());
        drop(place);
        for (next, _) in &mut waiting {
            assert!(poll(next).is_some_and(|got| got.is_ok()));
        }
        assert_eq!(counts(&queue), (0, 0, 1));
    }

    #[tokio::test]
    async fn place_of_a_request_that_left_goes_to_the_next() {
        for (queue, [a, b, c]) in [(fair(1, 5), [2, 3, 4]), (queue(1, 3), [0; 3])] {
            let place = enter(&queue, a).1.unwrap();
            let (left, _) = enter(&queue, a);
            let (gone, _) = enter(&queue, b);
            let (mut stays, got) = enter(&queue, c);
            assert!(got.is_none());
            drop(left);
            drop(place);
            // It was given the place and leaves without having looked.
            drop(gone);
            assert!(poll(&mut stays).is_some_and(|got| got.is_ok()));
            drop(stays);
            assert_eq!(counts(&queue), (0, 0, 1));
        }
    }

    #[tokio::test]
    async fn limit_that_rises_lets_in_and_one_that_falls_ends_nothing() {
        let queue = queue(0, 3);
        let mut waiting: Vec<_> = (0..2).map(|_| enter(&queue, 0).0).collect();
        assert!(waiting.iter_mut().all(|one| poll(one).is_none()));
        queue.limit(2);
        let places: Vec<_> = waiting.iter_mut().filter_map(|one| poll(one)?.ok()).collect();
        queue.limit(1);
        assert_eq!((places.len(), counts(&queue)), (2, (2, 0, 1)));
        let (mut late, got) = enter(&queue, 0);
        assert!(got.is_none());
        drop(places);
        assert!(poll(&mut late).is_some());
    }

    #[tokio::test]
    async fn place_is_lent_while_its_reader_is_behind() {
        let queue = fair(1, 5);
        let mut slow = enter(&queue, 1).1.unwrap().unwrap();
        slow.answered();
        let (mut second, got) = enter(&queue, 2);
        assert!(got.is_none());
        slow.reader_is_behind(false);
        queue.lend(Instant::now() + BEHIND);
        assert!(poll(&mut second).is_none(), "the origin is waited for");
        slow.reader_is_behind(true);
        queue.lend(Instant::now());
        assert!(poll(&mut second).is_none(), "not for long yet");
        queue.lend(Instant::now() + BEHIND);
        let second = poll(&mut second).unwrap().unwrap();
        assert_eq!(counts(&queue), (1, 0, 1));
        slow.reader_is_behind(true);
        assert_eq!(counts(&queue), (2, 0, 1), "it goes on without waiting");
        drop(second);
        let (mut third, got) = enter(&queue, 3);
        assert!(got.is_none());
        queue.lend(Instant::now() + BEHIND);
        let third = poll(&mut third).unwrap().unwrap();
        drop(slow);
        assert_eq!(counts(&queue), (1, 0, 1), "a place that was lent is not left again");
        drop(third);
        assert_eq!(counts(&queue), (0, 0, 1));
        assert!(queue.state.lock().readers.is_empty());
    }

    #[tokio::test]
    async fn wait_ends_in_time() {
        let queue = fair(1, 5);
        queue.bound(5, Duration::from_millis(10));
        let _place = enter(&queue, 1).1.unwrap();
        assert!(matches!(queue.enter(2).await, Err(ServerFailure::QueueTimeout)));
        assert_eq!(counts(&queue), (1, 0, 1));
    }
}
