//! A server's body while it arrives. It goes on from another connection when its server breaks off or stands
//! still.
//!
//! ```text
//!   Inbound ─┬─ a piece ────────────> on to the reader
//!            ├─ broke off ──────────> Rest::ask from here on ──> the next Inbound
//!            └─ it stands still ───> Rest::ask, as well ────> the first one that moves
//! ```
//!
//! The caller says by a [`Rest`] where the rest may be asked for. Only a body whose version has a strong
//! validator has one, so that its reader never gets bytes of two versions (RFC 9110 Sec. 13.1.5).

use std::{
    future::{Future, poll_fn},
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use levada_http::{DeadlineTimer, Patience};
use tokio::time::{Instant, sleep};

use crate::{Inbound, InboundError, health::WAIT_CHECK_INTERVAL, stall::Stall};

/// How often the rest is asked for until this much more of it has come.
const TRIES: u32 = 3;
const PROGRESS: u64 = 1 << 20;
/// The wait before the rest is asked for again; as many times as it was asked for. A server that restarts needs
/// about a second.
const RETRY_BACKOFF: Duration = Duration::from_millis(300);

/// Why a server does not send the rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRest {
    /// It has another version by now, or does not send parts.
    Gone,
    /// It fails at the moment.
    Failed,
}

/// The rest of a body that has been asked for: the connection on which it comes.
pub type AskedRest = Pin<Box<dyn Future<Output = Result<Inbound, NoRest>> + Send>>;

/// A way to the rest of a body.
pub trait Rest: Send + Sync {
    /// Asks for the bytes from `position` on. `beside` is true when the body stands still and may go on by itself.
    fn ask(self: Arc<Self>, position: u64, beside: bool) -> AskedRest;
}

/// A server's body, between whose pieces no more than a certain time may pass.
pub struct Relay {
    body: Inbound,
    stall: Stall,
    healing: Option<Box<Healing>>,
}

/// The state of a body that can go on elsewhere.
struct Healing {
    rest: Arc<dyn Rest>,
    /// A body that has not moved for this long stands still.
    still: Duration,
    /// The next byte of the representation, and the one after the last.
    position: u64,
    end: u64,
    /// Why the present connection ended early.
    broken: Option<InboundError>,
    /// Since when the body does not move.
    awaited: Option<Instant>,
    timer: DeadlineTimer,
    asking: Option<AskedRest>,
    tries: u32,
    /// The position at which the count of tries starts again.
    counted_until: u64,
}

impl Relay {
    /// A body that has not moved for this long stands still.
    pub const STILL: Duration = Duration::from_secs(5);

    /// A body that fails when no piece of it comes for longer than `timeout`.
    pub fn new(body: Inbound, timeout: Duration) -> Self {
        Self { body, stall: Stall::new(Patience { time: timeout, min_rate: 0 }), healing: None }
    }

    /// Goes on with `rest` when the body breaks off. `span`: the bytes of the representation
    /// that the body has.
    pub fn heal(&mut self, rest: Arc<dyn Rest>, span: Range<u64>) {
        let Range { start: position, end } = span;
        self.healing = Some(Box::new(Healing {
            rest,
            still: Self::STILL.min(self.stall.timeout() / 2),
            position,
            end,
            broken: None,
            awaited: None,
            timer: DeadlineTimer::default(),
            asking: None,
            tries: 0,
            counted_until: position + PROGRESS,
        }));
    }

    /// The next frame.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, InboundError>>> {
        loop {
            if let Poll::Ready(item) = self.poll_body(cx) {
                self.stall.moved(1);
                return Poll::Ready(item);
            }
            if self.body.waits_for_client() {
                self.stall.moved(1);
                return Poll::Pending;
            }
            let Some(healing) = &mut self.healing else {
                ready!(self.stall.poll(cx));
                // The server may be listening to the rest of the request.
                if self.body.request_moved() {
                    self.stall.moved(1);
                    continue;
                }
                return Poll::Ready(Some(Err(InboundError::Stalled)));
            };
            match healing.poll(cx, &self.body) {
                Poll::Ready(Ok(body)) => self.body = body,
                Poll::Ready(Err(NoRest::Failed)) => {}
                Poll::Ready(Err(NoRest::Gone)) => {
                    let broken = self.healing.take().and_then(|healing| healing.broken);
                    if let Some(error) = broken {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                Poll::Pending => {
                    return self.stall.poll(cx).map(|()| Some(Err(InboundError::Stalled)));
                }
            }
        }
    }

    /// The next frame of the present connection. It is pending after the connection has broken off.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, InboundError>>> {
        if self.healing.as_ref().is_some_and(|healing| healing.broken.is_some()) {
            return Poll::Pending;
        }
        let item = ready!(self.body.poll_frame(cx));
        let Some(healing) = &mut self.healing else { return Poll::Ready(item) };
        healing.broken = match item {
            Some(Ok(frame)) => {
                let moved = healing.moved(frame.data_ref().map_or(0, Bytes::len) as u64);
                return Poll::Ready(Some(moved.map(|()| frame)));
            }
            None if healing.position == healing.end => return Poll::Ready(None),
            None => Some(InboundError::Http1("the part is shorter than it said")),
            // The body of a request cannot be repeated.
            Some(Err(InboundError::Request)) => {
                return Poll::Ready(Some(Err(InboundError::Request)));
            }
            Some(Err(error)) => Some(error),
        };
        Poll::Pending
    }

