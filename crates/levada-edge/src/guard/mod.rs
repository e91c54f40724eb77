//! What stands between a client's socket and the HTTP/1.1 implementation.
//!
//! ```text
//!   socket or TLS stream  <--->  Guarded  <--->  HTTP implementation  <--->  service
//!                                   |                                           |
//!                                   +----------------- Ledger ------------------+
//! ```
//!
//! hyper parses leniently and leaves deadlines to its user. The guard adds both without a second
//! parser's opinion ever being acted upon: it reads along ([`framing`]), lets pass what is right, and
//! ends the connection at the first byte that is not. It answers such a request itself, since the
//! implementation behind never learns of it. It also ends connections on which nothing moves.
//!
//! No deadline runs while the service works: a slow origin is not the client's fault.

mod fault;
mod framing;
mod held;
mod interim;
pub(crate) mod judgement;
mod ledger;
mod outlet;
mod syntax;
mod zero_copy;

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use self::{framing::AwaitedPart, held::HeldBytes};
pub(crate) use self::{
    framing::{HeadBounds, RequestFraming},
    interim::{Interim, Interims},
    ledger::{ActiveRequest, ConnectionEnd, Ledger},
    outlet::Outlet,
    syntax::names_host,
    zero_copy::{LONGEST, Segments, ZeroCopyChunk, ZeroCopyQueue},
};
use crate::{
    alarm::{Alarm, after},
    settings::Limits,
};

/// A client's connection whose requests are well-formed and come in time.
///
/// To be given to a server connection that speaks HTTP/1.1 only, keeps to the order of requests, does
/// not wait with flushing for more requests, and runs no deadline of its own. `S` is Unpin, as sockets
/// and TLS streams are.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    inner: S,
    framing: RequestFraming,
    held: HeldBytes,
    ledger: Arc<Ledger>,
    interims: Arc<Interims>,
    /// What is sent from files.
    zero_copy: Option<Arc<ZeroCopyQueue>>,
    /// Of an interim response, what is still to be written.
    interim: Vec<u8>,
    /// Where short pieces are put together.
    short: Vec<u8>,
    /// Whether nothing was written since everything was last flushed.
    clean: bool,
    timeouts: Timeouts,
    course: ReadState,
    alarm: Alarm,
    /// What the client owes, and until when.
    awaited: Option<(AwaitedPart, Instant)>,
    /// Until when the client has to take something; `None` while writes succeed.
    stalled: Option<Instant>,
    /// How many exchanges had finished when everything written was last flushed.
    settled: u64,
    /// Whether a part of a response has been written since.
    responding: bool,
    /// Whether a refusal waits for an earlier response to be complete.
    parked: bool,
    /// Whether the connection is only lent: it ends for whoever reads when what was asked is answered.
    lent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Timeouts {
    idle: Duration,
    head: Duration,
    body: Duration,
    send: Duration,
}

/// How a connection's reading side goes on.
#[derive(Debug)]
enum ReadState {
    /// Requests are read.
    Open,
    /// A request is refused, and its refusal waits for the responses before it.
    Refused { ending: ConnectionEnd, part: AwaitedPart },
    /// The refusal is written.
    Answering { response: Vec<u8>, written: usize },
    /// Nothing more will be written; the client is told so.
    Closing,
    /// What the client still sends is thrown away, so that it can read what it was told: a close with
    /// unread bytes becomes a reset, which may overtake the response (RFC 9112 section 9.6).
    Lingering { until: Instant, left: usize },
    /// Whoever reads gets this error, or the end of the stream.
    Ended(Option<io::ErrorKind>),
}

impl<S: AsyncRead + Outlet + Unpin> Guarded<S> {
    pub(crate) fn new(
        inner: S,
        ledger: Arc<Ledger>,
        interims: Arc<Interims>,
        zero_copy: Option<Arc<ZeroCopyQueue>>,
        limits: &Limits,
    ) -> Self {
        Self {
            inner,
            framing: RequestFraming::new(HeadBounds {
                head: limits.head_size,
                fields: limits.header_count,
            }),
            held: HeldBytes::default(),
            ledger,
            interims,
            zero_copy,
            interim: Vec::new(),
            short: Vec::new(),
            clean: true,
            timeouts: Timeouts {
                idle: limits.idle_timeout,
                head: limits.head_timeout,
                body: limits.body_timeout,
                send: limits.send_timeout,
            },
            course: ReadState::Open,
            alarm: Alarm::default(),
            awaited: None,
            stalled: None,
            settled: 0,
            responding: false,
            parked: false,
            lent: false,
        }
    }

