//! Single flight: one operation for all requests that want its outcome at the same time.
//!
//! The request that begins it leads ([`FlightLeader`]); requests that come meanwhile follow
//! ([`Follower`]). All of them await the outcome, which each gets a copy of. A flight knows nothing of
//! bodies: an outcome that has a body leads to it.
//!
//! ```text
//!   join ─┬─ leader ───> settle(outcome) ──────> later requests still follow, until the leader drops
//!         │              conclude(outcome) ────> later requests begin a flight of their own
//!         └─ follower ─> outcome().await
//! ```

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Arc, Weak, atomic::AtomicBool},
    task::{Context, Poll, Waker},
    time::Instant,
};

use levada_store::Label;
use levada_types::Key;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;

use crate::waiters::Waiters;

/// All flights with outcomes of one kind. Only the leader gets an `L` together with the outcome.
pub struct SingleFlight<O, L = ()> {
    table: Mutex<HashMap<Key, Arc<Flight<O, L>>>>,
}

/// When a flight began: by the clock, and as purges and invalidations count.
#[derive(Debug)]
pub struct FlightStart {
    /// The time.
    pub since: Instant,
    /// The label that purges go by until the outcome has one.
    pub label: Label,
    /// The number of invalidations before.
    pub begun: u64,
    /// Another node is asked: a request of a node that asks in its place must not follow, as each could wait for the
    /// other.
    pub asks_node: AtomicBool,
}

impl FlightStart {
    /// A flight that begins now.
    pub fn now(label: Label, begun: u64) -> Self {
        Self { since: Instant::now(), label, begun, asks_node: AtomicBool::new(false) }
    }
}

/// One operation.
struct Flight<O, L> {
    key: Key,
    identity: Arc<str>,
    start: FlightStart,
    flights: Weak<SingleFlight<O, L>>,
    state: Mutex<FlightState<O>>,
    /// Only the leader may have it.
    own: Mutex<L>,
}

struct FlightState<O> {
    outcome: Option<O>,
    /// The outcome of another flight, for the followers of this one, which is late.
    substitute: Option<O>,
    /// The leader has gone, with or without an outcome.
    over: bool,
    waiters: Waiters,
    followers: usize,
    /// The leader, which waits for the last follower to leave.
    leader: Option<Waker>,
}

/// The writing end of a flight. Dropped early, the flight has no outcome.
pub struct FlightLeader<O: Clone, L = ()>(Arc<Flight<O, L>>);

/// The reading end of a flight.
pub struct Follower<O: Clone, L = ()> {
    flight: Arc<Flight<O, L>>,
    place: u64,
}

/// The part of a request in a flight: every request follows, the one that began it leads.
pub type Joined<O, L = ()> = (Follower<O, L>, Option<FlightLeader<O, L>>);

impl<O: Clone, L: Default> SingleFlight<O, L> {
    /// No flights.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { table: Mutex::default() })
    }

    /// Follows the flight of `identity`, or leads one that begins now. `None` when another identity
    /// with the same key is in flight.
    ///
    /// `may_follow` says by its start and its outcome whether a flight may still be followed. One that
    /// may not goes on for the requests that arrived before.
    pub fn join(
        self: &Arc<Self>,
        key: Key,
        identity: &str,
        start: FlightStart,
        may_follow: impl FnOnce(&FlightStart, Option<&O>) -> bool,
    ) -> Option<Joined<O, L>> {
        let mut table = self.table.lock();
        if let Some(flight) = table.get(&key) {
            if *flight.identity != *identity {
                return None;
            }
            let follows = may_follow(&flight.start, flight.state.lock().outcome.as_ref());
            if follows {
                return Some((flight.follower(), None));
            }
        }
        let (follower, leader) = self.detached(key, identity, start);
        table.insert(key, leader.0.clone());
        Some((follower, Some(leader)))
    }

    /// A flight that no other request follows.
    pub fn detached(
        self: &Arc<Self>,
        key: Key,
        identity: &str,
        start: FlightStart,
    ) -> (Follower<O, L>, FlightLeader<O, L>) {
        let state = FlightState {
            outcome: None,
            substitute: None,
            over: false,
            waiters: Waiters::default(),
            followers: 0,
            leader: None,
        };
        let flight = Arc::new(Flight {
            key,
            identity: identity.into(),
            start,
            flights: Arc::downgrade(self),
            state: Mutex::new(state),
            own: Mutex::default(),
        });
        (flight.follower(), FlightLeader(flight))
    }

    /// Whether a flight of this key can be followed.
    pub fn is_under_way(&self, key: Key) -> bool {
        self.table.lock().contains_key(&key)
    }

    /// The number of flights that can be followed.
    pub fn count(&self) -> usize {
        self.table.lock().len()
    }
}

