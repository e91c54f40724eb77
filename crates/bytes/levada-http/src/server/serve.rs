//! The server side of HTTP/1: the requests of one connection, one after the other.
//!
//! ```text
//!   head ──> service ──> head and body of the response ──> head ...
//!     └─ quiet: rest       └─ 101: the stream, for another protocol
//! ```
//!
//! One task drives all of it: it polls the service, feeds the body of the request to it, and writes the
//! response. While the service works, little is read unless it wants the body: enough to notice a client that
//! leaves, whose request is dropped. No deadline runs then: a slow origin is not the client's fault.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use tokio::{io::AsyncRead, time::Instant};

use super::{
    ConnectionEnd, ConnectionLimits, Outlet, Served,
    encoder::{self, AnswerFraming, Asked, WrittenHead},
    incoming::{BodyFeed, IncomingBody},
    interim::Interims,
    parser::{HeadParser, RequestHead},
    request_body::BodyDecoder,
    send_queue::SendQueue,
    wire::{Ended, Farewell, Wire},
};
use crate::{deadline::after, zero_copy::ZeroCopyQueue};

/// The service behind a connection.
pub trait Http1Service {
    /// The bodies of its responses.
    type Body: Body<Data = Bytes> + Unpin;

    /// Answers a request. Without a response the connection ends.
    fn call(
        &self,
        request: Request<IncomingBody>,
    ) -> impl Future<Output = Option<Response<Self::Body>>> + Send;

    /// The fields of a response that are written already, each as a line with its end: all but those of the map and of
    /// the connection. `Content-Length` is among them, which is the exact length of the body, and `Date`.
    fn written_fields(&self, _body: &mut Self::Body) -> Option<Vec<u8>> {
        None
    }

    /// Whether connections end after the response that is about to be sent.
    fn ends(&self) -> bool {
        false
    }

    /// Whether a body that breaks off by this error ends the connection by an orderly close: the client is to
    /// continue elsewhere. By any other it ends with a reset, because a client, or a cache, may take an orderly close
    /// for the end of a body.
    fn leaves(&self, _error: &<Self::Body as Body>::Error) -> bool {
        false
    }
}

/// How a connection is served.
#[derive(Clone, Debug)]
pub struct Http1Conduct {
    /// The limits of the client.
    pub limits: ConnectionLimits,
    /// The interim responses.
    pub interims: Arc<Interims>,
    /// The chunks that the system sends by itself.
    pub zero_copy: Option<Arc<ZeroCopyQueue>>,
    /// When the stream is given back.
    pub pause: Pause,
}

/// When the stream of a connection without a request is given back ([`Served::Resting`]).
#[derive(Clone, Copy, Debug)]
pub enum Pause {
    /// As soon as every request that has come is answered, and no byte of another is there.
    AfterResponse,
    /// When nothing has come for a while.
    Between {
        /// The time without a request; `None`: the connection ends in place of a rest.
        rests_after: Option<Duration>,
        /// The end of the idle time after an earlier rest.
        idle_until: Option<Instant>,
    },
}

/// Serves a connection until it ends, rests or switches to another protocol. When all is `over`, it ends unless
/// a request is under way, or its head comes within a second.
pub async fn serve_http1<S, V>(
    stream: S,
    service: &V,
    conduct: Http1Conduct,
    over: impl Future<Output = ()>,
) -> Served<S>
where
    S: AsyncRead + Outlet + Unpin,
    V: Http1Service,
{
    let Http1Conduct { limits, interims, zero_copy, pause } = conduct;
    let idle_until = match pause {
        Pause::Between { idle_until, .. } => idle_until,
        Pause::AfterResponse => None,
    };
    let mut connection = Http1Connection {
        wire: Wire::new(stream, limits, zero_copy),
        parser: HeadParser::new(limits.head),
        interims,
        pause,
        awaited: idle_until.map(|until| (true, until)),
        answered: false,
        is_over: false,
    };
    let mut over = pin!(over);
    let ended = loop {
        let head = match poll_fn(|cx| connection.poll_head(cx, over.as_mut())).await {
            Ok(head) => head,
            Err(NoHead::Quiet(until)) => return Served::Resting(connection.wire.stream, until),
            Err(NoHead::Ended(ended)) => break ended,
        };
        match connection.exchange(service, head).await {
            Ok(Next::Request) => {}
            Ok(Next::Switched) => {
                let Wire { stream, read, .. } = connection.wire;
                return Served::Switched(stream, read.into());
            }
            Err(ended) => break ended,
        }
    };
    Served::Ended(connection.wire.say_farewell(ended).await)
}