    /// The bytes that are still to come, as far as they are known.
    pub fn size_hint(&self) -> SizeHint {
        match &self.healing {
            Some(healing) => SizeHint::with_exact(healing.end - healing.position),
            None => self.body.size_hint(),
        }
    }

    /// Whether the body has been received whole.
    pub fn is_end_stream(&self) -> bool {
        let is_whole = |healing: &Healing| healing.position == healing.end;
        self.body.is_end_stream() && self.healing.as_deref().is_none_or(is_whole)
    }

    /// Whether its server has sent anything lately, on any connection.
    pub fn server_moves(&self) -> bool {
        self.body.server().health.is_moving()
    }

    /// Whether all of the body is here already.
    pub fn has_come(&self) -> bool {
        self.body.has_come()
    }

    /// Reads on to the end, so that the connection can be used again, or to so many bytes.
    pub async fn drain(mut self, mut most: usize) {
        self.healing = None;
        while let Some(Ok(piece)) = self.next_data().await {
            match most.checked_sub(piece.len()) {
                Some(left) => most = left,
                None => return,
            }
        }
    }

    /// Bounds the bytes that are read at once, for callers with a memory budget.
    pub fn read_at_most(&mut self, bytes: usize) {
        self.body.read_at_most(bytes);
    }

    /// The next bytes, for callers that are not bodies themselves.
    pub async fn next_data(&mut self) -> Option<Result<Bytes, InboundError>> {
        poll_fn(|cx| self.poll_data(cx)).await
    }

    /// The next bytes.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, InboundError>>> {
        loop {
            match ready!(self.poll(cx)).map(|frame| frame.map(Frame::into_data)) {
                None => return Poll::Ready(None),
                Some(Ok(Ok(piece))) => return Poll::Ready(Some(Ok(piece))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // Trailers.
                Some(Ok(Err(_))) => {}
            }
        }
    }
}

impl Healing {
    /// Counts the bytes that have come. A part may be longer than it said.
    fn moved(&mut self, bytes: u64) -> Result<(), InboundError> {
        if bytes > self.end - self.position {
            return Err(InboundError::Http1("the part is longer than it said"));
        }
        self.position += bytes;
        (self.awaited, self.asking) = (None, None);
        if self.position >= self.counted_until {
            (self.tries, self.counted_until) = (0, self.position + PROGRESS);
        }
        Ok(())
    }

    /// The next connection, if one is needed and can be had.
    fn poll(&mut self, cx: &mut Context<'_>, body: &Inbound) -> Poll<Result<Inbound, NoRest>> {
        if self.asking.is_none() {
            if self.broken.is_none() {
                ready!(self.poll_still(cx, body));
            }
            if self.tries == TRIES {
                return Poll::Ready(Err(NoRest::Gone));
            }
            let (pause, beside) = (RETRY_BACKOFF * self.tries, self.broken.is_none());
            let asked = self.rest.clone().ask(self.position, beside);
            self.tries += 1;
            self.asking = Some(Box::pin(async move {
                sleep(pause).await;
                asked.await
            }));
        }
        let Some(asking) = &mut self.asking else { return Poll::Pending };
        let answer = ready!(asking.as_mut().poll(cx));
        (self.asking, self.awaited) = (None, None);
        let next = answer?;
        tracing::info!(from = %body.server().name, to = %next.server().name, "a body goes on");
        self.broken = None;
        Poll::Ready(Ok(next))
    }

    /// Ready when the body stands still, or does not move and its server is down.
    fn poll_still(&mut self, cx: &mut Context<'_>, body: &Inbound) -> Poll<()> {
        let awaited = *self.awaited.get_or_insert_with(Instant::now);
        loop {
            let waited = awaited.elapsed();
            if waited >= self.still
                || (waited >= WAIT_CHECK_INTERVAL && !body.server().health.is_up())
            {
                return Poll::Ready(());
            }
            let looks = (waited.as_millis() / WAIT_CHECK_INTERVAL.as_millis()) as u32;
            ready!(
                self.timer.poll(cx, awaited + self.still.min(WAIT_CHECK_INTERVAL * (looks + 1)))
            );
        }
    }
}
