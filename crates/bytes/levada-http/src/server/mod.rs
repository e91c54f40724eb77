//! The guard between a client's socket and hyper.
//!
//! ```text
//!   socket or TLS stream  <--->  Guarded  <--->  hyper  <--->  service
//!                                   |                             |
//!                                   +---------- Ledger -----------+
//! ```
//!
//! hyper parses leniently and leaves deadlines to its user. The guard adds strictness and deadlines. It
//! scans the requests that pass ([`framing`]), and ends the connection at the first byte with a fault.
//! hyper never sees that request, so the guard answers it. Nothing else is decided by the scanner. The
//! guard also ends connections on which nothing moves.
//!
//! No deadline runs while the service works: a slow origin is not the client's fault.

mod encoder;
mod facts;
mod fault;
mod framing;
mod head;
mod held;
mod http2_heads;
mod incoming;
mod interim;
pub(crate) mod judgement;
mod ledger;
mod outlet;
mod parsed;
mod parser;
mod request_body;
mod rest;
mod send_queue;
mod serve;
mod turn;
mod watchdog;
mod wire;

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

pub(crate) use self::framing::OVERHEAD;
pub use self::{
    facts::names_websocket,
    fault::Fault,
    framing::{HeadBounds, RequestFraming, ScannedBytes},
    head::names_host,
    http2_heads::TimedHeads,
    incoming::{IncomingBody, IncomingBodyError},
    interim::{Interim, InterimWay, Interims},
    ledger::{ActiveRequest, ConnectionEnd, Ledger},
    outlet::Outlet,
    parsed::check_parsed,
    rest::{QUIET, Served, rest},
    serve::{Http1Conduct, Http1Service, Pause, serve_http1},
    watchdog::{EndReason, Watchdog, WatchedBody, WatchedStream},
};
use self::{framing::AwaitedPart, held::HeldBytes, turn::WriteTurn};
use crate::{
    deadline::{DeadlineTimer, after},
    patience::{Patience, SendStall},
    zero_copy::{self, PipedBytes, ZeroCopyChunk, ZeroCopyQueue},
};

/// A client's connection whose requests are well-formed and come in time.
///
/// Give it to a server connection that speaks HTTP/1.1 only, answers in the order of requests, flushes
/// each response at once, and runs no deadline of its own. `S` is Unpin, as sockets and TLS streams are.
#[derive(Debug)]
pub struct Guarded<S> {
    inner: S,
    framing: RequestFraming,
    held: HeldBytes,
    ledger: Arc<Ledger>,
    interims: Arc<Interims>,
    /// The chunks that the system sends by itself.
    zero_copy: Option<Arc<ZeroCopyQueue>>,
    /// The part of an interim response that is still to be written.
    interim: Vec<u8>,
    /// Short pieces are copied together here.
    short: Vec<u8>,
    /// The bytes that may be written before it is the turn of other connections.
    turn: WriteTurn,
    /// Whether nothing was written since everything was last flushed.
    clean: bool,
    limits: ConnectionLimits,
    reading: ReadState,
    timer: DeadlineTimer,
    /// The part of a request that the client owes, and its deadline.
    awaited: Option<(AwaitedPart, Instant)>,
    /// The time that the client has left for the body of the request of this number.
    body_left: (u64, Duration),
    /// The wait until the client takes something; `None` while writes succeed.
    stalled: Option<SendStall>,
    /// How many requests had finished when everything written was last flushed.
    settled: u64,
    /// Whether a part of a response has been written since.
    responding: bool,
    /// Whether a refusal waits for an earlier response to be complete.
    parked: bool,
    /// When a response that has broken off is no longer waited for.
    breaking: Option<Instant>,
    /// Whether the connection is lent: the reader sees its end when every request is answered.
    lent: bool,
    /// The time without a request after which the stream can be had back.
    rests_after: Option<Duration>,
}