struct Http1Connection<S> {
    wire: Wire<S>,
    parser: HeadParser,
    interims: Arc<Interims>,
    pause: Pause,
    /// The deadline of what the client owes; true while that is the first byte of a head.
    awaited: Option<(bool, Instant)>,
    /// Whether a request was answered.
    answered: bool,
    is_over: bool,
}

/// No head has come.
enum NoHead {
    /// Nothing has come for a while. If nothing does, the connection ends at this instant.
    Quiet(Instant),
    Ended(Ended),
}

impl From<Ended> for NoHead {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

/// The state after a response.
enum Next {
    Request,
    Switched,
}

/// The body of a request that is being answered.
struct Upload {
    decoder: BodyDecoder,
    feed: BodyFeed,
    /// The client waits until it is asked.
    expects: bool,
    /// Whether the response has started.
    is_late: bool,
    /// The time that the client has left for it.
    left: Duration,
    deadline: Option<Instant>,
    /// The client's side ended within it.
    is_cut: bool,
}

/// The response that is being written.
struct Download<B> {
    /// `None` when all of it is queued.
    body: Option<B>,
    framing: AnswerFraming,
    takes_trailers: bool,
    /// The way in which the connection ends, since the body broke off.
    broken: Option<Ended>,
}

/// The time that is left for a head when all is over.
const LAST_HEAD: Duration = Duration::from_secs(1);
/// The interim response that asks for a body (RFC 9110 section 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Bytes that are read while the service works: some requests, or the beginning of a body.
const READ_AHEAD: usize = 16 << 10;
/// Bytes of a body that the service did not read, which are read for it, so that the connection goes on.
const UNREAD: usize = 64 << 10;

impl<S: AsyncRead + Outlet + Unpin> Http1Connection<S> {
    /// Reads until a head has come.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        over: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<Result<RequestHead, NoHead>> {
        let is_between = loop {
            match self.parser.take(&mut self.wire.read) {
                Ok(Some(head)) => {
                    self.awaited = None;
                    return Poll::Ready(Ok(head));
                }
                Ok(None) => {}
                Err(fault) => return no_head(ConnectionEnd::Violation(fault), Farewell::Refuse),
            }
            let is_between = self.parser.is_between() && self.wire.read.is_empty();
            if is_between && self.answered && matches!(self.pause, Pause::AfterResponse) {
                let until = after(self.wire.limits.idle_timeout);
                return Poll::Ready(Err(NoHead::Quiet(until)));
            }
            match self.wire.poll_read(cx)? {
                Poll::Ready(0) => {
                    let end = if is_between { ConnectionEnd::Closed } else { ConnectionEnd::Cut };
                    return no_head(end, Farewell::Close);
                }
                Poll::Ready(_) => {}
                Poll::Pending => break is_between,
            }
        };
        if !self.is_over && over.poll(cx).is_ready() {
            self.is_over = true;
            // The rest of a head may be on its way.
            let begun = self.awaited.filter(|(is_between, _)| !is_between);
            let last = after(LAST_HEAD);
            self.awaited = Some((false, begun.map_or(last, |(_, deadline)| deadline.min(last))));
        }
        if is_between && self.is_over {
            return no_head(ConnectionEnd::Finished, Farewell::Close);
        }
        self.poll_awaited(cx, is_between)
    }

