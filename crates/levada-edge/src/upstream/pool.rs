//! Idle connections to one server: last in, first out, so that the ones too many go stale and close.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use parking_lot::Mutex;

use crate::body::RequestBody;

/// A connection is not used again after it has been idle this long: servers close theirs after 60 s
/// or more, and a request on a connection that is being closed is a request lost.
const IDLE: Duration = Duration::from_secs(50);

thread_local! {
    /// Which worker this thread is, when each worker has a scheduler of its own.
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// Tells this thread which worker it is: it will then use connections of its own.
pub(crate) fn set_worker(index: usize) {
    WORKER.set(index);
}

/// The request side of one connection.
pub(super) enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    /// Many requests share it; it stays in the pool while it is in use.
    Http2(http2::SendRequest<RequestBody>),
}

pub(super) type Sent = Result<Response<Incoming>, (hyper::Error, Option<Request<RequestBody>>)>;

impl Sender {
    pub(super) async fn send(&mut self, request: Request<RequestBody>) -> Sent {
        match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        }
        .map_err(|mut error| {
            let back = error.take_message();
            (error.into_error(), back)
        })
    }

    /// Waits until the connection can take a request; false when it is closed.
    async fn ready(&mut self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_ready() || sender.ready().await.is_ok(),
            Self::Http2(sender) => sender.is_ready() || sender.ready().await.is_ok(),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}

/// The idle connections of one server, per worker.
pub(super) struct Pool {
    workers: Box<[Mutex<Vec<Idle>>]>,
    bound: usize,
}

struct Idle {
    sender: Sender,
    since: Instant,
}

impl Pool {
    pub(super) fn new(workers: usize, bound: usize) -> Self {
        Self { workers: (0..workers.max(1)).map(|_| Mutex::default()).collect(), bound }
    }

    /// The connection used last that is still open.
    pub(super) async fn take(&self) -> Option<Sender> {
        loop {
            let Idle { mut sender, since } = self.mine().lock().pop()?;
            if since.elapsed() > IDLE || sender.is_closed() || !sender.ready().await {
                continue;
            }
            if let Sender::Http2(shared) = &sender {
                self.put(Sender::Http2(shared.clone()));
            }
            return Some(sender);
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn put(&self, sender: Sender) {
        if sender.is_closed() {
            return;
        }
        let mut idle = self.mine().lock();
        let shared = matches!(sender, Sender::Http2(_)) && !idle.is_empty();
        if idle.len() < self.bound && !shared {
            idle.push(Idle { sender, since: Instant::now() });
        }
    }

    fn mine(&self) -> &Mutex<Vec<Idle>> {
        &self.workers[WORKER.get() % self.workers.len()]
    }
}