/// The limits of one client's connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The bounds of a request head.
    pub head: HeadBounds,
    /// The longest time without a request.
    pub idle_timeout: Duration,
    /// The longest time from the first byte of a head to its last.
    pub head_timeout: Duration,
    /// The wait for the pieces of a request body.
    pub body: Patience,
    /// The wait until the client takes bytes of a response.
    pub send: Patience,
}

/// The state of a connection's reading side.
#[derive(Debug)]
enum ReadState {
    /// Requests are read.
    Open,
    /// A request is refused. The refusal waits for the responses before it.
    Refused { ending: ConnectionEnd, part: AwaitedPart },
    /// The refusal is written.
    Answering { response: Vec<u8>, written: usize },
    /// Nothing more will be written. This side of the connection is shut down.
    Closing,
    /// The client's further bytes are dropped, so that it can read the response: a close with unread bytes
    /// becomes a reset, which may overtake the response (RFC 9112 section 9.6).
    Lingering { until: Instant, left: usize },
    /// The reader gets this error, or the end of the stream.
    Ended(Option<io::ErrorKind>),
}

impl<S: AsyncRead + Outlet + Unpin> Guarded<S> {
    /// Guards a connection.
    ///
    /// # Panics
    /// When chunks are to be sent over a connection that does not write vectors. hyper would then copy
    /// their stand-ins.
    pub fn new(
        inner: S,
        ledger: Arc<Ledger>,
        interims: Arc<Interims>,
        zero_copy: Option<Arc<ZeroCopyQueue>>,
        limits: ConnectionLimits,
    ) -> Self {
        let keeps_addresses = zero_copy.is_none() || inner.is_write_vectored();
        assert!(keeps_addresses, "zero copy over a connection that does not write vectors");
        Self {
            inner,
            framing: RequestFraming::new(limits.head),
            held: HeldBytes::default(),
            ledger,
            interims,
            zero_copy,
            interim: Vec::new(),
            short: Vec::new(),
            turn: WriteTurn::default(),
            clean: true,
            limits,
            reading: ReadState::Open,
            timer: DeadlineTimer::default(),
            awaited: None,
            body_left: (0, Duration::ZERO),
            stalled: None,
            settled: 0,
            responding: false,
            parked: false,
            breaking: None,
            lent: false,
            rests_after: None,
        }
    }

    /// Ends the stream for its reader as soon as every request that has come is answered, and no byte of
    /// another is there. The connection stays open, and its end is [`ConnectionEnd::Resting`].
    pub fn lent(self) -> Self {
        Self { lent: true, ..self }
    }

    /// Has the ledger tell when there was no request for the time `quiet`. The stream can be had back then
    /// ([`Self::into_resting`]). `idle_until` is the end of the idle time after an earlier rest.
    pub fn resting_after(self, quiet: Duration, idle_until: Option<Instant>) -> Self {
        Self { rests_after: Some(quiet), ..self }.idle_until(idle_until)
    }

    /// Ends the connection at this instant if no request comes before.
    pub fn idle_until(self, until: Option<Instant>) -> Self {
        Self { awaited: until.map(|until| (AwaitedPart::Between, until)), ..self }
    }

    /// The stream of a connection that rests, and the instant at which it ends if nothing comes.
    pub fn into_resting(self) -> (S, Instant) {
        let until = self.awaited.map(|(_, until)| until);
        (self.inner, until.unwrap_or_else(Instant::now))
    }

    /// The stream of a connection that has switched to another protocol, and the bytes of that protocol that
    /// have come already.
    pub fn into_switched(self) -> (S, Vec<u8>) {
        (self.inner, self.held.into_bytes())
    }

    /// Waits for the answer to a request for WebSocket, and goes on with the bytes behind it if that is an
    /// answer in HTTP. The end of the answer wakes the task ([`Self::settle`]).
    fn poll_switching(&mut self) -> Poll<()> {
        if self.ledger.switches() || !self.is_quiet() {
            return Poll::Pending;
        }
        self.framing.resume();
        let scanned = self.framing.feed(self.held.bytes());
        self.held.release(scanned.accepted);
        if let Some(fault) = scanned.fault {
            self.held.forget_rest();
            self.refuse(ConnectionEnd::Violation(fault));
        }
        Poll::Ready(())
    }

