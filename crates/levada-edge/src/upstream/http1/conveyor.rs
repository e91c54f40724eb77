//! Long bodies that go from a server's socket to a client's by way of the kernel alone.
//!
//! What has come is moved into a pipe, and the client's connection is handed a parcel of it
//! ([`crate::guard::ZeroCopyQueue`]). More is taken only when that is on its way: what a client leaves lying,
//! the server is not asked for either.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use levada_net::pipe::Pipe;
use tokio::{io::Interest, net::TcpStream};

use crate::guard::{LONGEST, ZeroCopyChunk, ZeroCopyQueue};

/// The way of one body.
pub(super) struct Conveyor {
    zero_copy: Arc<ZeroCopyQueue>,
    pipe: Arc<Pipe>,
}

/// What must be left of a body for it to pay.
pub(super) const FROM: u64 = 64 << 10;

impl Conveyor {
    /// A way to the client that parcels are for; none when too many files are open.
    pub(super) fn new(zero_copy: &Arc<ZeroCopyQueue>) -> Option<Self> {
        Some(Self { zero_copy: zero_copy.clone(), pipe: Arc::new(Pipe::new().ok()?) })
    }

    /// Whether what the client was handed is still to be sent: nobody waits for the server.
    pub(super) fn is_full(&self) -> bool {
        self.pipe.held() > 0
    }

    /// What stands in for what has come, at most so much of it; nothing when the server has ended. The
    /// task is woken by the client's connection when that has sent the last of it.
    pub(super) fn poll(
        &self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        most: u64,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if self.is_full() {
            return Poll::Pending;
        }
        let most = usize::try_from(most).unwrap_or(LONGEST).min(LONGEST);
        loop {
            ready!(from.poll_read_ready(cx))?;
            match from.try_io(Interest::READABLE, || self.pipe.fill(from, most)) {
                Ok(_) => {
                    let chunk = ZeroCopyChunk::Pipe(self.pipe.clone());
                    return Poll::Ready(Ok(self.zero_copy.hand_in(&chunk, 0, u64::MAX)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
