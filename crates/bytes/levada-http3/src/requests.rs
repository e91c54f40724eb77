//! The requests of one connection, side by side.
//!
//! A request is polled where it was accepted, by the task of the connection; one that has to wait keeps a place, and is
//! polled again when it is woken ([`Wakeups`]). So the responses to requests that came together are written before the
//! task that sends them has its turn, and leave together.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use h3::{
    error::ConnectionError,
    server::{self, RequestResolver},
};
use levada_http::{
    Watchdog,
    wakeups::{MOST, TASK, Wakeups},
};
use tokio::task::coop;

use crate::{
    Serve,
    code::Code,
    connection::Connection,
    request,
    transport::{Accepted, RequestLine, Transport},
};

/// See the module.
pub(crate) struct Requests<N: Serve> {
    /// It is dropped first, and ends the connection: the end of a stream that is dropped after it does not look like that
    /// of a whole response.
    http: server::Connection<Transport, Bytes>,
    connection: Arc<Connection<N>>,
    watchdog: Arc<Watchdog>,
    accepted: Accepted,
    places: Vec<Place>,
    under_way: usize,
    /// Streams of answered requests whose responses, which are short, the client may not have.
    answered: VecDeque<Arc<RequestLine>>,
    /// Of the first stream that was taken from there.
    settling: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
    wakeups: Arc<Wakeups>,
    accepting: Waker,
    /// Whether there was a request.
    pub(crate) asked: bool,
    /// Whether new requests are answered.
    pub(crate) open: bool,
    /// Whether the client sends no more.
    pub(crate) closed: bool,
}

struct Place {
    waker: Waker,
    request: Option<(Arc<RequestLine>, Answering)>,
}

/// A request that is answered. It returns whether its response may still be on its way to the client.
type Answering = Pin<Box<dyn Future<Output = bool> + Send>>;

impl<N: Serve> Requests<N> {
    pub(crate) fn new(
        connection: Arc<Connection<N>>,
        watchdog: Arc<Watchdog>,
        http: server::Connection<Transport, Bytes>,
        accepted: Accepted,
    ) -> Self {
        let wakeups = Arc::<Wakeups>::default();
        let accepting = wakeups.waker(TASK);
        wakeups.note(TASK);
        Self {
            http,
            connection,
            watchdog,
            accepted,
            places: Vec::new(),
            under_way: 0,
            answered: VecDeque::new(),
            settling: None,
            wakeups,
            accepting,
            asked: false,
            open: true,
            closed: false,
        }
    }

    /// Accepts requests, and lets those go on that may. Ready when the client wants no more, or no new requests are
    /// answered, and it has the responses to all others.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            // Its own work may wake requests, which are polled below: the task need not be woken for that.
            self.wakeups.register(Waker::noop());
            let turn = self.poll_woken(cx)?;
            self.wakeups.register(cx.waker());
            if (self.closed || !self.open) && self.poll_settled(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if turn.is_pending() || self.wakeups.are_none() {
                return Poll::Pending;
            }
        }
    }

    /// Polls what was woken. Pending when others are to have their turn before the rest.
    fn poll_woken(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let mut woken = self.wakeups.take_ready();
        while woken != 0 {
            let at = woken.trailing_zeros() as usize;
            let Poll::Ready(turn) = coop::poll_proceed(cx) else {
                self.wakeups.note_all(woken);
                return Poll::Pending;
            };
            turn.made_progress();
            woken &= woken - 1;
            self.drive(at);
        }
        if !self.wakeups.take_task() || self.closed {
            return Poll::Ready(Ok(()));
        }
        loop {
            let Poll::Ready(turn) = coop::poll_proceed(cx) else {
                self.wakeups.note(TASK);
                return Poll::Pending;
            };
            turn.made_progress();
            let mut accepting = Context::from_waker(&self.accepting);
            let Poll::Ready(accepted) = pin!(self.http.accept()).poll(&mut accepting) else {
                return Poll::Ready(Ok(()));
            };
            match accepted? {
                Some(resolver) => self.begin(resolver),
                None => {
                    self.closed = true;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Begins the request on the stream that h3 has accepted last.
    fn begin(&mut self, resolver: RequestResolver<Transport, Bytes>) {
        let lines = std::mem::take(&mut *self.accepted.lock());
        let free = self.places.iter().position(|place| place.request.is_none());
        let at = free.unwrap_or(self.places.len());
        let Some(line) = lines.back().filter(|_| self.open && at < MOST) else {
            // The client knows that these are not answered (RFC 9114 Sec. 5.2).
            return lines.iter().for_each(|line| line.reset(Code::REQUEST_REJECTED));
        };
        if at == self.places.len() {
            self.places.push(Place { waker: self.wakeups.waker(at), request: None });
        }
        let watched = self.watchdog.stream();
        let answering = request::answer(self.connection.clone(), resolver, line.clone(), watched);
        self.places[at].request = Some((line.clone(), Box::pin(answering)));
        self.under_way += 1;
        self.asked = true;
        self.drive(at);
    }

    /// Lets a request go on.
    fn drive(&mut self, at: usize) {
        let Place { waker, request } = &mut self.places[at];
        let Some((line, answering)) = request else { return };
        let mut cx = Context::from_waker(waker);
        // A request that panics ends alone, as a task does.
        let polled = catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(&mut cx)));
        match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(true)) => self.answered.push_back(line.clone()),
            Ok(Poll::Ready(false)) => {}
            Err(_) => line.reset(Code::INTERNAL_ERROR),
        }
        *request = None;
        self.under_way -= 1;
        while self.answered.front().is_some_and(|line| line.is_settled()) {
            self.answered.pop_front();
        }
        if self.answered.len() > 2 * MOST {
            self.answered.retain(|line| !line.is_settled());
        }
    }

    /// Ready when no request is left and the client has all responses.
    fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.under_way == 0 {
            if let Some(settling) = &mut self.settling {
                ready!(settling.as_mut().poll(cx));
            }
            self.settling = match self.answered.pop_front() {
                Some(line) => Some(Box::pin(line.settled())),
                None => return Poll::Ready(()),
            };
        }
        Poll::Pending
    }

    /// Tells the client that it may send so many more requests.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) async fn announce_end(&mut self, more: usize) -> Result<(), ConnectionError> {
        self.wakeups.note(TASK);
        self.http.shutdown(more).await
    }
}
