//! Long bodies that go from a server's socket to a client's through the kernel alone.
//!
//! The conveyor moves the bytes that have come into a pipe, and queues the pipe as a chunk at the client's
//! connection ([`ZeroCopyQueue`]). It takes more only when that has been sent: while the client reads
//! nothing, nothing is read from the server.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use levada_net::pipe::Pipe;

use super::Io;
use crate::zero_copy::{LONGEST, PipedBytes, ZeroCopyChunk, ZeroCopyQueue};

/// The way of one body from server to client.
pub(super) struct Conveyor {
    zero_copy: Arc<ZeroCopyQueue>,
    pipe: Arc<Pipe>,
}

/// The number of bytes that must be left of a body for a conveyor to pay.
pub(super) const FROM: u64 = 32 << 10;

impl Conveyor {
    /// A way to the client that has this queue; `None` when too many files are open.
    pub(super) fn new(zero_copy: &Arc<ZeroCopyQueue>) -> Option<Self> {
        Some(Self { zero_copy: zero_copy.clone(), pipe: Arc::new(Pipe::new().ok()?) })
    }

    /// Whether the last chunk is still to be sent to the client. The server is not waited for then.
    pub(super) fn is_full(&self) -> bool {
        self.pipe.held() > 0
    }

    /// The stand-in for at most `most` bytes that have come; `None` when the server has ended. The client's
    /// connection polls again when it has sent the last of a chunk.
    pub(super) fn poll(
        &self,
        cx: &mut Context<'_>,
        from: &Io,
        most: u64,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if self.is_full() {
            return Poll::Pending;
        }
        let room = usize::try_from(most).unwrap_or(LONGEST).min(LONGEST);
        let count = ready!(from.poll_fill(cx, &self.pipe, room))?;
        let is_last = count as u64 == most;
        let chunk = ZeroCopyChunk::Pipe(PipedBytes { pipe: self.pipe.clone(), is_last });
        Poll::Ready(Ok(self.zero_copy.hand_in(&chunk, 0, u64::MAX)))
    }
}
