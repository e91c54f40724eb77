//! The leader of a single flight: a fetch and the request that began it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use levada_upstream::ServerFailure;
use tokio::runtime::Handle;

use crate::{
    failure::Failure,
    fill::{FetchOutcome, FillReader},
};

/// Runs a fetch.
///
/// Until the head arrives, the request that began the fetch polls it: most responses that are not
/// stored, and most failures, end there and need neither a task nor a wake-up between tasks. After the
/// head, or when the client disconnects before, the fetch runs in a task of its own, so that no
/// client's disconnect ends a fetch that others wait for.
pub(crate) struct FetchLeader(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl FetchLeader {
    /// `fetch` owns the only writer of the fill that it is read from.
    pub(crate) fn new(fetch: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(Box::pin(fetch)))
    }

    /// Awaits the outcome of the fetch that `reader` reads.
    pub(crate) async fn outcome(mut self, reader: &FillReader) -> FetchOutcome {
        poll_fn(|cx| {
            if let Some(fetch) = &mut self.0
                && fetch.as_mut().poll(cx).is_ready()
            {
                self.0 = None;
            }
            // Only the fetch settles it, so that no other waker is needed.
            match reader.settled() {
                None if self.0.is_some() => Poll::Pending,
                outcome => Poll::Ready(outcome),
            }
        })
        .await
        .unwrap_or(FetchOutcome::Failed(Failure::Server(ServerFailure::NoResponse).into()))
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
