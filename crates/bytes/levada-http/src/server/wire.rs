//! A client's connection as bytes: reads, writes in turns with a deadline, and the ways in which it ends.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf},
    time::Instant,
};

use super::{
    ConnectionEnd, ConnectionLimits, Outlet, outlet,
    send_queue::{AT_ONCE, SendQueue},
    turn::WriteTurn,
};
use crate::{
    deadline::{DeadlineTimer, after},
    patience::SendStall,
    zero_copy::{self, PipedBytes, ZeroCopyChunk, ZeroCopyQueue},
};

/// The stream of a connection, and its bytes on both ways.
pub(super) struct Wire<S> {
    pub(super) stream: S,
    pub(super) limits: ConnectionLimits,
    /// Bytes that have come and were not taken.
    pub(super) read: BytesMut,
    /// Room for the next read.
    room: usize,
    /// Bytes that wait to be written.
    pub(super) queue: SendQueue,
    /// The chunks that the system sends by itself.
    zero_copy: Option<Arc<ZeroCopyQueue>>,
    /// The bytes that may be written before it is the turn of other connections.
    turn: WriteTurn,
    /// Whether nothing was written since everything was last flushed.
    clean: bool,
    /// The wait until the client takes something; `None` while writes succeed.
    stalled: Option<SendStall>,
    pub(super) timer: DeadlineTimer,
}

/// A connection takes no more requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) end: ConnectionEnd,
    pub(super) farewell: Farewell,
}

/// The way in which a connection ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Farewell {
    /// Nothing more can be said, or it would be taken for something else.
    None,
    /// This side is shut down.
    Close,
    /// This side is shut down, and the client's further bytes are dropped for a while, so that it can read the
    /// response: a close with unread bytes becomes a reset, which may overtake the response (RFC 9112 section 9.6).
    Linger,
    /// A response tells the end, if it has one; then as above.
    Refuse,
    /// The system resets the connection, when the client has acknowledged what was sent or does not do so for a while.
    Reset,
}

impl Ended {
    pub(super) fn by(end: ConnectionEnd, farewell: Farewell) -> Self {
        Self { end, farewell }
    }
}

impl<S: AsyncRead + Outlet + Unpin> Wire<S> {
    pub(super) fn new(
        stream: S,
        limits: ConnectionLimits,
        zero_copy: Option<Arc<ZeroCopyQueue>>,
    ) -> Self {
        Self {
            stream,
            limits,
            read: BytesMut::new(),
            room: ROOM,
            queue: SendQueue::default(),
            zero_copy,
            turn: WriteTurn::default(),
            clean: true,
            stalled: None,
            timer: DeadlineTimer::default(),
        }
    }

    /// Reads the bytes that have come; 0 at the end. There is always room for half of a read, so that small pieces
    /// share their memory.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Ended>> {
        if self.read.capacity() - self.read.len() < self.room / 2 {
            self.read.reserve(self.room);
        }
        let spare = self.read.capacity() - self.read.len();
        let count = match ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx)) {
            Ok(count) => count,
            Err(_) => return Poll::Ready(Err(BROKEN)),
        };
        if count >= spare {
            self.room = (2 * self.room).min(LARGE_ROOM);
        } else if count < self.room / 4 {
            self.room = (self.room / 2).max(ROOM);
        }
        Poll::Ready(Ok(count))
    }

    /// Writes all bytes that wait.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        while !self.queue.is_empty() {
            ready!(self.turn.poll(cx));
            self.clean = false;
            let progress = self.poll_write_some(cx);
            self.turn.wrote(&progress);
            match progress {
                Poll::Ready(Ok(1..)) => self.stalled = None,
                Poll::Ready(_) => return Poll::Ready(Err(BROKEN)),
                Poll::Pending => return self.poll_stalled(cx),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Has everything leave that was written.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        if self.clean {
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                (self.clean, self.stalled) = (true, None);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(BROKEN)),
            Poll::Pending => self.poll_stalled(cx),
        }
    }

    /// Ready with the end when the client has taken too little in time.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let patience = self.limits.send;
        let begin = || SendStall::begin(&patience, Instant::now());
        let stall = self.stalled.get_or_insert_with(begin);
        loop {
            ready!(self.timer.poll(cx, stall.next_look(&patience)));
            if !stall.goes_on(&patience, Instant::now(), self.stream.acknowledged()) {
                return Poll::Ready(Err(Ended::by(ConnectionEnd::SendTimeout, Farewell::Reset)));
            }
        }
    }

    /// Writes some of the bytes that wait, by one system call.
    fn poll_write_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); AT_ONCE];
        let (mut count, mut left, mut stand_in) = (0, self.turn.left(), None);
        for part in self.queue.parts() {
            if zero_copy::stands_in(part) {
                stand_in = Some(part);
                break;
            }
            if count == AT_ONCE || left == 0 {
                break;
            }
            let part = &part[..part.len().min(left)];
            left -= part.len();
            slices[count] = IoSlice::new(part);
            count += 1;
        }
        let mut stream = Pin::new(&mut self.stream);
        let written = match (stand_in, count) {
            (Some(stand_in), 0 | 1) => {
                let Some(zero_copy) = &self.zero_copy else {
                    return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
                };
                let sending = Sending {
                    stream: &mut self.stream,
                    zero_copy,
                    turn: &self.turn,
                    is_last: self.queue.is_last,
                };
                let before = if count == 0 { &[][..] } else { &slices[0] };
                ready!(sending.poll(cx, before, stand_in))?
            }
            // The end of the connection follows at once, in the same packet.
            (None, 1) if self.queue.is_last && self.queue.is_whole && stream.socket().is_ok() => {
                ready!(outlet::poll_write_ahead(&mut self.stream, cx, &slices[0]))?
            }
            (_, 1) => ready!(stream.poll_write(cx, &slices[0]))?,
            _ => ready!(stream.poll_write_vectored(cx, &slices[..count]))?,
        };
        self.queue.sent(written);
        Poll::Ready(Ok(written))
    }

    /// Ends the connection. Returns why it has ended.
    pub(super) async fn say_farewell(&mut self, ended: Ended) -> ConnectionEnd {
        match ended.farewell {
            Farewell::None => {}
            Farewell::Close => drop(self.shut_down().await),
            // Boxed: its buffer would be a part of every connection.
            Farewell::Linger => Box::pin(self.linger()).await,
            Farewell::Refuse => {
                if let Some(response) = ended.end.response() {
                    self.queue.write(|text| text.extend_from_slice(&response));
                    if self.send_all().await.is_ok() {
                        Box::pin(self.linger()).await;
                    }
                }
            }
            Farewell::Reset => self.reset().await,
        }
        ended.end
    }

    async fn send_all(&mut self) -> Result<(), Ended> {
        poll_fn(|cx| self.poll_write(cx)).await?;
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    async fn shut_down(&mut self) -> io::Result<()> {
        tokio::time::timeout(self.limits.send.time, self.stream.shutdown()).await?
    }

    async fn linger(&mut self) {
        if self.shut_down().await.is_err() {
            return;
        }
        let mut left = LINGER_BYTES;
        let drain = async {
            let mut scratch = [0; 4096];
            let mut buffer = ReadBuf::new(&mut scratch);
            while left > 0 {
                buffer.clear();
                let read =
                    poll_fn(|cx| Pin::new(&mut self.stream).poll_read(cx, &mut buffer)).await;
                if read.is_err() || buffer.filled().is_empty() {
                    break;
                }
                left = left.saturating_sub(buffer.filled().len());
            }
        };
        let _ = tokio::time::timeout(LINGER_TIMEOUT, drain).await;
    }

    /// A reset discards the bytes that the client has not acknowledged, so this waits for them for a while.
    async fn reset(&mut self) {
        let until = after(LINGER_TIMEOUT);
        while self.stream.reset_on_close() && Instant::now() < until {
            tokio::time::sleep_until(until.min(after(ACKNOWLEDGE_INTERVAL))).await;
        }
    }
}

