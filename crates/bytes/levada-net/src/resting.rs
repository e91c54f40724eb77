//! The connections that rest: those without a request for a while. Where the places of connections or the open files
//! of the process run out, they give way to new ones, the longest idle first.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

/// See the module.
#[derive(Debug, Default)]
pub struct RestingConnections(Mutex<RestingState>);

#[derive(Debug, Default)]
struct RestingState {
    next: u64,
    /// The longest idle first.
    wakers: BTreeMap<u64, Waker>,
}

/// The rest of one connection.
#[derive(Debug)]
pub struct RestingConnection<'a> {
    among: &'a RestingConnections,
    id: u64,
}

impl RestingConnections {
    /// A connection that begins to rest, until the result is dropped.
    pub fn enter(&self) -> RestingConnection<'_> {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.wakers.insert(id, Waker::noop().clone());
        RestingConnection { among: self, id }
    }

    /// Returns when a connection has to give way that has been silent for the time `quiet`, and rests from then on.
    pub async fn gives_way_after(&self, quiet: Duration) {
        tokio::time::sleep(quiet).await;
        self.enter().gives_way().await;
    }

    /// Has so many connections give way, if there are as many: the ones that are idle for the longest time.
    pub fn give_way(&self, count: usize) {
        for _ in 0..count {
            let longest = self.state().wakers.pop_first();
            longest.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }

    fn state(&self) -> MutexGuard<'_, RestingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RestingConnection<'_> {
    /// Ready when the connection has to give way.
    pub fn poll_gives_way(&self, cx: &Context<'_>) -> Poll<()> {
        match self.among.state().wakers.get_mut(&self.id) {
            Some(waker) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }

    /// Returns when the connection has to give way.
    pub async fn gives_way(&self) {
        poll_fn(|cx| self.poll_gives_way(cx)).await;
    }

    /// Whether it has to give way.
    pub fn has_to_give_way(&self) -> bool {
        self.poll_gives_way(&Context::from_waker(Waker::noop())).is_ready()
    }
}

impl Drop for RestingConnection<'_> {
    fn drop(&mut self) {
        self.among.state().wakers.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_idle_connection_gives_way_and_busy_ones_do_not() {
        let resting = RestingConnections::default();
        resting.give_way(1);
        let (busy, first, second) = (resting.enter(), resting.enter(), resting.enter());
        drop(busy);
        resting.give_way(1);
        assert_eq!([&first, &second].map(|one| one.has_to_give_way()), [true, false]);
        drop(first);
        resting.give_way(2);
        assert!(second.has_to_give_way() && !resting.enter().has_to_give_way());
        drop(second);
        assert!(resting.state().wakers.is_empty());
    }

    #[tokio::test]
    async fn connection_learns_that_it_has_to_give_way() {
        let resting = RestingConnections::default();
        let one = resting.enter();
        let asks = async { resting.give_way(1) };
        tokio::join!(biased; one.gives_way(), asks);
    }
}