    /// Lets whoever reads see an end as soon as every request that has come is answered, and nothing of
    /// another is there. The stream is left open then, and the ending is [`ConnectionEnd::Resting`].
    pub(crate) fn lent(self) -> Self {
        Self { lent: true, ..self }
    }

    /// Whether all that was asked is answered, of a connection that is lent.
    fn rests(&self) -> bool {
        self.lent
            && self.framing.heads() > 0
            && self.framing.part() == AwaitedPart::Between
            && self.is_quiet()
    }

    /// Reads from the client until something may pass, or the course changes.
    fn poll_open(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        loop {
            match Pin::new(&mut self.inner).poll_read(cx, buf) {
                Poll::Pending => {
                    ready!(self.poll_awaited(cx));
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Err(error)) => {
                    self.ledger.end(ConnectionEnd::Broken);
                    return Poll::Ready(Err(error));
                }
                Poll::Ready(Ok(())) if buf.filled().len() == start => {
                    self.ledger.end(
                        if self.is_quiet() && self.framing.part() == AwaitedPart::Between {
                            ConnectionEnd::Closed
                        } else {
                            ConnectionEnd::Cut
                        },
                    );
                    self.course = ReadState::Ended(None);
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(())) => self.judge(buf, start),
            }
            let may_pass = buf.filled().len() > start || self.held.read(buf);
            if may_pass || !matches!(self.course, ReadState::Open) {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Cuts what was read from `start` on back to what may pass, and holds what has to wait.
    fn judge(&mut self, buf: &mut ReadBuf<'_>, start: usize) {
        if self.ledger.is_tunnel() {
            return;
        }
        let fed = if self.held.is_empty() {
            let read = &buf.filled()[start..];
            let fed = self.framing.feed(read);
            if fed.fault.is_none() {
                self.held.push(&read[fed.accepted..]);
            }
            buf.set_filled(start + fed.accepted);
            fed
        } else {
            self.held.push(&buf.filled()[start..]);
            buf.set_filled(start);
            let fed = self.framing.feed(self.held.bytes());
            self.held.release(fed.accepted);
            if fed.fault.is_some() {
                self.held.forget_rest();
            }
            fed
        };
        if fed.accepted > 0 {
            self.awaited = None;
        }
        if let Some(fault) = fed.fault {
            self.refuse(ConnectionEnd::Violation(fault));
        }
    }

    /// Ready when the client has let a deadline pass; the course has changed then.
    fn poll_awaited(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let part = self.framing.part();
        if self.ledger.is_tunnel() || (part != AwaitedPart::Body && !self.is_quiet()) {
            self.awaited = None;
            return Poll::Pending;
        }
        let deadline = match self.awaited {
            Some((awaited, deadline)) if awaited == part => deadline,
            _ => after(self.timeouts.of(part)),
        };
        self.awaited = Some((part, deadline));
        ready!(self.alarm.poll(cx, deadline));
        match part {
            AwaitedPart::Between => {
                self.ledger.end(ConnectionEnd::IdleTimeout);
                self.course = ReadState::Ended(None);
            }
            AwaitedPart::Head => self.refuse(ConnectionEnd::HeadTimeout),
            AwaitedPart::Body => self.refuse(ConnectionEnd::BodyTimeout),
        }
        Poll::Ready(())
    }

    fn refuse(&mut self, ending: ConnectionEnd) {
        self.ledger.end(ending);
        self.course = ReadState::Refused { ending, part: self.framing.part() };
    }

    /// Whether every request that passed was answered, and every answer written.
    fn is_quiet(&self) -> bool {
        self.ledger.finished() >= self.framing.heads() && self.is_settled()
    }

    fn is_settled(&self) -> bool {
        self.settled == self.ledger.finished()
    }

    /// Whether responses to requests before the refused one are still to be written.
    fn waits_for_earlier(&self, part: AwaitedPart) -> bool {
        // A refused body belongs to the last head that passed, a refused head comes after it.
        let earlier = self.framing.heads() - u64::from(part == AwaitedPart::Body);
        self.ledger.finished() < earlier
            || (self.ledger.finished() == earlier && !self.is_settled())
    }

    /// Brings a connection that takes no more requests to its end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.course {
                ReadState::Open | ReadState::Ended(None) => return Poll::Ready(Ok(())),
                ReadState::Ended(Some(kind)) => return Poll::Ready(Err((*kind).into())),
                ReadState::Refused { ending, part } => {
                    let (ending, part) = (*ending, *part);
                    if self.waits_for_earlier(part) {
                        self.parked = true;
                        return Poll::Pending;
                    }
                    self.course = self.answer(ending, part);
                }
                ReadState::Answering { .. } => ready!(self.poll_answer(cx)),
                ReadState::Closing => ready!(self.poll_close(cx)),
                ReadState::Lingering { .. } => {
                    ready!(self.poll_linger(cx));
                    self.course = ReadState::Ended(Some(io::ErrorKind::InvalidData));
                }
            }
        }
    }