    /// Ready when there was no request for a while, or a deadline has passed.
    fn poll_awaited(
        &mut self,
        cx: &mut Context<'_>,
        is_between: bool,
    ) -> Poll<Result<RequestHead, NoHead>> {
        let limits = &self.wire.limits;
        let deadline = match self.awaited {
            Some((between, deadline)) if between == is_between => deadline,
            _ if is_between => after(limits.idle_timeout),
            _ => after(limits.head_timeout),
        };
        self.awaited = Some((is_between, deadline));
        if let (true, Pause::Between { rests_after: Some(quiet), .. }) = (is_between, self.pause) {
            let earlier = limits.idle_timeout.saturating_sub(quiet);
            let rests_at = deadline.checked_sub(earlier).unwrap_or(deadline);
            ready!(self.wire.timer.poll(cx, rests_at));
            if Instant::now() < deadline {
                return Poll::Ready(Err(NoHead::Quiet(deadline)));
            }
        }
        ready!(self.wire.timer.poll(cx, deadline));
        match is_between {
            true => no_head(ConnectionEnd::IdleTimeout, Farewell::Close),
            false if self.is_over => no_head(ConnectionEnd::Finished, Farewell::Close),
            false => no_head(ConnectionEnd::HeadTimeout, Farewell::Refuse),
        }
    }

    /// Has a request answered.
    async fn exchange<V: Http1Service>(
        &mut self,
        service: &V,
        head: RequestHead,
    ) -> Result<Next, Ended> {
        let RequestHead { request, length, stays, expects, takes_trailers } = head;
        let (method, version) = (request.method().clone(), request.version());
        let (body, feed) = IncomingBody::new(length);
        let mut upload = Upload {
            decoder: BodyDecoder::new(length),
            feed,
            expects,
            is_late: false,
            left: self.wire.limits.body.time,
            deadline: None,
            is_cut: false,
        };
        // Older clients would take them for the final response (RFC 9110 Sec. 15.2).
        if version == Version::HTTP_11 {
            self.interims.begin();
        }
        let response = {
            let mut answering = pin!(service.call(request.map(|()| body)));
            poll_fn(|cx| self.poll_answer(cx, answering.as_mut(), &mut upload)).await?
        };
        self.interims.end();
        self.answered = true;
        let Some(response) = response else {
            return Err(Ended::by(ConnectionEnd::Finished, Farewell::Close));
        };
        let (head, mut body) = response.into_parts();
        let ready = service.written_fields(&mut body);
        let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
        // A client that waits until it is asked for the body may take this response, and go on with a request in its
        // place. Behind CONNECT may be the first bytes of a tunnel, which others decide about.
        let waits = upload.expects && self.wire.read.is_empty() && !upload.decoder.is_done();
        let is_in_step = !waits && method != Method::CONNECT;
        let stays = stays && is_in_step && !self.is_over && !service.ends();
        let asked = Asked { method: &method, version, stays };
        let WrittenHead { framing, stays } = self
            .wire
            .queue
            .write(|text| encoder::write_head(text, &head, ready.as_deref(), length, asked));
        let is_switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
        self.parser.recycle(head.headers);
        // A request that is still under way may keep the connection open for a while.
        self.wire.queue.is_last = !stays && !is_switched && upload.decoder.is_done();
        upload.is_late = true;
        let body = (framing != AnswerFraming::Counted(0)).then_some(body);
        let mut download = Download { body, framing, takes_trailers, broken: None };
        poll_fn(|cx| self.poll_respond(cx, service, &mut download, &mut upload)).await?;
        drop(download);
        if is_switched {
            return Ok(Next::Switched);
        }
        self.pass_over_body(&mut upload).await?;
        match stays {
            true => Ok(Next::Request),
            // More may have come than was read.
            false if !self.wire.read.is_empty() => {
                Err(Ended::by(ConnectionEnd::Finished, Farewell::Linger))
            }
            false => Err(Ended::by(ConnectionEnd::Finished, Farewell::Close)),
        }
    }

    /// Polls the service for its response, and serves its wishes meanwhile: the body of the request, and interim
    /// responses.
    fn poll_answer<A: Future>(
        &mut self,
        cx: &mut Context<'_>,
        mut answering: Pin<&mut A>,
        upload: &mut Upload,
    ) -> Poll<Result<A::Output, Ended>> {
        loop {
            upload.feed.enter();
            let answered = answering.as_mut().poll(cx);
            if answered.is_pending() {
                self.interims.notify(cx.waker());
            }
            if self.interims.is_waiting() {
                let interim = self.interims.take();
                self.wire.queue.write(|text| text.extend_from_slice(&interim));
            }
            if let Poll::Ready(response) = answered {
                return Poll::Ready(Ok(response));
            }
            let fed = self.poll_feed(cx, upload)?;
            if self.wire.poll_write(cx)?.is_ready() {
                let _ = self.wire.poll_flush(cx)?;
            }
            if fed.is_pending() {
                return self.poll_departure(cx);
            }
        }
    }

