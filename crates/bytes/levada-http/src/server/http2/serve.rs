//! The server side of HTTP/2: the streams of one connection, side by side.
//!
//! One poll reads all frames that have come, polls the streams that may go on, takes from their bodies in turn what
//! the client's windows allow, and writes all of it at once. It ends when it would have to wait, or when it has done
//! so much that others are to have their turn.

mod clocks;
mod receive;
mod send;

use std::{
    collections::VecDeque,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use levada_net::resting::{RestingConnection, RestingConnections};
use tokio::{io::AsyncRead, task::coop, time::Instant};

use self::{
    clocks::{Clocks, Departure},
    receive::{CREDIT, HeaderBlock},
};
use super::{
    flow::{self, ReceiveWindow, SendWindow},
    frame::{self, ErrorCode, FrameHead, PREFACE, Settings, kind},
    head::StreamHead,
    hpack::Decoder,
    streams::{self, Answer, Inflow, Outflow, Outgoing, Stream, Streams},
    tunnel::Http2Tunnel,
};
use crate::{
    deadline::after,
    server::{
        ConnectionEnd, ConnectionLimits, Outlet,
        facts::RequestLength,
        incoming::IncomingBody,
        wire::{Ended, Farewell, Wire},
    },
};

/// The service behind a connection.
pub trait Http2Service {
    /// The bodies of its responses.
    type Body: Body<Data = Bytes> + Unpin;

    /// Answers a request.
    fn call(
        &self,
        request: Request<IncomingBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// The fields of a response that are written already, as over HTTP/1
    /// ([`Http1Service::written_fields`](crate::Http1Service::written_fields)).
    fn written_fields(&self, _body: &mut Self::Body) -> Option<Vec<u8>> {
        None
    }

    /// The connections that rest, of which this may become one.
    fn resting(&self) -> &RestingConnections;

    /// Has the stream of a CONNECT become a tunnel, if its response says so. Any other response must not be a success.
    fn switch(&self, response: &mut Response<Self::Body>, client: Http2Tunnel) -> bool;
}

/// Serves a connection to its end. When it is time for `leaving`, the client learns of it, and the connection ends with
/// the streams that are under way.
pub async fn serve_http2<S, V>(
    stream: S,
    service: &V,
    limits: ConnectionLimits,
    leaving: impl Future<Output = ()>,
) -> ConnectionEnd
where
    S: AsyncRead + Outlet + Unpin,
    V: Http2Service,
{
    let mut connection = Http2Connection::new(stream, service, limits);
    let mut leaving = pin!(leaving);
    let Err(ended) = poll_fn(|cx| connection.poll(cx, leaving.as_mut())).await;
    // Nothing goes on for requests that are not answered.
    let Http2Connection { mut wire, streams, .. } = connection;
    drop(streams);
    if let Farewell::Linger = ended.farewell {
        let written = poll_fn(|cx| wire.poll_write(cx)).await;
        if written.is_err() || poll_fn(|cx| wire.poll_flush(cx)).await.is_err() {
            return ended.end;
        }
    }
    wire.say_farewell(ended).await
}

struct Http2Connection<'s, S, V: Http2Service> {
    service: &'s V,
    /// While it is one of the connections that rest: memory that one without streams does not need was given back.
    resting: Option<RestingConnection<'s>>,
    gives_way: bool,
    wire: Wire<S>,
    decoder: Decoder,
    /// The memory of a map of fields for the next request.
    spare: HeaderMap,
    settings: Settings,
    /// The windows of the whole connection.
    window: SendWindow,
    received: ReceiveWindow,
    streams: Streams<'s, V::Body>,
    /// The places of the streams whose turn it is to send.
    turns: VecDeque<usize>,
    /// How many streams wait for their windows, tunnels aside.
    blocked: usize,
    /// The last stream that the client has started.
    last: u32,
    /// The last streams that this side has reset: their frames may still be on their way.
    reset: VecDeque<u32>,
    /// Bytes of the preface that have come.
    greeted: usize,
    /// A header block whose end has not come.
    block: Option<HeaderBlock>,
    departure: Departure,
    /// Streams that may end before they were answered.
    credit: u32,
    /// Frames that brought nothing since that time, and since something moved.
    idle_frames: (u32, Instant),
    clocks: Clocks,
}

/// Streams that this side has reset and remembers.
const RESET: usize = streams::MOST;
/// Bytes of all bodies that may be on their way to this side at once, and of one of them.
const LARGEST_WINDOWS: (u32, u32) = (4 << 20, 1 << 20);

impl<'s, S, V> Http2Connection<'s, S, V>
where
    S: AsyncRead + Outlet + Unpin,
    V: Http2Service,
{
    fn new(stream: S, service: &'s V, limits: ConnectionLimits) -> Self {
        let now = Instant::now();
        let mut wire = Wire::new(stream, limits, None);
        let list_size = u32::try_from(limits.head.head).unwrap_or(u32::MAX);
        wire.queue.write(|to| frame::write_settings(to, list_size, streams::MOST as u32));
        Self {
            service,
            resting: None,
            gives_way: false,
            wire,
            decoder: Decoder::new(),
            spare: HeaderMap::new(),
            settings: Settings::default(),
            window: SendWindow::new(flow::FIRST),
            received: ReceiveWindow::new(LARGEST_WINDOWS.0),
            streams: Streams::new(),
            turns: VecDeque::new(),
            blocked: 0,
            last: 0,
            reset: VecDeque::new(),
            greeted: 0,
            block: None,
            departure: Departure::None,
            credit: CREDIT,
            idle_frames: (0, now),
            clocks: Clocks {
                now,
                heard: now,
                asked: None,
                quiet: now,
                head_due: None,
                stalled: None,
            },
        }
    }

    /// Pending until the connection has ended.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        leaving: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<Result<std::convert::Infallible, Ended>> {
        self.clocks.now = Instant::now();
        self.streams.wakeups.register(cx.waker());
        if self.departure == Departure::None && leaving.poll(cx).is_ready() {
            self.announce_departure();
        }
        loop {
            self.poll_read(cx)?;
            self.poll_streams(cx);
            self.send_bodies();
            let writes = !self.wire.queue.is_empty();
            if self.wire.poll_write(cx)?.is_pending() || !writes {
                break;
            }
        }
        if self.wire.poll_flush(cx)?.is_ready()
            && self.departure == Departure::Settled
            && self.streams.open() == 0
            && self.wire.queue.is_empty()
        {
            return Poll::Ready(Err(match self.gives_way {
                true => Ended::by(ConnectionEnd::GaveWay, Farewell::Close),
                false => Ended::by(ConnectionEnd::Finished, Farewell::Linger),
            }));
        }
        self.poll_deadlines(cx)
    }

    /// Reads all that has come, as long as there is room for what answers it.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        loop {
            if let Err(code) = self.take_frames() {
                let last = self.last;
                self.wire.queue.write(|to| frame::write_goaway(to, last, code));
                return Err(Ended::by(ConnectionEnd::Broken, Farewell::Linger));
            }
            if !self.wire.queue.has_room() {
                // The rest of a head may have come.
                self.clocks.head_due = None;
                return Ok(());
            }
            match self.wire.poll_read(cx)? {
                Poll::Ready(0) if self.streams.open() > 0 || self.awaits_head() => {
                    return Err(Ended::by(ConnectionEnd::Cut, Farewell::Close));
                }
                // The client may still take all that waits.
                Poll::Ready(0) => return Err(Ended::by(ConnectionEnd::Closed, Farewell::Linger)),
                Poll::Ready(_) => {
                    self.clocks.heard = self.clocks.now;
                    (self.clocks.asked, self.resting) = (None, None);
                }
                Poll::Pending => {
                    let due = self.clocks.head_due;
                    let due = || due.unwrap_or_else(|| after(self.wire.limits.head_timeout));
                    self.clocks.head_due = self.awaits_head().then(due);
                    return Ok(());
                }
            }
        }
    }

    /// Whether the rest of a head, or of the preface, has to come.
    fn awaits_head(&self) -> bool {
        let is_head = |head: FrameHead| matches!(head.kind, kind::HEADERS | kind::CONTINUATION);
        self.greeted < PREFACE.len()
            || self.block.is_some()
            || FrameHead::read(&self.wire.read).is_some_and(is_head)
    }

    /// Lets the client send as much as was taken.
    fn took(&mut self, count: usize) {
        let more = self.received.took(count);
        self.tell_window(0, more);
    }

    fn tell_window(&mut self, id: u32, more: Option<u32>) {
        if let Some(more) = more {
            self.wire.queue.write(|to| frame::write_window_update(to, id, more));
        }
    }

    /// Has a request answered.
    fn begin(&mut self, id: u32, head: StreamHead, ends: bool) {
        let StreamHead { request, length } = head;
        let (mut body, feed) = IncomingBody::new(length);
        let method = request.method().clone();
        let mut tunnel_body = None;
        if method == Method::CONNECT {
            tunnel_body = Some(std::mem::take(&mut body));
        }
        let upload = Inflow {
            feed,
            waiting: VecDeque::new(),
            window: ReceiveWindow::new(LARGEST_WINDOWS.1),
            left: match length {
                RequestLength::Counted(length) => Some(length),
                RequestLength::Chunked => None,
            },
            has_ended: ends,
        };
        let service = self.service;
        let answering = catch_unwind(AssertUnwindSafe(|| {
            let answering: Pin<Box<dyn Future<Output = _> + Send + 's>> =
                Box::pin(service.call(request.map(|()| body)));
            answering
        }));
        let Ok(answering) = answering else {
            return self.write_reset(id, ErrorCode::InternalError);
        };
        let at = self.streams.insert(Stream {
            id,
            method,
            answer: Answer::Awaited(answering),
            window: SendWindow::new(self.settings.window),
            upload,
            tunnel_body,
            is_blocked: false,
        });
        // A poll that has done much leaves the rest to the next one, so that others have their turn.
        match coop::has_budget_remaining() {
            true => self.drive(at),
            false => self.streams.wakeups.note(at),
        }
    }

    /// Polls the streams that may go on.
    fn poll_streams(&mut self, cx: &mut Context<'_>) {
        let mut ready = self.streams.wakeups.take_ready();
        while ready != 0 {
            let at = ready.trailing_zeros() as usize;
            if !coop::has_budget_remaining() {
                while ready != 0 {
                    self.streams.wakeups.note(ready.trailing_zeros() as usize);
                    ready &= ready - 1;
                }
                cx.waker().wake_by_ref();
                break;
            }
            ready &= ready - 1;
            self.drive(at);
        }
    }

    /// Lets a stream go on: its service, the body of its request, and the turn of its response.
    fn drive(&mut self, at: usize) {
        while self.feed(at) {}
        loop {
            let Some((stream, waker)) = self.streams.get(at) else { return };
            let mut cx = Context::from_waker(waker);
            let Poll::Ready(progress) = coop::poll_proceed(&mut cx) else { return };
            progress.made_progress();
            match &mut stream.answer {
                Answer::Awaited(answering) => {
                    stream.upload.feed.enter();
                    let polled = AssertUnwindSafe(|| answering.as_mut().poll(&mut cx));
                    // A stream that panics ends alone, as a task does.
                    match catch_unwind(polled) {
                        Ok(Poll::Ready(response)) => {
                            self.respond(at, response);
                            // A tunnel may read already.
                            while self.feed(at) {}
                            return;
                        }
                        Ok(Poll::Pending) => {}
                        Err(_) => return self.reset_stream(at, ErrorCode::InternalError),
                    }
                    if !self.feed(at) {
                        return;
                    }
                }
                Answer::Sending(download) => {
                    if std::mem::take(&mut download.waits) {
                        self.turns.push_back(at);
                    }
                    return;
                }
                Answer::Sent(_) => return self.finish(at),
            }
        }
    }

    /// Hands the next part of a request's body to its reader, if that waits for one. Returns whether it was; if not, the
    /// stream is woken when it can be.
    fn feed(&mut self, at: usize) -> bool {
        let Some((stream, waker)) = self.streams.get(at) else { return false };
        let (id, upload) = (stream.id, &mut stream.upload);
        if !upload.feed.is_wanted(&Context::from_waker(waker)) {
            if !upload.waiting.is_empty() && upload.feed.is_abandoned() {
                let held = upload.let_go();
                self.took(held);
            }
            return false;
        }
        let (next, has_ended) = (upload.next(), upload.has_ended);
        let has_part = next.is_some();
        if let Some((part, length)) = next {
            upload.feed.hand_over(part, waker);
            let more = if has_ended { None } else { upload.window.took(length) };
            if has_ended && upload.waiting.is_empty() {
                upload.feed.end(Ok(()), waker);
            }
            self.took(length);
            self.tell_window(id, more);
        } else if has_ended {
            upload.feed.end(Ok(()), waker);
        }
        has_part || has_ended
    }

    fn reset_stream(&mut self, at: usize, code: ErrorCode) {
        if let Some(stream) = self.remove(at) {
            self.write_reset(stream.id, code);
        }
    }

    fn write_reset(&mut self, id: u32, code: ErrorCode) {
        self.wire.queue.write(|to| frame::write_reset(to, id, code));
        if self.reset.len() == RESET {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    fn remove(&mut self, at: usize) -> Option<Stream<'s, V::Body>> {
        let mut stream = self.streams.remove(at)?;
        if let Answer::Sending(Outflow { body, .. }) = &stream.answer {
            self.blocked -= usize::from(stream.is_blocked && matches!(body, Outgoing::Body(_)));
            self.turns.retain(|turn| *turn != at);
        }
        let held = stream.upload.let_go();
        self.took(held);
        if self.streams.open() == 0 {
            self.clocks.quiet = self.clocks.now;
        }
        Some(stream)
    }
}

#[cfg(test)]
mod tests;
