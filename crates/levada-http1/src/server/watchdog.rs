//! The deadlines of an HTTP/2 connection that hyper leaves to its user: for a connection without
//! requests, and for streams whose client does not take its response.
//!
//! Over HTTP/1.1 the guard sees both in the bytes. Over HTTP/2 flow control hides them: the connection
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

/// Watches one connection.
#[derive(Debug)]
pub struct Watchdog {
    idle: Duration,
    send: Duration,
    state: Mutex<WatchdogState>,
}

#[derive(Debug)]
struct WatchdogState {
    /// The start of the time without a stream.
    quiet: Instant,
    next: u64,
    /// For each stream, the start of the time in which its client has not taken a piece.
    streams: HashMap<u64, Option<Instant>>,
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
    /// Watches a connection that may be without a stream for the time `idle`, and whose client may take nothing
    /// for the time `send`.
    pub fn new(idle: Duration, send: Duration) -> Arc<Self> {
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

    /// Returns when the connection has to end.
    pub async fn over(&self) -> EndReason {
        loop {
            let wake = match self.judge(Instant::now()) {
                Ok(over) => return over,
                Err(wake) => wake,
            };
            tokio::time::sleep_until(wake).await;
        }
    }

    /// The reason why the connection has to end, or the time of the next check.
    fn judge(&self, now: Instant) -> Result<EndReason, Instant> {
        let state = self.state.lock();
        let (deadline, over) = match state.streams.is_empty() {
            true => (Some(state.quiet + self.idle), EndReason::Idle),
            false => {
                (state.streams.values().flatten().min().map(|t| *t + self.send), EndReason::Stalled)
            }
        };
        match deadline {
            Some(deadline) if deadline <= now => Ok(over),
            // A stream that begins in the meantime cannot be due before this.
            deadline => {
                let next = now + self.idle.min(self.send);
                Err(deadline.map_or(next, |deadline| deadline.min(next)))
            }
        }
    }

    fn note(&self, id: u64, since: Option<Instant>) {
        if let Some(stream) = self.state.lock().streams.get_mut(&id) {
            *stream = since;
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

    /// hyper polls for a piece when there is a window for it. Between a piece and the next poll, the client
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

    #[test]
    fn idle_counts_without_streams_and_stalls_with_them() {
        let watchdog = Watchdog::new(Duration::from_secs(10), Duration::from_secs(3));
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(watchdog.judge(later(9)).is_err());
        assert_eq!(watchdog.judge(later(11)), Ok(EndReason::Idle));
        let stream = watchdog.stream();
        assert!(watchdog.judge(later(100)).is_err(), "this node is waited for");
        watchdog.note(stream.id, Some(later(100)));
        assert!(watchdog.judge(later(102)).is_err());
        assert_eq!(watchdog.judge(later(103)), Ok(EndReason::Stalled));
        drop(stream);
        assert!(watchdog.judge(Instant::now()).is_err());
    }
}