    /// Ready when the client has left: it has closed the connection, or its side of it, as nginx sees it too. Bytes
    /// that come meanwhile are kept. Behind more than [`READ_AHEAD`] of them no end is seen. Before the first response
    /// of a stream that is given back, nothing is read: a server to which a connection was handed over may still leave
    /// its request to the front-end. Within a response, the bytes that are sent show whether the client is there.
    fn poll_departure<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Ended>> {
        let reads = self.answered || !matches!(self.pause, Pause::AfterResponse);
        while reads && self.wire.read.len() < READ_AHEAD {
            if ready!(self.wire.poll_read(cx))? == 0 {
                return Poll::Ready(Err(Ended::by(ConnectionEnd::Cut, Farewell::Close)));
            }
        }
        Poll::Pending
    }

    /// Writes the response, and feeds the body of the request meanwhile.
    fn poll_respond<V: Http1Service>(
        &mut self,
        cx: &mut Context<'_>,
        service: &V,
        download: &mut Download<V::Body>,
        upload: &mut Upload,
    ) -> Poll<Result<(), Ended>> {
        loop {
            upload.feed.enter();
            let written = self.poll_write_response(cx, service, download)?;
            if written.is_ready() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_feed(cx, upload)?);
        }
    }

    /// Gathers the pieces of the response that have come, and writes them.
    fn poll_write_response<V: Http1Service>(
        &mut self,
        cx: &mut Context<'_>,
        service: &V,
        download: &mut Download<V::Body>,
    ) -> Poll<Result<(), Ended>> {
        loop {
            while self.wire.queue.has_room()
                && let Some(body) = &mut download.body
            {
                match Pin::new(body).poll_frame(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Some(Err(error))) => {
                        download.body = None;
                        download.broken = Some(match service.leaves(&error) {
                            true => Ended::by(ConnectionEnd::Moved, Farewell::Linger),
                            false => Ended::by(ConnectionEnd::Finished, Farewell::Reset),
                        });
                    }
                    Poll::Ready(frame) => {
                        let frame = frame.and_then(Result::ok);
                        download.queue(&mut self.wire.queue, frame);
                    }
                }
            }
            let writes = !self.wire.queue.is_empty();
            self.wire.queue.is_whole = download.body.is_none();
            ready!(self.wire.poll_write(cx))?;
            if download.body.is_none() {
                ready!(self.wire.poll_flush(cx))?;
                return Poll::Ready(download.broken.map_or(Ok(()), Err));
            }
            // After a write the body is polled again: it may have waited for an empty pipe.
            if !writes {
                let _ = self.wire.poll_flush(cx)?;
                return Poll::Pending;
            }
        }
    }

    /// Hands the next piece of the request's body to the service, if that waits for one. Pending as long as nothing
    /// changes for it.
    fn poll_feed(&mut self, cx: &mut Context<'_>, upload: &mut Upload) -> Poll<Result<(), Ended>> {
        if !upload.feed.is_wanted(cx) {
            return Poll::Pending;
        }
        if std::mem::take(&mut upload.expects) && !upload.is_late {
            self.wire.queue.write(|text| text.extend_from_slice(CONTINUE));
        }
        loop {
            match upload.decoder.take(&mut self.wire.read) {
                Ok(Some(frame)) => {
                    upload.feed.hand_over(frame, cx.waker());
                    if upload.decoder.is_done() {
                        upload.feed.end(Ok(()), cx.waker());
                    }
                    return Poll::Ready(Ok(()));
                }
                Ok(None) if upload.decoder.is_done() => {
                    upload.feed.end(Ok(()), cx.waker());
                    return Poll::Ready(Ok(()));
                }
                Ok(None) => {}
                Err(fault) => return upload.refuse(ConnectionEnd::Violation(fault)),
            }
            match self.wire.poll_read(cx)? {
                Poll::Ready(0) => {
                    upload.is_cut = true;
                    upload.feed.end(Err(ConnectionEnd::Cut), cx.waker());
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(count) => {
                    if let Some(deadline) = upload.deadline.take() {
                        let left = deadline.saturating_duration_since(Instant::now());
                        upload.left = self.wire.limits.body.earned(left, count as u64);
                    }
                }
                Poll::Pending => {
                    let deadline = *upload.deadline.get_or_insert_with(|| after(upload.left));
                    ready!(self.wire.timer.poll(cx, deadline));
                    return upload.refuse(ConnectionEnd::BodyTimeout);
                }
            }
        }
    }

    /// Reads past the rest of a body that the service did not read, as far as it has come.
    async fn pass_over_body(&mut self, upload: &mut Upload) -> Result<(), Ended> {
        if upload.is_cut {
            return Err(Ended::by(ConnectionEnd::Cut, Farewell::Close));
        }
        let (mut left, mut has_come) = (UNREAD, true);
        while !upload.decoder.is_done() {
            match upload.decoder.take(&mut self.wire.read) {
                Ok(Some(frame)) => {
                    left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                }
                Ok(None) if upload.decoder.is_done() => {}
                Ok(None) if has_come && left > 0 => {
                    has_come = poll_fn(|cx| {
                        Poll::Ready(matches!(self.wire.poll_read(cx), Poll::Ready(Ok(1..))))
                    })
                    .await;
                }
                Ok(None) => {
                    return Err(Ended::by(ConnectionEnd::Finished, Farewell::Linger));
                }
                Err(fault) => {
                    return Err(Ended::by(ConnectionEnd::Violation(fault), Farewell::Linger));
                }
            }
        }
        Ok(())
    }
}