impl<O: Clone, L> Flight<O, L> {
    fn follower(self: &Arc<Self>) -> Follower<O, L> {
        let mut state = self.state.lock();
        state.followers += 1;
        Follower { flight: self.clone(), place: state.waiters.enter() }
    }

    fn leave_table(self: &Arc<Self>) {
        let Some(flights) = self.flights.upgrade() else { return };
        let mut table = flights.table.lock();
        if table.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, self)) {
            table.remove(&self.key);
        }
    }

    fn settle(&self, outcome: Option<O>) {
        let mut state = self.state.lock();
        state.over |= outcome.is_none();
        state.outcome = state.outcome.take().or(outcome);
        state.waiters.wake();
    }
}

impl<O: Clone, L> FlightLeader<O, L> {
    /// The identity that the flight is shared by.
    pub fn identity(&self) -> &Arc<str> {
        &self.0.identity
    }

    /// When the flight began.
    pub fn start(&self) -> &FlightStart {
        &self.0.start
    }

    /// The part of the outcome that is the leader's alone.
    pub fn own(&self) -> MutexGuard<'_, L> {
        self.0.own.lock()
    }

    /// The outcome is known. Later requests follow until the leader drops.
    pub fn settle(&self, outcome: O) {
        self.0.settle(Some(outcome));
    }

    /// The outcome is known, and is for the present followers only.
    pub fn conclude(self, outcome: O) {
        self.0.leave_table();
        self.0.settle(Some(outcome));
    }

    /// Whether a request awaits the outcome, or is about to use it.
    pub fn has_followers(&self) -> bool {
        self.0.state.lock().followers > 0
    }

    /// Returns when no request awaits the outcome any more: the work is for no one.
    pub async fn abandoned(&self) {
        poll_fn(|cx| {
            let mut state = self.0.state.lock();
            if state.followers == 0 {
                return Poll::Ready(());
            }
            if !state.leader.as_ref().is_some_and(|leader| leader.will_wake(cx.waker())) {
                state.leader = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Later requests may not follow any more.
    pub fn end_following(&self) {
        self.0.leave_table();
    }
}

impl<O: Clone, L> Drop for FlightLeader<O, L> {
    fn drop(&mut self) {
        self.0.leave_table();
        self.0.settle(None);
    }
}

impl<O: Clone, L> Follower<O, L> {
    /// Awaits the outcome. `None` when the leader has gone without one.
    pub async fn outcome(&self) -> Option<O> {
        poll_fn(|cx| self.poll_outcome(cx)).await
    }

    /// Awaits the end of the flight, after its outcome.
    async fn end(&self) {
        poll_fn(|cx| {
            let mut state = self.flight.state.lock();
            if state.over {
                return Poll::Ready(());
            }
            state.waiters.wait(self.place, cx);
            Poll::Pending
        })
        .await;
    }

    /// Another follower of the same flight.
    pub fn another(&self) -> Self {
        self.flight.follower()
    }

    /// Stays to the end in the place of a request that comes later.
    pub fn stay(self)
    where
        O: Send + 'static,
        L: Send + 'static,
    {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { self.end().await });
        }
    }

    fn poll_outcome(&self, cx: &Context<'_>) -> Poll<Option<O>> {
        let mut state = self.flight.state.lock();
        let outcome = state.outcome.as_ref().or(state.substitute.as_ref());
        if outcome.is_some() || state.over {
            return Poll::Ready(outcome.cloned());
        }
        state.waiters.wait(self.place, cx);
        Poll::Pending
    }

    /// The part of the outcome that is the leader's alone, for the request that began the flight.
    pub fn own(&self) -> MutexGuard<'_, L> {
        self.flight.own.lock()
    }

    /// Hands the outcome of another flight to the followers of this one. The request that leads it still gets its
    /// own.
    pub fn substitute(&self, outcome: O) {
        let mut state = self.flight.state.lock();
        state.substitute.get_or_insert(outcome);
        state.waiters.wake();
    }

    /// The outcome, if it is known.
    pub fn settled(&self) -> Option<O> {
        self.flight.state.lock().outcome.clone()
    }
}

