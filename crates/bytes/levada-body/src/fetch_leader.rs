//! The leader of a single flight: an operation and the request that began it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use tokio::runtime::Handle;

use crate::Follower;

/// Runs a fetch.
///
/// Until the head arrives, the request that began the fetch polls it: most responses that are not
/// stored, and most failures, end there and need neither a task nor a wake-up between tasks. After the
/// head, or when the client disconnects before, the fetch runs in a task of its own, so that no
/// client's disconnect ends a fetch that others wait for. One that no request waits for ends
/// ([`FlightLeader::abandoned`](crate::FlightLeader::abandoned)).
pub struct FetchLeader(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl FetchLeader {
    /// `fetch` owns the only leader of the flight that it settles.
    pub fn new(fetch: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(Box::pin(fetch)))
    }

    /// Awaits the outcome of the flight that `follower` follows. `None` when the fetch has ended
    /// without one.
    pub async fn outcome<O: Clone, L>(mut self, follower: &Follower<O, L>) -> Option<O> {
        poll_fn(|cx| {
            if let Some(fetch) = &mut self.0
                && fetch.as_mut().poll(cx).is_ready()
            {
                self.0 = None;
            }
            // Only the fetch settles it, so that no other waker is needed.
            match follower.settled() {
                None if self.0.is_some() => Poll::Pending,
                outcome => Poll::Ready(outcome),
            }
        })
        .await
    }
}

impl Drop for FetchLeader {
    fn drop(&mut self) {
        // Without a runtime the process is ending.
        if let (Some(fetch), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(fetch);
        }
    }
}
