//! One timer for all deadlines of a connection.
//!
//! Deadlines move with every request. A timer that moved with them would take a lock on the runtime's
//! timer wheel each time. So the timer is left alone while it fires early enough. When it fires before
//! the current deadline it is set again, which happens once per timeout, not per request.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    task::coop::has_budget_remaining,
    time::{Instant, Sleep, sleep_until},
};

/// A timer that is made at its first use.
#[derive(Debug, Default)]
pub struct DeadlineTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The task that the timer wakes. It need not be registered again.
    wakes: Option<Waker>,
}

impl DeadlineTimer {
    /// Ready when `deadline` has passed; wakes the task then, or earlier.
    pub fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
            self.wakes = None;
        }
        let is_registered = self.wakes.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_registered && !sleep.is_elapsed() {
            return Poll::Pending;
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        // A task without budget (tokio's cooperative scheduling) is woken at once, not by the timer.
        self.wakes = has_budget_remaining().then(|| cx.waker().clone());
        Poll::Pending
    }
}

/// The longest timeout: a later instant may not exist.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The instant after `timeout`; a timeout of more than a year is one of a year.
pub fn after(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::task::consume_budget;

    #[tokio::test]
    async fn a_task_whose_turn_is_used_up_is_woken_all_the_same() {
        let (mut timer, deadline) = (DeadlineTimer::default(), after(Duration::from_millis(50)));
        let mut used_up = false;
        let rings = poll_fn(|cx| {
            while !used_up && has_budget_remaining() {
                let _ = std::pin::pin!(consume_budget()).poll(cx);
            }
            used_up = true;
            timer.poll(cx, deadline)
        });
        assert!(tokio::time::timeout(Duration::from_secs(2), rings).await.is_ok());
        assert!(Instant::now() >= deadline);
    }

    #[tokio::test]
    async fn rings_at_the_deadline_that_was_named_last() {
        let mut timer = DeadlineTimer::default();
        let start = Instant::now();
        let mut polls = 0;
        for (first, then) in [(20, 60), (60, 20)] {
            let at = |millis| Instant::now() + Duration::from_millis(millis);
            let (first, then) = (at(first), at(then));
            let rung = poll_fn(|cx| {
                polls += 1;
                let _ = timer.poll(cx, first);
                timer.poll(cx, then)
            });
            rung.await;
            assert!(Instant::now() >= then);
        }
        assert!(start.elapsed() >= Duration::from_millis(80));
        assert!(polls < 10, "{polls} polls");
    }
}
