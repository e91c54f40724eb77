//! The stream of an extended CONNECT as a tunnel has it (RFC 9220 Sec. 3): the bytes in its DATA frames.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use h3::server::RequestStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::{RecvSide, RequestLine, data_frame};

/// See the module.
pub struct TunnelStream {
    recv: RequestStream<RecvSide, Bytes>,
    line: Arc<RequestLine>,
    /// Bytes that have come and were not read.
    came: Bytes,
    /// The frame that is being written.
    frame: [Bytes; 2],
    /// How many parts of it the client has taken.
    taken: usize,
}

impl TunnelStream {
    pub(crate) fn new(recv: RequestStream<RecvSide, Bytes>, line: Arc<RequestLine>) -> Self {
        Self { recv, line, came: Bytes::new(), frame: Default::default(), taken: 2 }
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.came.is_empty() {
            let data = ready!(this.recv.poll_recv_data(cx)).map_err(io::Error::other)?;
            let Some(mut data) = data else { return Poll::Ready(Ok(())) };
            this.came = data.copy_to_bytes(data.remaining());
        }
        buffer.put_slice(&this.came.split_to(this.came.len().min(buffer.remaining())));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    /// Takes all of the bytes as one frame, when the client has taken the one before.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.as_mut().poll_flush(cx))?;
        if !bytes.is_empty() {
            self.frame = data_frame(Bytes::copy_from_slice(bytes));
            self.taken = 0;
            // The rest goes out before the next frame, or by a flush.
            if let Poll::Ready(Err(error)) = self.as_mut().poll_flush(cx) {
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while let frame @ [_, ..] = &mut this.frame[this.taken..] {
            this.taken += ready!(this.line.poll_write(cx, frame))?.chunks;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        self.line.finish();
        Poll::Ready(Ok(()))
    }
}
