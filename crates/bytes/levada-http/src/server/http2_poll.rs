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

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty, Full};
    use hyper::{
        body::Incoming,
        client::conn::http2::{SendRequest, handshake},
        server::conn::http2::Builder,
        service::service_fn,
    };
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::{
        io::{AsyncReadExt as _, DuplexStream, duplex},
        sync::Notify,
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Counts {
        writes: Arc<AtomicUsize>,
        tasks: Arc<AtomicUsize>,
        /// Lets the streams go on that wait.
        go: Arc<Notify>,
    }

    impl Counts {
        fn take(&self) -> (usize, usize) {
            (self.writes.swap(0, Relaxed), self.tasks.swap(0, Relaxed))
        }
    }

    impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Counts {
        fn execute(&self, task: F) {
            self.tasks.fetch_add(1, Relaxed);
            tokio::spawn(task);
        }
    }

    struct Counted(DuplexStream, Counts);

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.1.writes.fetch_add(1, Relaxed);
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.1.writes.fetch_add(1, Relaxed);
            Pin::new(&mut self.0).poll_write_vectored(cx, parts)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    type Client = SendRequest<Empty<Bytes>>;

    /// The path tells how a request is answered.
    async fn answer(request: Request<Incoming>, counts: Counts) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/wait" => counts.go.notified().await,
            "/panic" => panic!("as the test wants it"),
            "/work" => {
                for _ in 0..8 {
                    coop::consume_budget().await;
                }
            }
            _ => {}
        }
        Response::new(Full::from(vec![b'x'; 1000]))
    }

    async fn world() -> (Client, Counts, tokio::task::JoinHandle<hyper::Result<()>>) {
        let (counts, (near, far)) = (Counts::default(), duplex(1 << 20));
        let (stream, streams) = gather(Counted(near, counts.clone()), counts.clone());
        let of_service = counts.clone();
        let service = service_fn(move |request| {
            let answered = answer(request, of_service.clone());
            async move { Ok::<_, Infallible>(answered.await) }
        });
        let hyper =
            Builder::new(streams.clone()).serve_connection(TokioIo::new(stream.clone()), service);
        let served = tokio::spawn(streams.connection(hyper, stream));
        let (mut client, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(far)).await.unwrap();
        tokio::spawn(connection);
        assert_eq!(get(&mut client, "/").await, Some(1000));
        // Both sides have exchanged their settings.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        counts.take();
        (client, counts, served)
    }

    fn get(client: &mut Client, path: &str) -> impl Future<Output = Option<usize>> + use<> {
        let request = Request::get(format!("http://a.test{path}")).body(Empty::new()).unwrap();
        let response = client.send_request(request);
        async { Some(response.await.ok()?.into_body().collect().await.ok()?.to_bytes().len()) }
    }

    #[tokio::test]
    async fn streams_that_come_together_are_answered_in_place_by_two_writes_at_most() {
        let (mut client, counts, _) = world().await;
        let all: Vec<_> = (0..16).map(|_| get(&mut client, "/")).collect();
        for one in all {
            assert_eq!(one.await, Some(1000));
        }
        let (writes, tasks) = counts.take();
        assert!((1..=2).contains(&writes), "{writes}");
        assert_eq!(tasks, 0);
    }

    #[tokio::test]
    async fn stream_that_waits_is_a_task_and_one_that_panics_ends_alone() {
        let (mut client, counts, _) = world().await;
        let waits = get(&mut client, "/wait");
        let (panics, ready) = (get(&mut client, "/panic"), get(&mut client, "/"));
        assert_eq!(ready.await, Some(1000));
        assert_eq!(panics.await, None);
        assert_eq!(counts.take().1, 1);
        counts.go.notify_one();
        assert_eq!(waits.await, Some(1000));
        assert_eq!(counts.take(), (1, 0));
    }

    #[tokio::test]
    async fn connection_whose_poll_has_done_much_leaves_streams_to_tasks() {
        let (mut client, counts, _) = world().await;
        let all: Vec<_> = (0..50).map(|_| get(&mut client, "/work")).collect();
        for one in all {
            assert_eq!(one.await, Some(1000));
        }
        let (_, tasks) = counts.take();
        assert!((20..50).contains(&tasks), "{tasks}");
    }

    #[tokio::test]
    async fn connection_ends_when_its_client_is_gone() {
        let (client, _, served) = world().await;
        drop(client);
        served.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn bytes_leave_in_order_however_little_is_taken_at_once() {
        let (near, mut far) = duplex(1000);
        let (mut stream, _) = gather(near, ());
        let sizes = [10, 9_000, 200, 7_000, 8_000, 8_000, 8_000, 8_000, 1, 70_000, 0, 3];
        let bytes = |at: usize| (at % 251) as u8;
        let total = sizes.iter().sum::<usize>();
        let read = tokio::spawn(async move {
            let mut read = Vec::new();
            far.read_to_end(&mut read).await.unwrap();
            read
        });
        let (mut end, mut at) = (0, 0);
        for size in sizes {
            end += size;
            std::future::poll_fn(|cx| {
                while at < end {
                    let piece: Vec<u8> = (at..end).map(bytes).collect();
                    let (head, rest) = piece.split_at(piece.len().min(9));
                    let parts = [IoSlice::new(head), IoSlice::new(rest)];
                    let written = Pin::new(&mut stream).poll_write_vectored(cx, &parts);
                    assert!(stream.0.lock().held.len() <= MOST);
                    at += ready!(written).unwrap();
                }
                Poll::Ready(())
            })
            .await;
        }
        std::future::poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await.unwrap();
        assert_eq!(stream.0.lock().held.capacity(), 0, "an empty buffer is given back");
        drop(stream);
        assert!(read.await.unwrap().into_iter().eq((0..total).map(bytes)));
    }

    #[tokio::test]
    async fn failed_write_at_the_end_of_a_poll_fails_the_next() {
        let (near, far) = duplex(1000);
        let (mut stream, _) = gather(near, ());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut stream).poll_write(&mut cx, b"abc").is_ready());
        drop(far);
        stream.end_poll(&mut cx);
        let (mut bytes, failed) = ([0; 4], io::ErrorKind::BrokenPipe);
        assert_eq!(stream.read(&mut bytes).await.unwrap_err().kind(), failed);
    }
}
