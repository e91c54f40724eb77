//! The deadlines of an HTTP/3 connection that its libraries leave to their user: for a connection without
//! requests, and for streams whose client does not take its response.
//!
//! Over HTTP/1.1 both are seen in the bytes. Here flow control hides them: the connection
//! answers pings while a body waits for a window that never opens.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::patience::{Patience, SendStall};

/// Watches one connection.
#[derive(Debug)]
pub struct Watchdog {
    idle: Duration,
    send: Patience,
    state: Mutex<WatchdogState>,
}

#[derive(Debug)]
struct WatchdogState {
    /// The start of the time without a stream.
    quiet: Instant,
    next: u64,
    /// For each stream, the wait until its client takes a piece.
    streams: HashMap<u64, Option<SendStall>>,
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// No request for too long.
    Idle,
    /// A client reads nothing for too long.
    Stalled,
}

/// One watched stream; it counts until it is dropped.
#[derive(Debug)]
pub struct WatchedStream {
    watchdog: Arc<Watchdog>,
    id: u64,
}

/// A watched body.
#[derive(Debug)]
pub struct WatchedBody<B> {
    body: B,
    stream: WatchedStream,
}

impl Watchdog {
    /// Watches a connection that may be without a stream for the time `idle`, and whose client takes responses as
    /// `send` says.
    pub fn new(idle: Duration, send: Patience) -> Arc<Self> {
        let state = WatchdogState { quiet: Instant::now(), next: 0, streams: HashMap::new() };
        Arc::new(Self { idle, send, state: Mutex::new(state) })
    }

    /// Begins to watch a stream.
    pub fn stream(self: &Arc<Self>) -> WatchedStream {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.streams.insert(id, None);
        WatchedStream { watchdog: self.clone(), id }
    }

    /// Returns when the connection has to end. `acknowledged` tells the number of bytes that the client has
    /// acknowledged so far.
    pub async fn over(&self, acknowledged: impl Fn() -> Option<u64>) -> EndReason {
        loop {
            let wake = match self.judge(Instant::now(), &acknowledged) {
                Ok(over) => return over,
                Err(wake) => wake,
            };
            tokio::time::sleep_until(wake).await;
        }
    }

    /// The reason why the connection has to end, or the time of the next check.
    fn judge(
        &self,
        now: Instant,
        acknowledged: &impl Fn() -> Option<u64>,
    ) -> Result<EndReason, Instant> {
        let mut state = self.state.lock();
        if state.streams.is_empty() {
            let deadline = state.quiet + self.idle;
            return if deadline <= now {
                Ok(EndReason::Idle)
            } else {
                Err(self.wake(now, deadline))
            };
        }
        let mut wake = now + self.idle;
        for stall in state.streams.values_mut().flatten() {
            let is_due = stall.next_look(&self.send) <= now;
            if is_due && !stall.goes_on(&self.send, now, acknowledged()) {
                return Ok(EndReason::Stalled);
            }
            wake = wake.min(stall.next_look(&self.send));
        }
        Err(self.wake(now, wake))
    }

    /// The time of the next check, at `deadline` at the latest. A stream that begins in the meantime is not due
    /// before it.
    fn wake(&self, now: Instant, deadline: Instant) -> Instant {
        let first_look = SendStall::begin(&self.send, now).next_look(&self.send);
        deadline.min(now + self.idle).min(first_look)
    }

    fn note(&self, id: u64, since: Option<Instant>) {
        if let Some(stream) = self.state.lock().streams.get_mut(&id) {
            // A client that takes a piece now and then is waited for all the while.
            *stream = since.map(|now| stream.unwrap_or_else(|| SendStall::begin(&self.send, now)));
        }
    }
}

impl WatchedStream {
    /// Wraps the body of the stream's response.
    pub fn watch<B>(self, body: B) -> WatchedBody<B> {
        WatchedBody { body, stream: self }
    }
}

impl Drop for WatchedStream {
    fn drop(&mut self) {
        let mut state = self.watchdog.state.lock();
        state.streams.remove(&self.id);
        if state.streams.is_empty() {
            state.quiet = Instant::now();
        }
    }
}

impl<B: Body + Unpin> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    /// The stream polls for a piece when there is a window for it. Between a piece and the next poll, the client
    /// is waited for.
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        let handed_out = matches!(polled, Poll::Ready(Some(Ok(_))));
        this.stream.watchdog.note(this.stream.id, handed_out.then(Instant::now));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: Patience = Patience { time: Duration::from_secs(8), min_rate: 500 };

    #[test]
    fn idle_counts_without_streams_and_stalls_with_them() {
        let watchdog = Watchdog::new(Duration::from_secs(10), SEND);
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let judge = |seconds, acknowledged| watchdog.judge(later(seconds), &|| Some(acknowledged));
        assert!(judge(9, 0).is_err());
        assert_eq!(judge(11, 0), Ok(EndReason::Idle));
        let stream = watchdog.stream();
        assert!(judge(100, 0).is_err(), "this node is waited for");
        watchdog.note(stream.id, Some(later(100)));
        assert!(judge(107, 0).is_err());
        assert_eq!(judge(108, 0), Ok(EndReason::Stalled));
        drop(stream);
        assert!(watchdog.judge(Instant::now(), &|| None).is_err());
    }

    #[test]
    fn stream_stalls_as_long_as_too_little_is_acknowledged() {
        let watchdog = Watchdog::new(Duration::from_secs(10), SEND);
        let stream = watchdog.stream();
        let start = Instant::now();
        let judge = |seconds, acknowledged| {
            watchdog.judge(start + Duration::from_secs(seconds), &|| Some(acknowledged))
        };
        watchdog.note(stream.id, Some(start));
        (1..100).for_each(|seconds| assert!(judge(seconds, seconds * 500).is_err()));
        // Pieces that are handed out meanwhile earn nothing by themselves.
        watchdog.note(stream.id, Some(start + Duration::from_secs(102)));
        assert!((100..109).any(|seconds| judge(seconds, 50_000) == Ok(EndReason::Stalled)));
    }
}