    /// Whether the connection is lent and all its requests are answered.
    fn rests(&self) -> bool {
        self.lent
            && self.framing.heads() > 0
            && self.framing.part() == AwaitedPart::Between
            && self.is_quiet()
    }

    /// Reads from the client until bytes may pass, or the state changes.
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
                    self.reading = ReadState::Ended(None);
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(())) => self.scan(buf, start),
            }
            let may_pass = buf.filled().len() > start || self.held.read(buf);
            if may_pass || !matches!(self.reading, ReadState::Open) {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Cuts the bytes read from `start` on back to those that may pass, and holds those that must wait.
    fn scan(&mut self, buf: &mut ReadBuf<'_>, start: usize) {
        let scanned = if self.held.is_empty() {
            let read = &buf.filled()[start..];
            let scanned = self.framing.feed(read);
            if scanned.fault.is_none() {
                self.held.push(&read[scanned.accepted..]);
            }
            buf.set_filled(start + scanned.accepted);
            scanned
        } else {
            self.held.push(&buf.filled()[start..]);
            buf.set_filled(start);
            let scanned = self.framing.feed(self.held.bytes());
            self.held.release(scanned.accepted);
            if scanned.fault.is_some() {
                self.held.forget_rest();
            }
            scanned
        };
        if scanned.accepted > 0
            && let Some((AwaitedPart::Body, deadline)) = self.awaited.take()
        {
            let left = deadline.saturating_duration_since(Instant::now());
            self.body_left.1 = self.limits.body.earned(left, scanned.accepted as u64);
        }
        if let Some(fault) = scanned.fault {
            self.refuse(ConnectionEnd::Violation(fault));
        }
    }

    /// Ready when a deadline has passed. The state has changed then.
    fn poll_awaited(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let part = self.framing.part();
        if part != AwaitedPart::Body && !self.is_quiet() {
            self.awaited = None;
            return Poll::Pending;
        }
        let deadline = match self.awaited {
            Some((awaited, deadline)) if awaited == part => deadline,
            _ => after(self.time_for(part)),
        };
        self.awaited = Some((part, deadline));
        ready!(self.poll_resting(cx, part, deadline));
        ready!(self.timer.poll(cx, deadline));
        match part {
            AwaitedPart::Between => {
                self.ledger.end(ConnectionEnd::IdleTimeout);
                self.reading = ReadState::Ended(None);
            }
            AwaitedPart::Head => self.refuse(ConnectionEnd::HeadTimeout),
            AwaitedPart::Body => self.refuse(ConnectionEnd::BodyTimeout),
        }
        Poll::Ready(())
    }

    /// The time that the client has for a part of its request.
    fn time_for(&mut self, part: AwaitedPart) -> Duration {
        match part {
            AwaitedPart::Between => self.limits.idle_timeout,
            AwaitedPart::Head => self.limits.head_timeout,
            AwaitedPart::Body => {
                let request = self.framing.heads();
                if self.body_left.0 != request {
                    self.body_left = (request, self.limits.body.time);
                }
                self.body_left.1
            }
        }
    }

    /// Pending while the connection may yet rest before its deadline.
    fn poll_resting(
        &mut self,
        cx: &mut Context<'_>,
        part: AwaitedPart,
        deadline: Instant,
    ) -> Poll<()> {
        let Some(quiet) = self.rests_after.filter(|_| part == AwaitedPart::Between) else {
            return Poll::Ready(());
        };
        let earlier = self.limits.idle_timeout.saturating_sub(quiet);
        let rests_at = deadline.checked_sub(earlier).unwrap_or(deadline);
        ready!(self.timer.poll(cx, rests_at));
        if Instant::now() >= deadline || !self.held.is_empty() {
            return Poll::Ready(());
        }
        self.ledger.rest();
        Poll::Pending
    }

    fn refuse(&mut self, ending: ConnectionEnd) {
        self.ledger.end(ending);
        self.reading = ReadState::Refused { ending, part: self.framing.part() };
    }

    /// Whether every request that passed was answered, and every response written.
    fn is_quiet(&self) -> bool {
        self.ledger.finished() >= self.framing.heads() && self.is_settled()
    }

    fn is_settled(&self) -> bool {
        self.settled == self.ledger.finished()
    }

    /// Whether responses to requests before the refused one are still to be written.
    fn waits_for_earlier(&self, part: AwaitedPart) -> bool {
        // A refused body belongs to the last head that passed. A refused head comes after it.
        let earlier = self.framing.heads() - u64::from(part == AwaitedPart::Body);
        self.ledger.finished() < earlier
            || (self.ledger.finished() == earlier && !self.is_settled())
    }

    /// Brings a connection that takes no more requests to its end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.reading {
                ReadState::Open | ReadState::Ended(None) => return Poll::Ready(Ok(())),
                ReadState::Ended(Some(kind)) => return Poll::Ready(Err((*kind).into())),
                ReadState::Refused { ending, part } => {
                    let (ending, part) = (*ending, *part);
                    if self.waits_for_earlier(part) {
                        self.parked = true;
                        return Poll::Pending;
                    }
                    self.reading = self.answer(ending, part);
                }
                ReadState::Answering { .. } => ready!(self.poll_answer(cx)),
                ReadState::Closing => ready!(self.poll_close(cx)),
                ReadState::Lingering { .. } => {
                    ready!(self.poll_linger(cx));
                    self.reading = ReadState::Ended(Some(io::ErrorKind::InvalidData));
                }
            }
        }
    }

    /// Answers with the refusal. A response that has started or ended cannot be replaced: then the
    /// connection just ends.
    fn answer(&self, ending: ConnectionEnd, part: AwaitedPart) -> ReadState {
        let is_unanswered = part != AwaitedPart::Body
            || (self.ledger.finished() < self.framing.heads() && !self.responding);
        match ending.response() {
            Some(response) if is_unanswered => ReadState::Answering { response, written: 0 },
            _ => ReadState::Ended(Some(io::ErrorKind::InvalidData)),
        }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ReadState::Answering { response, written } = &mut self.reading else {
            return Poll::Ready(());
        };
        let progress = if *written < response.len() {
            Pin::new(&mut self.inner).poll_write(cx, &response[*written..])
        } else {
            Pin::new(&mut self.inner).poll_flush(cx).map_ok(|()| 0)
        };
        match progress {
            Poll::Ready(Ok(0)) => self.reading = ReadState::Closing,
            Poll::Ready(Ok(count)) => *written += count,
            Poll::Ready(Err(_)) => {
                self.reading = ReadState::Ended(Some(io::ErrorKind::InvalidData))
            }
            Poll::Pending => return self.poll_stalled(cx),
        }
        self.stalled = None;
        Poll::Ready(())
    }

    /// Ends this side, then lingers.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.reading = match Pin::new(&mut self.inner).poll_shutdown(cx) {
            Poll::Ready(Ok(())) => {
                ReadState::Lingering { until: after(LINGER_TIMEOUT), left: LINGER_BYTES }
            }
            Poll::Ready(Err(_)) => ReadState::Ended(Some(io::ErrorKind::InvalidData)),
            Poll::Pending => return self.poll_stalled(cx),
        };
        Poll::Ready(())
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4096];
        while let ReadState::Lingering { until, left } = &mut self.reading {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buf) {
                Poll::Pending => return self.timer.poll(cx, *until),
                Poll::Ready(Ok(())) if !buf.filled().is_empty() && *left > 0 => {
                    *left = left.saturating_sub(buf.filled().len());
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    }

    /// Ready when the client has taken too little in time. The state has changed then.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.limits.send;
        let begin = || SendStall::begin(&patience, Instant::now());
        let stall = self.stalled.get_or_insert_with(begin);
        loop {
            ready!(self.timer.poll(cx, stall.next_look(&patience)));
            if !stall.goes_on(&patience, Instant::now(), self.inner.acknowledged()) {
                break;
            }
        }
        self.ledger.end(ConnectionEnd::SendTimeout);
        self.reading = ReadState::Ended(Some(io::ErrorKind::TimedOut));
        Poll::Ready(())
    }

    /// Whether responses may be written: not after the guard has started to answer.
    fn check_writable(&self) -> io::Result<()> {
        match self.reading {
            ReadState::Open | ReadState::Refused { .. } | ReadState::Ended(None) => Ok(()),
            ReadState::Ended(Some(kind)) => Err(kind.into()),
            ReadState::Answering { .. } | ReadState::Closing | ReadState::Lingering { .. } => {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// Accounts for an attempt to write. `is_interim` tells whether it was a 1xx response.
    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<usize>>,
        is_interim: bool,
    ) -> Poll<io::Result<usize>> {
        self.turn.wrote(&progress);
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

    /// Sends `before`, and then the part of the next chunk that `stand_in` stands for.
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
        let length = stand_in.len().min(self.turn.left());
        let written = match &chunk {
            ZeroCopyChunk::Memory(body) => {
                let mut slices = [IoSlice::new(before); AT_ONCE];
                let mut count = usize::from(!before.is_empty());
                for part in zero_copy::parts(&body.segments, at, length).take(AT_ONCE - count) {
                    slices[count] = IoSlice::new(part);
                    count += 1;
                }
                Pin::new(&mut self.inner).poll_write_vectored(cx, &slices[..count])
            }
            ZeroCopyChunk::File(_) | ZeroCopyChunk::Pipe(_) if !before.is_empty() => {
                outlet::poll_write_ahead(&mut self.inner, cx, before)
            }
            ZeroCopyChunk::File(range) => {
                let (file, at) = (range.file(), range.start() + at);
                let sent = ready!(outlet::poll_send_file(&mut self.inner, cx, file, at, length))?;
                if sent == 0 {
                    tracing::warn!("a record of the disk cache became shorter while it was sent");
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Ok(sent))
            }
            ZeroCopyChunk::Pipe(PipedBytes { pipe, is_last }) => {
                let length = stand_in.len().min(self.turn.left_piped());
                if *is_last && length == stand_in.len() && self.framing.closes() {
                    self.inner.hold_rest();
                }
                let sent = ready!(outlet::poll_drain(&mut self.inner, cx, pipe, length))?;
                if pipe.held() == 0 {
                    // The body waits for an empty pipe, in this very task.
                    cx.waker().wake_by_ref();
                }
                Poll::Ready(Ok(sent))
            }
        };
        let written = ready!(written)?;
        zero_copy.sent(written.saturating_sub(before.len()));
        Poll::Ready(Ok(written))
    }

    /// An error if plain bytes may be the copy of a stand-in. hyper writes vectors to this connection, so a
    /// plain write while a chunk is queued comes from a wrapper that made hyper copy it.
    fn check_not_copied(&self) -> io::Result<()> {
        match &self.zero_copy {
            Some(zero_copy) if !zero_copy.is_empty() => {
                tracing::error!("a zero-copy chunk's stand-in was copied on its way to the socket");
                Err(io::Error::other("the stand-in of a zero-copy chunk was copied"))
            }
            _ => Ok(()),
        }
    }

    /// Writes the interim responses that wait, unless an earlier response is still on its way. Then they
    /// are dropped.
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

    /// Ends the connection with a reset when the service breaks a response off. Everything before has been
    /// flushed. A reset discards what the client has not acknowledged, so this waits for it for a while.
    fn poll_break(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ledger.breaks() {
            return Poll::Ready(Ok(()));
        }
        let until = *self.breaking.get_or_insert_with(|| after(LINGER_TIMEOUT));
        while self.inner.reset_on_close() && Instant::now() < until {
            ready!(self.timer.poll(cx, until.min(after(ACKNOWLEDGE_INTERVAL))));
        }
        self.reading = ReadState::Ended(Some(io::ErrorKind::InvalidData));
        Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
    }

    /// Ends the connection when the service leaves in the middle of a response. Everything before has
    /// been flushed.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ledger.leaves() {
            return Poll::Ready(Ok(()));
        }
        if matches!(self.reading, ReadState::Open) {
            self.ledger.end(ConnectionEnd::Moved);
            self.reading = ReadState::Closing;
        }
        self.poll_end(cx)
    }

    /// Notes that everything written was flushed: the requests that have finished are settled.
    ///
    /// hyper does not read again by itself when its last read was pending. So this wakes its task where
    /// the next step depends on the end of a response.
    fn settle(&mut self, cx: &mut Context<'_>) {
        self.stalled = None;
        let finished = self.ledger.finished();
        if self.settled == finished {
            return;
        }
        self.settled = finished;
        self.responding = false;
        let goes_on = match self.reading {
            ReadState::Open if self.framing.is_switching() => !self.ledger.switches(),
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
        if buf.remaining() == 0 || this.held.read(buf) {
            return Poll::Ready(Ok(()));
        }
        if matches!(this.reading, ReadState::Open) && this.framing.is_switching() {
            ready!(this.poll_switching());
            if this.held.read(buf) {
                return Poll::Ready(Ok(()));
            }
        }
        let start = buf.filled().len();
        if matches!(this.reading, ReadState::Open) && this.rests() {
            this.ledger.end(ConnectionEnd::Resting);
            this.reading = ReadState::Ended(None);
        }
        if matches!(this.reading, ReadState::Open) {
            ready!(this.poll_open(cx, buf))?;
        }
        // Good bytes pass before the reader learns of the fault behind them.
        if buf.filled().len() > start { Poll::Ready(Ok(())) } else { this.poll_end(cx) }
    }
}

