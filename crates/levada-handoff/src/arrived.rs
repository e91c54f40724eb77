//! A client's connection with the bytes that were already read from it. It may still be silent.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use levada_http1::Outlet;
use levada_net::{client::ClientSocket, handoff};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::Notify,
    time::Instant,
};

use crate::{
    channel::{FrameSender, LEASE},
    frame::Frame,
};

/// The stream that is served. Dropping it puts the stream into its `StreamReturn`, if it has one.
pub struct ArrivedConnection {
    /// Always `Some` until the drop.
    stream: Option<ClientSocket>,
    bytes: Vec<u8>,
    read: usize,
    silenced: Option<Arc<SilencedSocket>>,
    back: StreamReturn,
}

/// The place that the stream is returned to when it was served.
#[derive(Clone, Default)]
pub(crate) struct StreamReturn(Arc<Mutex<Option<ClientSocket>>>);

impl StreamReturn {
    pub(crate) fn take(&self) -> Option<ClientSocket> {
        self.0.lock().take()
    }
}

impl ArrivedConnection {
    pub(crate) fn new(
        stream: ClientSocket,
        bytes: Vec<u8>,
        silenced: Option<Arc<SilencedSocket>>,
    ) -> (Self, StreamReturn) {
        let back = StreamReturn::default();
        (Self { stream: Some(stream), bytes, read: 0, silenced, back: back.clone() }, back)
    }

    fn stream(&mut self) -> io::Result<&mut ClientSocket> {
        self.stream.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The stream, after it stops being silent.
    fn speaking(&mut self) -> io::Result<Pin<&mut ClientSocket>> {
        if let (Some(silenced), Some(stream)) = (&self.silenced, &self.stream) {
            silenced.speak(stream.stream())?;
        }
        self.stream().map(Pin::new)
    }
}

impl Drop for ArrivedConnection {
    fn drop(&mut self) {
        *self.back.0.lock() = self.stream.take();
    }
}

/// A connection that was taken from a front-end and that stays out of the network until there is an
/// answer. Until then the front-end can take it back, and if this process dies, the client notices
/// nothing.
pub struct SilencedSocket {
    id: u32,
    /// When the connection arrived.
    since: Instant,
    sender: Arc<FrameSender>,
    spoke: AtomicBool,
    refused: AtomicBool,
    refusing: Notify,
}

impl std::fmt::Debug for SilencedSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SilencedSocket").field("id", &self.id).field("spoke", &self.spoke).finish()
    }
}

impl SilencedSocket {
    pub(crate) fn new(id: u32, sender: Arc<FrameSender>) -> Arc<Self> {
        let (spoke, refused) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self {
            id,
            since: Instant::now(),
            sender,
            spoke,
            refused,
            refusing: Notify::new(),
        })
    }

    /// Tells the front-end first, so that it knows even if this process dies afterwards. Does not
    /// answer when the front-end has not been heard for so long that it may take the connection back.
    fn speak(&self, stream: &TcpStream) -> io::Result<()> {
        if self.spoke() {
            return Ok(());
        }
        let heard = self.since.elapsed() < LEASE || self.sender.was_heard(LEASE);
        if !heard {
            self.refuse();
        }
        if self.refused.load(Relaxed) || !self.sender.send(&Frame::Answers(self.id)) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        handoff::activate(stream)?;
        self.spoke.store(true, Relaxed);
        Ok(())
    }

    pub(crate) fn spoke(&self) -> bool {
        self.spoke.load(Relaxed)
    }

    /// Refuses the request, so that the front-end can use another server. Returns false when it is too
    /// late.
    pub fn refuse(&self) -> bool {
        if self.spoke() {
            return false;
        }
        self.refused.store(true, Relaxed);
        self.refusing.notify_one();
        true
    }

    /// Returns when the connection must go back, or when the front-end is gone and may have taken it
    /// back.
    pub(crate) async fn is_lost(&self) {
        tokio::select! {
            () = self.refusing.notified() => {}
            () = self.sender.over() => {}
        }
        if self.spoke() {
            std::future::pending().await
        }
    }
}

impl AsyncRead for ArrivedConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let left = &this.bytes[this.read..];
        if !left.is_empty() {
            let count = left.len().min(buf.remaining());
            buf.put_slice(&left[..count]);
            this.read += count;
            if this.read == this.bytes.len() {
                (this.bytes, this.read) = (Vec::new(), 0);
            }
            return Poll::Ready(Ok(()));
        }
        this.speaking()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for ArrivedConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().speaking()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().speaking()?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().stream()?).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().speaking()?.poll_shutdown(cx)
    }
}

impl Outlet for ArrivedConnection {
    fn socket(&mut self) -> io::Result<&TcpStream> {
        Ok(self.speaking()?.into_ref().get_ref().stream())
    }

    fn wrote(&mut self) {
        if let Some(stream) = &self.stream {
            stream.wrote();
        }
    }
}