    /// A response that has begun, or is over, cannot be replaced by another; the connection just ends.
    fn answer(&self, ending: ConnectionEnd, part: AwaitedPart) -> ReadState {
        let is_unanswered = part != AwaitedPart::Body
            || (self.ledger.finished() < self.framing.heads() && !self.responding);
        match ending.response() {
            Some(response) if is_unanswered => ReadState::Answering { response, written: 0 },
            _ => ReadState::Ended(Some(io::ErrorKind::InvalidData)),
        }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ReadState::Answering { response, written } = &mut self.course else {
            return Poll::Ready(());
        };
        let progress = if *written < response.len() {
            Pin::new(&mut self.inner).poll_write(cx, &response[*written..])
        } else {
            Pin::new(&mut self.inner).poll_flush(cx).map_ok(|()| 0)
        };
        match progress {
            Poll::Ready(Ok(0)) => self.course = ReadState::Closing,
            Poll::Ready(Ok(count)) => *written += count,
            Poll::Ready(Err(_)) => self.course = ReadState::Ended(Some(io::ErrorKind::InvalidData)),
            Poll::Pending => return self.poll_stalled(cx),
        }
        self.stalled = None;
        Poll::Ready(())
    }

    /// Ends this side, then lingers.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.course = match Pin::new(&mut self.inner).poll_shutdown(cx) {
            Poll::Ready(Ok(())) => {
                ReadState::Lingering { until: after(LINGER), left: LINGER_BYTES }
            }
            Poll::Ready(Err(_)) => ReadState::Ended(Some(io::ErrorKind::InvalidData)),
            Poll::Pending => return self.poll_stalled(cx),
        };
        Poll::Ready(())
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4096];
        while let ReadState::Lingering { until, left } = &mut self.course {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buf) {
                Poll::Pending => return self.alarm.poll(cx, *until),
                Poll::Ready(Ok(())) if !buf.filled().is_empty() && *left > 0 => {
                    *left = left.saturating_sub(buf.filled().len());
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    }

    /// Ready when the client has not taken anything in time; the course has changed then.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let send = self.timeouts.send;
        let deadline = *self.stalled.get_or_insert_with(|| after(send));
        ready!(self.alarm.poll(cx, deadline));
        self.ledger.end(ConnectionEnd::SendTimeout);
        self.course = ReadState::Ended(Some(io::ErrorKind::TimedOut));
        Poll::Ready(())
    }

    /// Whether responses may be written; not once the guard has had the last word.
    fn check_writable(&self) -> io::Result<()> {
        match self.course {
            ReadState::Open | ReadState::Refused { .. } | ReadState::Ended(None) => Ok(()),
            ReadState::Ended(Some(kind)) => Err(kind.into()),
            ReadState::Answering { .. } | ReadState::Closing | ReadState::Lingering { .. } => {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// Keeps account of an attempt to write; `is_interim` tells whether it was a 1xx response.
    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<usize>>,
        is_interim: bool,
    ) -> Poll<io::Result<usize>> {
        match progress {
            Poll::Ready(Ok(_)) => {
                self.stalled = None;
                self.responding |= !is_interim;
            }
            Poll::Ready(Err(_)) => self.ledger.end(ConnectionEnd::Broken),
            Poll::Pending => {
                return self.poll_stalled(cx).map(|()| Err(io::ErrorKind::TimedOut.into()));
            }
        }
        progress
    }

    /// Sends of the parcel that comes next what `stand_in` stands for, after what goes before it.
    fn poll_zero_copy(
        &mut self,
        cx: &mut Context<'_>,
        before: &[u8],
        stand_in: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(zero_copy) = &self.zero_copy else {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        };
        let (chunk, at) = zero_copy.due(stand_in)?;
        let written = match &chunk {
            ZeroCopyChunk::Memory(body) => {
                let mut slices = [IoSlice::new(before); AT_ONCE];
                let mut count = usize::from(!before.is_empty());
                for part in
                    zero_copy::parts(&body.segments, at, stand_in.len()).take(AT_ONCE - count)
                {
                    slices[count] = IoSlice::new(part);
                    count += 1;
                }
                Pin::new(&mut self.inner).poll_write_vectored(cx, &slices[..count])
            }
            ZeroCopyChunk::File(_) | ZeroCopyChunk::Pipe(_) if !before.is_empty() => {
                outlet::poll_write_ahead(self.inner.socket()?, cx, before)
            }
            ZeroCopyChunk::File(stretch) => {
                let (file, at) = (stretch.file(), stretch.start() + at);
                let socket = self.inner.socket()?;
                let sent = ready!(outlet::poll_send_file(socket, cx, file, at, stand_in.len()))?;
                if sent == 0 {
                    tracing::warn!("a record of the disk cache became shorter while it was sent");
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Ok(sent))
            }
            ZeroCopyChunk::Pipe(pipe) => {
                let socket = self.inner.socket()?;
                let sent = ready!(outlet::poll_drain(socket, cx, pipe, stand_in.len()))?;
                if pipe.held() == 0 {
                    // The body waits for that, in this very task.
                    cx.waker().wake_by_ref();
                }
                Poll::Ready(Ok(sent))
            }
        };
        let written = ready!(written)?;
        zero_copy.sent(written.saturating_sub(before.len()));
        Poll::Ready(Ok(written))
    }

    /// Writes the interim responses that wait, if this is the place for them: nothing of an earlier
    /// response may still be on its way.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.interims.is_waiting() {
            let bytes = self.interims.take();
            if self.clean {
                self.interim.extend(bytes);
            }
        }
        while !self.interim.is_empty() {
            let progress = Pin::new(&mut self.inner).poll_write(cx, &self.interim);
            match ready!(self.after_write(cx, progress, true))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => drop(self.interim.drain(..written)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the connection, if the service wants to leave in the middle of a response, now that everything
    /// before it is out.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ledger.leaves() {
            return Poll::Ready(Ok(()));
        }
        if matches!(self.course, ReadState::Open) {
            self.ledger.end(ConnectionEnd::Moved);
            self.course = ReadState::Closing;
        }
        self.poll_end(cx)
    }

    /// Everything written has been taken: what was finished before is settled now.
    ///
    /// hyper does not come back to read by itself when its last read had to wait, so what depends on
    /// the end of a response is set going here.
    fn settle(&mut self, cx: &mut Context<'_>) {
        self.stalled = None;
        let finished = self.ledger.finished();
        if self.settled == finished {
            return;
        }
        self.settled = finished;
        self.responding = false;
        let goes_on = match self.course {
            ReadState::Open if self.rests() => true,
            ReadState::Open => {
                self.framing.part() != AwaitedPart::Body && self.poll_awaited(cx).is_ready()
            }
            ReadState::Refused { part, .. } => {
                !self.waits_for_earlier(part) && std::mem::take(&mut self.parked)
            }
            _ => false,
        };
        if goes_on {
            cx.waker().wake_by_ref();
        }
    }
}