/// Pieces of memory that are written at once: a chunk's segments, and the bytes before them.
const AT_ONCE: usize = 20;

/// Pieces are copied together up to this length in all: writing one piece costs so much less than writing
/// several that the copy pays.
const SHORT: usize = 4 << 10;

/// Whether these are several pieces, and short in all.
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
        ready!(this.turn.poll(cx));
        this.clean = false;
        let progress = if zero_copy::stands_in(bytes) {
            this.poll_zero_copy(cx, &[], bytes)
        } else {
            match this.check_not_copied() {
                Ok(()) => {
                    let most = bytes.len().min(this.turn.left());
                    Pin::new(&mut this.inner).poll_write(cx, &bytes[..most])
                }
                Err(error) => Poll::Ready(Err(error)),
            }
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
        ready!(this.turn.poll(cx));
        this.clean = false;
        let left = this.turn.left();
        let inner = Pin::new(&mut this.inner);
        let chunk = slices.iter().position(|slice| zero_copy::stands_in(slice));
        let progress = match chunk {
            Some(0) => this.poll_zero_copy(cx, &[], &slices[0]),
            Some(1) => this.poll_zero_copy(cx, &slices[0], &slices[1]),
            Some(first) => turn::poll_write_some(inner, cx, &slices[..first], left),
            None if is_short(slices) => {
                this.short.clear();
                slices.iter().for_each(|slice| this.short.extend_from_slice(slice));
                inner.poll_write(cx, &this.short)
            }
            None => turn::poll_write_some(inner, cx, slices, left),
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
                ready!(this.poll_break(cx))?;
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
        if matches!(this.reading, ReadState::Open) && this.framing.part() == AwaitedPart::Body {
            this.reading = ReadState::Closing;
        }
        match this.reading {
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

/// The interim response by which hyper asks for a body (RFC 9110 section 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The interval of checks whether the bytes before a reset are acknowledged: a round trip of most clients.
const ACKNOWLEDGE_INTERVAL: Duration = Duration::from_millis(10);
/// How long a client may take to notice that it was refused: a round trip and a lost packet of most paths.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How many bytes it may send meanwhile.
const LINGER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests;
