//! A stream that has become a tunnel, as the bytes of its DATA frames (RFC 8441 Sec. 5).
//!
//! ```text
//!   DATA frames ──> IncomingBody ──> Http2Tunnel: read
//!   DATA frames <── TunnelOutlet <───── Http2Tunnel: write, shut down
//! ```

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::server::incoming::IncomingBody;

/// The tunnel's side of a stream.
#[derive(Debug)]
pub struct Http2Tunnel {
    body: IncomingBody,
    /// Bytes that have come and were not read.
    came: Bytes,
    pipe: Arc<Mutex<Pipe>>,
}

/// The connection's side of it.
#[derive(Debug)]
pub(super) struct TunnelOutlet(Arc<Mutex<Pipe>>);

/// The bytes to the client.
#[derive(Debug, Default)]
struct Pipe {
    waiting: BytesMut,
    /// The tunnel sends no more.
    is_shut: bool,
    /// One side is gone.
    is_gone: bool,
    /// The side that waits for the other.
    waker: Option<Waker>,
}

/// Bytes that wait in a tunnel at most.
const MOST: usize = 64 << 10;

/// The two sides of a stream that becomes a tunnel. `body` brings the bytes of the client.
pub(super) fn tunnel(body: IncomingBody) -> (Http2Tunnel, TunnelOutlet) {
    let pipe: Arc<Mutex<Pipe>> = Arc::default();
    (Http2Tunnel { body, came: Bytes::new(), pipe: pipe.clone() }, TunnelOutlet(pipe))
}

impl Pipe {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl TunnelOutlet {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// The tunnel has ended in the middle.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ()>>> {
        let mut pipe = self.0.lock();
        if !pipe.waiting.is_empty() {
            pipe.wake();
            return Poll::Ready(Some(Ok(pipe.waiting.split().freeze())));
        }
        match (pipe.is_shut, pipe.is_gone) {
            (true, _) => Poll::Ready(None),
            (false, true) => Poll::Ready(Some(Err(()))),
            (false, false) => {
                pipe.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Ready when the tunnel reads no more either.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut pipe = self.0.lock();
        if pipe.is_gone {
            return Poll::Ready(());
        }
        pipe.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for TunnelOutlet {
    fn drop(&mut self) {
        let mut pipe = self.0.lock();
        pipe.is_gone = true;
        pipe.wake();
    }
}

impl Drop for Http2Tunnel {
    fn drop(&mut self) {
        let mut pipe = self.pipe.lock();
        pipe.is_gone = true;
        pipe.wake();
    }
}

impl AsyncRead for Http2Tunnel {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.came.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                // Trailers mean nothing to a tunnel.
                Some(Ok(frame)) => this.came = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, error)));
                }
                None => return Poll::Ready(Ok(())),
            }
        }
        buffer.put_slice(&this.came.split_to(this.came.len().min(buffer.remaining())));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http2Tunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.pipe.lock();
        if pipe.is_gone || pipe.is_shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(MOST.saturating_sub(pipe.waiting.len()));
        if count == 0 && !bytes.is_empty() {
            pipe.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        pipe.waiting.extend_from_slice(&bytes[..count]);
        pipe.wake();
        Poll::Ready(Ok(count))
    }

    /// The connection takes them by itself.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.pipe.lock();
        pipe.is_shut = true;
        pipe.wake();
        Poll::Ready(Ok(()))
    }
}