impl Upload {
    /// A response that has started cannot be replaced: then a reset tells that it is not complete.
    fn refuse<T>(&self, end: ConnectionEnd) -> Poll<Result<T, Ended>> {
        let farewell = if self.is_late { Farewell::Reset } else { Farewell::Refuse };
        Poll::Ready(Err(Ended::by(end, farewell)))
    }
}

impl<B> Download<B> {
    /// Queues a part of the body as it is framed; `None` at its end.
    fn queue(&mut self, queue: &mut SendQueue, frame: Option<Frame<Bytes>>) {
        let Some(frame) = frame else { return self.end(queue, None) };
        let mut piece = match frame.into_data() {
            Ok(piece) => piece,
            Err(frame) => {
                let trailers = frame.into_trailers().ok().filter(|_| self.takes_trailers);
                return self.end(queue, trailers.as_ref());
            }
        };
        match &mut self.framing {
            AnswerFraming::Counted(left) => {
                piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece.len() as u64;
                queue.push(piece);
                if *left == 0 {
                    self.body = None;
                }
            }
            // An empty chunk would be the last one.
            AnswerFraming::Chunked if piece.is_empty() => {}
            AnswerFraming::Chunked => {
                queue.write(|text| {
                    encoder::write_number(text, piece.len() as u64, 16);
                    text.extend_from_slice(b"\r\n");
                });
                queue.push(piece);
                queue.write(|text| text.extend_from_slice(b"\r\n"));
            }
            AnswerFraming::UntilClose => queue.push(piece),
        }
    }

    fn end(&mut self, queue: &mut SendQueue, trailers: Option<&HeaderMap>) {
        self.body = None;
        match self.framing {
            AnswerFraming::Chunked => queue.write(|text| {
                text.extend_from_slice(b"0\r\n");
                trailers.into_iter().for_each(|fields| encoder::write_fields(text, fields));
                text.extend_from_slice(b"\r\n");
            }),
            // Shorter than its head says.
            AnswerFraming::Counted(1..) => {
                self.broken = Some(Ended::by(ConnectionEnd::Finished, Farewell::Reset));
            }
            _ => {}
        }
    }
}

fn no_head<T>(end: ConnectionEnd, farewell: Farewell) -> Poll<Result<T, NoHead>> {
    Poll::Ready(Err(Ended::by(end, farewell).into()))
}

#[cfg(test)]
pub(super) mod tests;
