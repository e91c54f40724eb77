//! A client's connection with the bytes that were already read from it. It may still be silent.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use levada_http::Outlet;
use levada_net::{client::ClientSocket, handoff};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::Notify,
    time::Instant,
};

use crate::handoff::{
    channel::{FrameSender, LEASE},
    ending::FrontEndEnding,
    frame::Frame,
};

/// The stream that is served. Dropping it puts the stream into its `StreamReturn`, if it has one.
pub struct ArrivedConnection {
    /// Always `Some` until the drop.
    stream: Option<ClientSocket>,
    bytes: Vec<u8>,
    read: usize,
    silenced: Option<Arc<SilencedSocket>>,
    /// Whether our side was closed.
    is_shut: bool,
    back: StreamReturn,
}

/// The place that the stream is returned to when it was served.
#[derive(Clone, Default)]
pub(crate) struct StreamReturn(Arc<Mutex<Option<(ClientSocket, bool)>>>);

impl StreamReturn {
    /// The stream, and whether our side of it was closed.
    pub(crate) fn take(&self) -> Option<(ClientSocket, bool)> {
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
        let arrived = Self {
            stream: Some(stream),
            bytes,
            read: 0,
            silenced,
            is_shut: false,
            back: back.clone(),
        };
        (arrived, back)
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

    /// The same, with the word to the front-end in one packet with those of other connections.
    fn poll_speaking(&mut self, cx: &Context<'_>) -> Poll<io::Result<Pin<&mut ClientSocket>>> {
        if let (Some(silenced), Some(stream)) = (&self.silenced, &self.stream) {
            ready!(silenced.poll_speak(stream.stream(), cx))?;
        }
        Poll::Ready(self.stream().map(Pin::new))
    }
}

impl Drop for ArrivedConnection {
    fn drop(&mut self) {
        let is_shut = self.is_shut;
        *self.back.0.lock() = self.stream.take().map(|stream| (stream, is_shut));
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
    front_end: Arc<FrontEndEnding>,
    /// Whether the front-end knows that it is answered, or will know with the next packet.
    is_announced: AtomicBool,
    has_left: Arc<AtomicBool>,
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
    pub(crate) fn new(
        id: u32,
        sender: Arc<FrameSender>,
        front_end: Arc<FrontEndEnding>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            since: Instant::now(),
            sender,
            front_end,
            is_announced: AtomicBool::default(),
            has_left: Arc::default(),
            spoke: AtomicBool::default(),
            refused: AtomicBool::default(),
            refusing: Notify::new(),
        })
    }

    /// Tells the front-end first, so that it knows even if this process dies afterwards. Does not
    /// answer when the front-end has not been heard for so long that it may take the connection back.
    fn speak(&self, stream: &TcpStream) -> io::Result<()> {
        if self.spoke() {
            return Ok(());
        }
        match self.is_announced.load(Relaxed) {
            true => self.sender.flush(),
            false => self.announce(|answers| self.sender.send(answers))?,
        }
        if self.sender.is_closed() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.activate(stream)
    }

    /// The same, with the word to the front-end in one packet with those of other connections.
    fn poll_speak(&self, stream: &TcpStream, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if self.spoke() {
            return Poll::Ready(Ok(()));
        }
        if !self.is_announced.load(Relaxed) {
            let (sender, has_left) = (&self.sender, &self.has_left);
            self.announce(|answers| sender.send_together(answers, has_left, cx))?;
            return Poll::Pending;
        }
        ready!(self.sender.poll_left(&self.has_left, cx));
        Poll::Ready(self.activate(stream))
    }

    fn announce(&self, send: impl FnOnce(&Frame) -> bool) -> io::Result<()> {
        let heard = self.since.elapsed() < LEASE || self.sender.was_heard(LEASE);
        if !heard {
            self.refuse();
        }
        if self.refused.load(Relaxed) || !send(&Frame::Answers(self.id)) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.is_announced.store(true, Relaxed);
        Ok(())
    }

    fn activate(&self, stream: &TcpStream) -> io::Result<()> {
        handoff::activate(stream)?;
        self.spoke.store(true, Relaxed);
        Ok(())
    }

    /// Whether the front-end is about to end, so that the connection must end with its next response.
    pub fn ends_soon(&self) -> bool {
        self.front_end.has_begun()
    }

    pub(crate) fn spoke(&self) -> bool {
        self.spoke.load(Relaxed)
    }

    /// Refuses the request, so that the front-end can use another server. Returns false when it is too
    /// late.
    pub fn refuse(&self) -> bool {
        if self.is_announced.load(Relaxed) {
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
        ready!(this.poll_speaking(cx))?.poll_read(cx, buf)
    }
}

impl AsyncWrite for ArrivedConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_speaking(cx))?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_speaking(cx))?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().stream()?).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = ready!(ready!(this.poll_speaking(cx))?.poll_shutdown(cx));
        this.is_shut |= done.is_ok();
        Poll::Ready(done)
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