impl<S: AsyncRead + Outlet + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ledger.is_tunnel() {
            this.held.release_all();
        }
        if buf.remaining() == 0 || this.held.read(buf) {
            return Poll::Ready(Ok(()));
        }
        let start = buf.filled().len();
        if matches!(this.course, ReadState::Open) && this.rests() {
            this.ledger.end(ConnectionEnd::Resting);
            this.course = ReadState::Ended(None);
        }
        if matches!(this.course, ReadState::Open) {
            ready!(this.poll_open(cx, buf))?;
        }
        // Good bytes pass before it is told what came after them.
        if buf.filled().len() > start { Poll::Ready(Ok(())) } else { this.poll_end(cx) }
    }
}

/// Pieces of memory that are written at once: a parcel's segments, and what goes before them.
const AT_ONCE: usize = 20;

/// What is written in pieces is copied together up to this length: the system call for one piece costs
/// less than the copy saves.
const SHORT: usize = 4 << 10;

/// Whether pieces are few bytes together.
fn is_short(slices: &[IoSlice<'_>]) -> bool {
    slices.len() > 1 && slices.iter().map(|slice| slice.len()).sum::<usize>() <= SHORT
}

impl<S: AsyncRead + Outlet + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check_writable()?;
        ready!(this.poll_interim(cx))?;
        this.clean = false;
        let progress = if zero_copy::stands_in(bytes) {
            this.poll_zero_copy(cx, &[], bytes)
        } else {
            Pin::new(&mut this.inner).poll_write(cx, bytes)
        };
        this.after_write(cx, progress, bytes == CONTINUE)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check_writable()?;
        ready!(this.poll_interim(cx))?;
        this.clean = false;
        let inner = Pin::new(&mut this.inner);
        let chunk = slices.iter().position(|slice| zero_copy::stands_in(slice));
        let progress = match chunk {
            Some(0) => this.poll_zero_copy(cx, &[], &slices[0]),
            Some(1) => this.poll_zero_copy(cx, &slices[0], &slices[1]),
            Some(first) => inner.poll_write_vectored(cx, &slices[..first]),
            None if is_short(slices) => {
                this.short.clear();
                slices.iter().for_each(|slice| this.short.extend_from_slice(slice));
                inner.poll_write(cx, &this.short)
            }
            None => inner.poll_write_vectored(cx, slices),
        };
        let is_interim = matches!(slices, [only] if **only == *CONTINUE);
        this.after_write(cx, progress, is_interim)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.check_writable().is_ok() {
            this.interims.notify(cx.waker());
            ready!(this.poll_interim(cx))?;
        }
        match Pin::new(&mut this.inner).poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                this.clean = true;
                this.settle(cx);
                this.poll_leave(cx)
            }
            Poll::Ready(Err(error)) => {
                this.ledger.end(ConnectionEnd::Broken);
                Poll::Ready(Err(error))
            }
            Poll::Pending => this.poll_stalled(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Also lingers when a request's body is left unread, as after an early refusal by the service.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.course, ReadState::Open) && this.framing.part() == AwaitedPart::Body {
            this.course = ReadState::Closing;
        }
        match this.course {
            ReadState::Closing | ReadState::Lingering { .. } => {
                let _ = ready!(this.poll_end(cx));
                Poll::Ready(Ok(()))
            }
            _ if this.ledger.ending() == ConnectionEnd::Resting => Poll::Ready(Ok(())),
            _ => match Pin::new(&mut this.inner).poll_shutdown(cx) {
                Poll::Pending => {
                    this.poll_stalled(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
                }
                done => done,
            },
        }
    }
}

impl Timeouts {
    fn of(&self, part: AwaitedPart) -> Duration {
        match part {
            AwaitedPart::Between => self.idle,
            AwaitedPart::Head => self.head,
            AwaitedPart::Body => self.body,
        }
    }
}

/// What hyper writes to ask for a body (RFC 9110 section 15.2.1): a response that is not the last one.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// How long a client may take to notice that it was refused.
const LINGER: Duration = Duration::from_secs(2);
/// How much it may send meanwhile.
const LINGER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests;
