//! One poll of an HTTP/2 connection: streams are answered where their requests are read, and what is written leaves
//! at its end.
//!
//! hyper runs each stream as a task and writes after each request that it has read. A hit is ready at once, though:
//! a task costs more than its answer, and so does a system call.
//!
//! ```text
//!   task ── Http2Poll ── hyper ── a request ──> Streams ── polled once ── ready: answered
//!               │          │                                    └────── pending: a task of its own
//!               │          └───── frames ─────> GatheredWrites, holds them
//!               └── the end of the poll ──────> GatheredWrites ── one write ──> TLS or socket
//! ```

use std::{
    cell::Cell,
    io::{self, IoSlice},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker, ready},
};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::coop,
};

/// Writes from this length on are not copied.
const LARGE: usize = 8 << 10;
/// No more bytes are held.
const MOST: usize = 32 << 10;
/// The parts of a write by h2: the head of a frame, and its payload.
const PARTS: usize = 4;

/// The parts of a connection that are made before hyper's: its stream, and the executor of its streams.
/// `executor` runs those that have to wait.
pub fn gather<S, E>(stream: S, executor: E) -> (GatheredWrites<S>, Streams<E>) {
    let outflow = Outflow { stream, held: Vec::new(), sent: 0, unflushed: false, failure: None };
    let waker = Arc::new(PollWaker { task: Mutex::new(Waker::noop().clone()) });
    (GatheredWrites(Arc::new(Mutex::new(outflow))), Streams { executor, waker })
}

/// A stream that holds what is written in a poll of its connection until [`Http2Poll`] ends the poll.
#[derive(Debug)]
pub struct GatheredWrites<S>(Arc<Mutex<Outflow<S>>>);

#[derive(Debug)]
struct Outflow<S> {
    stream: S,
    held: Vec<u8>,
    /// How many of them are written.
    sent: usize,
    /// Whether the stream may hold bytes itself.
    unflushed: bool,
    /// The failure of the write at the end of a poll, for the next one.
    failure: Option<io::Error>,
}

impl<S: AsyncWrite + Unpin> Outflow<S> {
    /// Takes in what hyper writes.
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = parts.iter().map(|part| part.len()).sum();
        if self.held.len() + length > MOST || length >= LARGE {
            return self.poll_write_behind(cx, parts);
        }
        parts.iter().for_each(|part| self.held.extend_from_slice(part));
        Poll::Ready(Ok(length))
    }

    /// Writes what is held, and `parts` after it. Returns how much of `parts` is written.
    fn poll_write_behind(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.unflushed = true;
        loop {
            let held = self.held.len() - self.sent;
            let mut all = [IoSlice::new(&self.held[self.sent..]); PARTS + 1];
            let parts = &parts[..parts.len().min(PARTS)];
            all[1..=parts.len()].copy_from_slice(parts);
            let first = usize::from(held == 0);
            let all = &all[first..=parts.len()];
            let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, all))?;
            if written < held {
                self.sent += written;
            } else {
                (self.held, self.sent) = (Vec::new(), 0);
            }
            match written.checked_sub(held) {
                _ if written == 0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Some(own) if own > 0 || parts.is_empty() => return Poll::Ready(Ok(own)),
                _ => {}
            }
        }
    }

    /// Writes all that is held.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() {
            ready!(self.poll_write_behind(cx, &[]))?;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> Clone for GatheredWrites<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsyncWrite + Unpin> GatheredWrites<S> {
    /// Writes what the poll has left. Its failure is for the next one.
    fn end_poll(&self, cx: &mut Context<'_>) {
        let outflow = &mut *self.0.lock();
        if let Poll::Ready(Err(error)) = outflow.poll_release(cx) {
            outflow.failure = Some(error);
            cx.waker().wake_by_ref();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GatheredWrites<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outflow = &mut *self.0.lock();
        match outflow.failure.take() {
            Some(failure) => Poll::Ready(Err(failure)),
            None => Pin::new(&mut outflow.stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GatheredWrites<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_take(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_take(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The end of the poll is the time to write.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outflow = &mut *self.0.lock();
        ready!(outflow.poll_release(cx))?;
        Pin::new(&mut outflow.stream).poll_shutdown(cx)
    }
}

/// Runs the streams of a connection: those that are ready at once where their requests are read.
#[derive(Clone)]
pub struct Streams<E> {
    executor: E,
    waker: Arc<PollWaker>,
}

impl<E> Streams<E> {
    /// The connection with these streams.
    pub fn connection<C, S>(&self, hyper: C, writes: GatheredWrites<S>) -> Http2Poll<C, S> {
        Http2Poll { hyper, writes, waker: self.waker.clone() }
    }
}

impl<E, F> Executor<F> for Streams<E>
where
    E: Executor<Pin<Box<F>>>,
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut stream = Box::pin(stream);
        // A poll that has done much leaves the rest to other tasks, so that other connections have their turn.
        if Present::of(&self.waker) == Some(Present::Connection) && coop::has_budget_remaining() {
            let _present = self.waker.enter(Present::Stream);
            // A task polls it again, whatever happens until then.
            let mut cx = Context::from_waker(Waker::noop());
            let poll = AssertUnwindSafe(|| {
                ready!(coop::poll_proceed(&mut cx)).made_progress();
                stream.as_mut().poll(&mut cx)
            });
            // A stream that panics ends alone, as a task does.
            if !matches!(catch_unwind(poll), Ok(Poll::Pending)) {
                return;
            }
        }
        self.executor.execute(stream);
    }
}

/// A connection of hyper, whose polls end with a write of all that they had to say.
#[derive(Debug)]
pub struct Http2Poll<C, S> {
    hyper: C,
    writes: GatheredWrites<S>,
    waker: Arc<PollWaker>,
}

impl<C: Unpin, S> Http2Poll<C, S> {
    /// hyper's connection.
    pub fn hyper(&mut self) -> Pin<&mut C> {
        Pin::new(&mut self.hyper)
    }
}

impl<C: Future + Unpin, S: AsyncWrite + Unpin> Future for Http2Poll<C, S> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.get_mut();
        this.waker.task.lock().clone_from(cx.waker());
        let polled = {
            let _present = this.waker.enter(Present::Connection);
            let waker = Waker::from(this.waker.clone());
            this.hyper().poll(&mut Context::from_waker(&waker))
        };
        this.writes.end_poll(cx);
        polled
    }
}

/// Wakes the task of a connection. A stream that is polled where its request was read does not: hyper goes on with the
/// connection after it.
#[derive(Debug)]
struct PollWaker {
    task: Mutex<Waker>,
}

impl Wake for PollWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if Present::of(self) != Some(Present::Stream) {
            self.task.lock().wake_by_ref();
        }
    }
}

impl PollWaker {
    /// Notes the present poll of this thread, until the guard ends.
    fn enter(self: &Arc<Self>, present: Present) -> Entered {
        Entered(POLL.replace((Arc::as_ptr(self).addr(), present)))
    }
}

/// The part of a connection that a thread polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Present {
    Connection,
    Stream,
}

thread_local! {
    /// The connection that is polled, by the address of its waker.
    static POLL: Cell<(usize, Present)> = const { Cell::new((0, Present::Connection)) };
}

impl Present {
    /// The part of this connection that is polled, if it is the one.
    fn of(connection: &Arc<PollWaker>) -> Option<Self> {
        let (polled, part) = POLL.get();
        (polled == Arc::as_ptr(connection).addr()).then_some(part)
    }
}

/// Ends with the poll, also when it panics.
struct Entered((usize, Present));

impl Drop for Entered {
    fn drop(&mut self) {
        POLL.set(self.0);
    }
}