/// A chunk that the system sends.
struct Sending<'a, S> {
    stream: &'a mut S,
    zero_copy: &'a ZeroCopyQueue,
    turn: &'a WriteTurn,
    is_last: bool,
}

impl<S: Outlet + Unpin> Sending<'_, S> {
    /// Sends `before`, and then the part of the next chunk that `stand_in` stands for.
    fn poll(self, cx: &mut Context<'_>, before: &[u8], stand_in: &[u8]) -> Poll<io::Result<usize>> {
        let (chunk, at) = self.zero_copy.due(stand_in)?;
        let length = stand_in.len().min(self.turn.left());
        let written = match &chunk {
            ZeroCopyChunk::Memory(body) => {
                let mut slices = [IoSlice::new(before); AT_ONCE];
                let mut count = usize::from(!before.is_empty());
                for part in zero_copy::parts(&body.segments, at, length).take(AT_ONCE - count) {
                    slices[count] = IoSlice::new(part);
                    count += 1;
                }
                Pin::new(&mut *self.stream).poll_write_vectored(cx, &slices[..count])
            }
            ZeroCopyChunk::File(_) | ZeroCopyChunk::Pipe(_) if !before.is_empty() => {
                outlet::poll_write_ahead(self.stream, cx, before)
            }
            ZeroCopyChunk::File(range) => {
                let (file, at) = (range.file(), range.start() + at);
                let sent = ready!(outlet::poll_send_file(self.stream, cx, file, at, length))?;
                if sent == 0 {
                    tracing::warn!("a record of the disk cache became shorter while it was sent");
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Ok(sent))
            }
            ZeroCopyChunk::Pipe(PipedBytes { pipe, is_last }) => {
                let length = stand_in.len().min(self.turn.left_piped());
                if *is_last && length == stand_in.len() && self.is_last {
                    self.stream.hold_rest();
                }
                outlet::poll_drain(self.stream, cx, pipe, length)
            }
        };
        let written = ready!(written)?;
        self.zero_copy.sent(written.saturating_sub(before.len()));
        Poll::Ready(Ok(written))
    }
}

/// Reading or writing has failed.
const BROKEN: Ended = Ended { end: ConnectionEnd::Broken, farewell: Farewell::None };

/// Bytes that are read at once, at first.
const ROOM: usize = 8 << 10;
/// The same at most, after enough reads have filled all their room.
const LARGE_ROOM: usize = 256 << 10;
/// The interval of checks whether the bytes before a reset are acknowledged: a round trip of most clients.
const ACKNOWLEDGE_INTERVAL: Duration = Duration::from_millis(10);
/// How long a client may take to notice that it was refused: a round trip and a lost packet of most paths.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How many bytes it may send meanwhile.
const LINGER_BYTES: usize = 1 << 20;
