//! The body of a request, as the service has it, and the end of it that the connection feeds.
//!
//! ```text
//!   socket ──> BodyDecoder ──> BodyFeed ──frame──> IncomingBody ──> service
//!                                   <───wanted────
//! ```
//!
//! One frame lies between the two at most. The connection reads only when the service has asked for a frame:
//! while the service takes nothing, nothing is read from the client.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::{ConnectionEnd, facts::RequestLength};

/// The body of a request over HTTP/1.
#[derive(Debug)]
pub struct IncomingBody {
    /// `None`: there is none.
    slot: Option<Arc<Mutex<BodySlot>>>,
    /// The bytes that are still to come, if the request states them.
    left: Option<u64>,
}

/// The body of a request broke off. The connection has ended for this reason, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request body broke off: {}", .0.as_str())]
pub struct IncomingBodyError(ConnectionEnd);

/// The connection's end of a body.
#[derive(Debug, Default)]
pub(super) struct BodyFeed(Option<Arc<Mutex<BodySlot>>>);

#[derive(Debug, Default)]
struct BodySlot {
    frame: Option<Frame<Bytes>>,
    /// Set when no further frame comes.
    end: Option<Result<(), IncomingBodyError>>,
    /// The service waits for a frame.
    wanted: bool,
    /// The connection polls the service, and looks for its wish afterwards.
    inside: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

impl IncomingBody {
    /// A body of this length, and the end by which it is fed. Without a body nothing is allocated.
    pub(super) fn new(length: RequestLength) -> (Self, BodyFeed) {
        let left = match length {
            RequestLength::Counted(0) => return (Self::default(), BodyFeed::default()),
            RequestLength::Counted(length) => Some(length),
            RequestLength::Chunked => None,
        };
        let slot: Arc<Mutex<BodySlot>> = Arc::default();
        (Self { slot: Some(slot.clone()), left }, BodyFeed(Some(slot)))
    }
}

impl Default for IncomingBody {
    /// No body.
    fn default() -> Self {
        Self { slot: None, left: Some(0) }
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = IncomingBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncomingBodyError>>> {
        let this = self.get_mut();
        let Some(slot) = &this.slot else { return Poll::Ready(None) };
        let mut slot = slot.lock();
        if let Some(frame) = slot.frame.take() {
            if let (Some(left), Some(data)) = (&mut this.left, frame.data_ref()) {
                *left = left.saturating_sub(data.len() as u64);
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(end) = slot.end {
            return Poll::Ready(end.err().map(Err));
        }
        slot.wanted = true;
        if !slot.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            slot.reader = Some(cx.waker().clone());
        }
        if !slot.inside
            && let Some(connection) = slot.connection.take()
        {
            connection.wake();
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let Some(slot) = &self.slot else { return true };
        self.left == Some(0) || {
            let slot = slot.lock();
            slot.frame.is_none() && slot.end == Some(Ok(()))
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The connection need not wait for a frame that nobody takes.
impl Drop for IncomingBody {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            slot.lock().wanted = false;
        }
    }
}

impl BodyFeed {
    /// Notes that the service is about to be polled.
    pub(super) fn enter(&self) {
        if let Some(slot) = &self.0 {
            slot.lock().inside = true;
        }
    }

    /// Whether the service waits for a frame. If it does not, the task is woken when it does.
    pub(super) fn is_wanted(&self, cx: &Context<'_>) -> bool {
        let Some(slot) = &self.0 else { return false };
        let mut slot = slot.lock();
        slot.inside = false;
        if !slot.wanted {
            slot.connection = Some(cx.waker().clone());
        }
        slot.wanted
    }

    /// Whether the service has given the body up, so that nothing of it is wanted any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(|slot| Arc::strong_count(slot) == 1)
    }

    /// Hands a frame over. The connection polls the service again in this very task, which is not woken.
    pub(super) fn hand_over(&self, frame: Frame<Bytes>, task: &Waker) {
        self.change(task, |slot| slot.frame = Some(frame));
    }

    /// Notes that no further frame comes.
    pub(super) fn end(&mut self, end: Result<(), ConnectionEnd>, task: &Waker) {
        self.change(task, |slot| slot.end = Some(end.map_err(IncomingBodyError)));
        self.0 = None;
    }

    fn change(&self, task: &Waker, change: impl FnOnce(&mut BodySlot)) {
        let Some(slot) = &self.0 else { return };
        let mut slot = slot.lock();
        change(&mut slot);
        slot.wanted = false;
        if let Some(reader) = slot.reader.take()
            && !reader.will_wake(task)
        {
            reader.wake();
        }
    }
}

/// A connection that ends takes the body with it.
impl Drop for BodyFeed {
    fn drop(&mut self) {
        self.end(Err(ConnectionEnd::Cut), Waker::noop());
    }
}
