//! The bytes of a response body: whole, in one range, or in several with text between them.
//!
//! ```text
//!   Script ── steps: text, or a range of positions
//!     └─ reader: ReadAt ─┬─ StoredReader    an object in memory or in its file
//!                        ├─ BlockReader     an object that is being fetched, or a long one
//!                        └─ any other       for example a large file, piece by piece
//! ```
//!
//! Every body but one in a single segment of memory is sent by a script. It does not know where the
//! bytes come from: each source of bytes implements [`ReadAt`] next to its own mechanism.

use std::{
    collections::VecDeque,
    ops::Range,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use crate::ReadError;

/// A body that can be read from a position on.
pub trait ReadAt: Send {
    /// The bytes at a position, up to the end of a segment; `None` at the end of the body. A reader
    /// that hands its bytes out for good hands out no more than `most` of them.
    fn poll_at(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        most: u64,
    ) -> Poll<Option<Result<Bytes, ReadError>>>;

    /// Waits until the bytes are shared with the store and hold on to nothing else; false when they
    /// never are.
    fn poll_kept(&mut self, _cx: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(false)
    }
}

/// The steps of a body, and the reader of its bytes.
pub struct Script<R: ReadAt + ?Sized = dyn ReadAt> {
    steps: VecDeque<Step>,
    reader: R,
}

/// A step of a body.
pub enum Step {
    /// These bytes, which are not part of the representation.
    Text(Bytes),
    /// These bytes of the representation; up to `u64::MAX`: to the end, wherever that is.
    Bytes(Range<u64>),
}

impl<R: ReadAt> Script<R> {
    /// These steps of what `reader` reads.
    pub fn new(steps: VecDeque<Step>, reader: R) -> Self {
        Self { steps, reader }
    }

    /// All bytes; `length` where it is known.
    pub fn whole(length: Option<u64>, reader: R) -> Self {
        let range = 0..length.unwrap_or(u64::MAX);
        Self::new(VecDeque::from([Step::Bytes(range)]), reader)
    }
}

impl<R: ReadAt + ?Sized> Script<R> {
    /// The next bytes of the body.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ReadError>>> {
        loop {
            match self.steps.front_mut() {
                None => return Poll::Ready(None),
                Some(Step::Text(text)) => {
                    let text = std::mem::take(text);
                    self.steps.pop_front();
                    return Poll::Ready(Some(Ok(text)));
                }
                Some(Step::Bytes(range)) if range.is_empty() => drop(self.steps.pop_front()),
                Some(Step::Bytes(range)) => {
                    let due = range.end - range.start;
                    match ready!(self.reader.poll_at(cx, range.start, due)) {
                        Some(Ok(mut piece)) => {
                            piece.truncate(usize::try_from(due).unwrap_or(usize::MAX));
                            range.start += piece.len() as u64;
                            return Poll::Ready(Some(Ok(piece)));
                        }
                        None if range.end == u64::MAX => drop(self.steps.pop_front()),
                        // Shorter than was said: never ended cleanly.
                        None => return Poll::Ready(Some(Err(ReadError::Broken))),
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    }
                }
            }
        }
    }

    /// Waits until all bytes are shared with the store; see [`ReadAt::poll_kept`].
    pub fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.reader.poll_kept(cx)
    }

    /// The bytes that are left, where that is known.
    pub fn left(&self) -> Option<u64> {
        let steps = self.steps.iter().map(|step| match step {
            Step::Text(text) => Some(text.len() as u64),
            Step::Bytes(range) if range.end == u64::MAX => None,
            Step::Bytes(range) => Some(range.end - range.start),
        });
        steps.sum()
    }
}