impl<O: Clone, L> Drop for Follower<O, L> {
    fn drop(&mut self) {
        let mut state = self.flight.state.lock();
        state.waiters.leave(self.place);
        state.followers -= 1;
        if state.followers == 0
            && let Some(leader) = state.leader.take()
        {
            leader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        task::Wake,
    };

    use super::*;

    type Flights = SingleFlight<&'static str, u32>;

    fn start() -> FlightStart {
        FlightStart::now(Label::new(0, 0), 0)
    }

    fn lead(
        flights: &Arc<Flights>,
        identity: &str,
    ) -> (Follower<&'static str, u32>, FlightLeader<&'static str, u32>) {
        let (follower, leader) = flights.join(Key(1), identity, start(), |_, _| true).unwrap();
        (follower, leader.unwrap())
    }

    fn poll(follower: &Follower<&'static str, u32>) -> Poll<Option<&'static str>> {
        follower.poll_outcome(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn followers_get_the_outcome_of_their_leader() {
        let flights = Flights::new();
        let (first, leader) = lead(&flights, "a");
        let (second, none) = flights.join(Key(1), "a", start(), |_, _| true).unwrap();
        assert!(none.is_none() && poll(&second).is_pending());
        leader.settle("known");
        assert_eq!((poll(&first), poll(&second)), (Poll::Ready(Some("known")), poll(&first)));
        // It can be followed until the leader drops.
        assert!(flights.join(Key(1), "a", start(), |_, _| true).unwrap().1.is_none());
        drop(leader);
        assert_eq!((flights.count(), poll(&second)), (0, Poll::Ready(Some("known"))));
    }

    #[test]
    fn a_leader_that_gives_up_leaves_no_outcome() {
        let flights = Flights::new();
        let (follower, leader) = lead(&flights, "a");
        drop(leader);
        assert_eq!((poll(&follower), flights.count()), (Poll::Ready(None), 0));
    }

    #[test]
    fn an_outcome_that_concludes_is_for_present_followers() {
        let flights = Flights::new();
        let (follower, leader) = lead(&flights, "a");
        *leader.own() = 7;
        leader.conclude("once");
        assert_eq!((poll(&follower), *follower.own()), (Poll::Ready(Some("once")), 7));
        assert!(flights.join(Key(1), "a", start(), |_, _| true).unwrap().1.is_some());
    }

    #[test]
    fn followers_of_a_late_flight_take_the_outcome_of_another() {
        let flights = Flights::new();
        let (first, leader) = lead(&flights, "a");
        let (second, _) = flights.join(Key(1), "a", start(), |_, _| true).unwrap();
        first.substitute("other");
        assert_eq!((poll(&second), second.settled()), (Poll::Ready(Some("other")), None));
        leader.settle("own");
        assert_eq!(second.settled(), Some("own"));
    }

    #[test]
    fn identities_that_share_a_key_do_not_share_a_flight() {
        let flights = Flights::new();
        let _leader = lead(&flights, "a");
        assert!(flights.join(Key(1), "b", start(), |_, _| true).is_none());
    }

    #[test]
    fn a_flight_that_may_not_be_followed_is_replaced() {
        let flights = Flights::new();
        let (_first, old) = lead(&flights, "a");
        old.settle("old");
        let outdated = |_: &FlightStart, outcome: Option<&&str>| outcome != Some(&"old");
        let (second, new) = flights.join(Key(1), "a", start(), outdated).unwrap();
        new.as_ref().unwrap().settle("new");
        // The end of the old flight does not end the new one.
        drop(old);
        assert_eq!((flights.count(), second.settled()), (1, Some("new")));
    }

    #[test]
    fn flight_is_abandoned_when_its_last_follower_leaves() {
        let flights = Flights::new();
        let (first, leader) = lead(&flights, "a");
        let (second, _) = flights.join(Key(1), "a", start(), |_, _| true).unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut abandoned = Box::pin(leader.abandoned());
        assert!(abandoned.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(leader.has_followers() && abandoned.as_mut().poll(&mut cx).is_pending());
        assert!(!woken.0.load(Relaxed));
        drop(second);
        assert!(!leader.has_followers() && woken.0.load(Relaxed));
        assert!(abandoned.as_mut().poll(&mut cx).is_ready());
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
}
