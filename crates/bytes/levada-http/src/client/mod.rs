//! One HTTP/1.1 connection to a server, with one request on it at a time.
//!
//! ```text
//!   UpstreamRequest, body ──> OutgoingRequest ──┐
//!                                               ├── Io (TCP, TLS, Unix)
//!   head, frames <── BodyFraming <──────────────┘
//! ```
//!
//! The task that waits for the response drives the connection. It has no task and no channels of its own:
//! they would cost as much as the rest of a small exchange. For the same reason it parses the framing of a
//! response once, and strictly: an ambiguous one is an error (RFC 9112 Sec. 6.3, 11.2).

mod answer;
mod conveyor;
mod framing;
mod io;
pub(crate) mod judgement;
mod outgoing;

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Response, StatusCode, Uri, header::UPGRADE};
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

pub use self::io::Io;
use self::{
    answer::ResponseHeads,
    conveyor::Conveyor,
    framing::BodyFraming,
    outgoing::{Halt, OutgoingRequest},
};
use crate::{
    deadline::{DeadlineTimer, after},
    zero_copy::ZeroCopyQueue,
};

/// Bytes that are read at once, at first.
const ROOM: usize = 8 << 10;
/// The same at most, after enough reads have filled all their room.
const LARGE_ROOM: usize = 384 << 10;

/// The head of a request to a server.
pub struct UpstreamRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The URI. Its path and query become the request target.
    pub uri: &'a Uri,
    /// The header fields. The ones that frame the body are replaced. With `Upgrade`, the response may switch
    /// to another protocol ([`UpstreamConnection::into_switched`]).
    pub headers: &'a HeaderMap,
}

/// The reason why a request got no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    /// The connection ended without a response.
    NoResponse,
    /// The response is malformed or ambiguous.
    BadResponse,
    /// The server did not respond in time.
    ResponseTimeout,
    /// The request's body broke off.
    RequestBody,
}

/// The reason why the body of a response broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBodyError {
    /// The server's side, with the reason.
    Broken(&'static str),
    /// The body of the request, which was still being sent.
    Request,
}

/// A head that is malformed or ambiguous.
#[derive(Debug, PartialEq, Eq)]
struct BadResponse;

impl From<BadResponse> for UpstreamError {
    fn from(_: BadResponse) -> Self {
        Self::BadResponse
    }
}

/// A connection. `B` is the body of requests.
pub struct UpstreamConnection<B> {
    io: Io,
    /// Bytes that have come and were not taken.
    read: BytesMut,
    /// Room for the next read. Pieces of a body keep all their room, so it must not exceed what comes.
    room: usize,
    /// The bound of `room`.
    most: usize,
    outgoing: OutgoingRequest<B>,
    /// The framing of the response that is being read.
    framing: BodyFraming,
    /// The way by which the system may move the body to its client.
    conveyor: Option<Conveyor>,
    /// Whether the server takes another request after this one.
    stays: bool,
    /// Responses whose heads have come.
    answers: u64,
    /// How many fields a response may have.
    fields: usize,
    timer: DeadlineTimer,
}

impl<B: Body<Data = Bytes> + Unpin> UpstreamConnection<B> {
    /// A connection that is open. Responses may have so many `fields`.
    pub fn new(io: Io, fields: usize) -> Self {
        Self {
            io,
            read: BytesMut::new(),
            room: ROOM,
            most: LARGE_ROOM,
            outgoing: OutgoingRequest::default(),
            framing: BodyFraming::Done,
            conveyor: None,
            stays: true,
            answers: 0,
            fields,
            timer: DeadlineTimer::default(),
        }
    }

    /// Bounds the bytes of the response that are read at once, for callers with a memory budget. Gives up a
    /// buffer that is larger.
    pub fn read_at_most(&mut self, bytes: usize) {
        self.most = bytes.clamp(ROOM, LARGE_ROOM);
        self.room = self.room.min(self.most);
        if self.read.is_empty() && self.read.capacity() > self.most {
            self.read = BytesMut::new();
        }
    }

    /// Lets the system move the body to the client that has this queue, if it is long. Returns whether it
    /// does.
    pub fn convey(&mut self, zero_copy: &Arc<ZeroCopyQueue>) -> bool {
        if let BodyFraming::Counted(left) = &self.framing
            && self.io.is_plain()
            && left.saturating_sub(self.read.len() as u64) >= conveyor::FROM
        {
            self.conveyor = Conveyor::new(zero_copy);
        }
        self.conveyor.is_some()
    }

    /// Whether reading waits for the client to take the previous piece.
    pub fn waits_for_client(&self) -> bool {
        self.conveyor.as_ref().is_some_and(Conveyor::is_full)
    }

    /// Whether an idle connection is still open, and the server has sent nothing unasked. Such bytes would
    /// become the beginning of another response. Bytes that come after this check cannot be distinguished from a
    /// response.
    pub fn is_fresh(&mut self) -> bool {
        let mut byte = [0];
        let cx = &mut Context::from_waker(Waker::noop());
        Pin::new(&mut self.io).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Whether another request may follow the one that has ended. Frees the memory that only a long body
    /// needs.
    pub fn rest(&mut self) -> bool {
        let reusable =
            self.stays && self.is_ended() && self.read.is_empty() && self.outgoing.is_done();
        if self.read.capacity() > 2 * ROOM {
            self.read = BytesMut::new();
        }
        (self.room, self.most, self.conveyor) = (ROOM, LARGE_ROOM, None);
        reusable
    }

    /// Whether the response has been read to its end.
    pub fn is_ended(&self) -> bool {
        matches!(self.framing, BodyFraming::Done)
    }

    /// Whether the server has answered again after it had answered a request: it does not close the connection
    /// after each response.
    pub fn is_proved(&self) -> bool {
        self.answers > 1
    }

    /// Whether all of the response is here already, although it was not taken.
    pub fn has_come(&self) -> bool {
        match self.framing {
            BodyFraming::Done => true,
            BodyFraming::Counted(left) => self.read.len() as u64 >= left,
            _ => false,
        }
    }

    /// The stream of a connection whose response has switched to another protocol, and the bytes that came
    /// after it; `None` if it has not.
    pub fn into_switched(self) -> Option<(Io, Bytes)> {
        let is_switched = matches!(self.framing, BodyFraming::Switched);
        is_switched.then(|| (self.io, self.read.freeze()))
    }

    /// The body of a request of which nothing was sent.
    pub fn take_back(&mut self) -> Option<B> {
        self.outgoing.take_back()
    }

    /// Sends a request and awaits the head of its response, for `timeout` at most. When that is over,
    /// `extends` tells whether to wait as long again. Interim responses go to `interim`.
    ///
    /// # Errors
    /// The body comes back by [`Self::take_back`] when no byte was sent.
    pub async fn ask(
        &mut self,
        request: &UpstreamRequest<'_>,
        body: B,
        timeout: Duration,
        extends: impl Fn() -> bool,
        interim: impl Fn(StatusCode, &HeaderMap),
    ) -> Result<Response<()>, UpstreamError> {
        self.outgoing.begin(request, body);
        let mut heads = ResponseHeads::new(request.headers.contains_key(UPGRADE));
        let mut deadline = after(timeout);
        std::future::poll_fn(|cx| {
            loop {
                if let Poll::Ready(answer) =
                    self.poll_head(cx, request.method, &mut heads, &interim)
                {
                    return Poll::Ready(answer);
                }
                ready!(self.timer.poll(cx, deadline));
                if !extends() {
                    return Poll::Ready(Err(UpstreamError::ResponseTimeout));
                }
                deadline = after(timeout);
            }
        })
        .await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        method: &Method,
        heads: &mut ResponseHeads,
        interim: &impl Fn(StatusCode, &HeaderMap),
    ) -> Poll<Result<Response<()>, UpstreamError>> {
        match self.outgoing.poll(cx, &mut self.io) {
            Poll::Ready(Err(Halt::Body)) => return Poll::Ready(Err(UpstreamError::RequestBody)),
            Poll::Ready(Err(Halt::Wire)) => {
                if self.outgoing.is_untouched() {
                    return Poll::Ready(Err(UpstreamError::NoResponse));
                }
                // The server may have answered before it closed.
                self.give_up_sending();
            }
            _ => {}
        }
        loop {
            if let Some(answer) = heads.take(&mut self.read, method, self.fields, interim)? {
                self.stays &= answer.stays;
                self.answers += 1;
                self.framing = answer.framing;
                return Poll::Ready(Ok(answer.head));
            }
            let count = ready!(self.poll_read(cx)).map_err(|_| UpstreamError::NoResponse)?;
            if count == 0 {
                return Poll::Ready(Err(UpstreamError::NoResponse));
            }
        }
    }

    /// The next piece of the response's body.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        // The request may go on while its response comes in.
        match self.outgoing.poll(cx, &mut self.io) {
            Poll::Ready(Err(Halt::Body)) => {
                return Poll::Ready(Some(Err(ResponseBodyError::Request)));
            }
            Poll::Ready(Err(Halt::Wire)) => self.give_up_sending(),
            _ => {}
        }
        loop {
            match self.framing.take(&mut self.read) {
                Ok(None) if self.is_ended() => return Poll::Ready(None),
                Ok(None) => {}
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            match ready!(self.poll_conveyed(cx)) {
                Some(Ok(Some(piece))) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Some(Ok(None)) => {
                    return Poll::Ready(Some(Err(ResponseBodyError::Broken(
                        "the connection closed",
                    ))));
                }
                // Reading the connection tells the error.
                Some(Err(_)) => self.conveyor = None,
                None => {}
            }
            match ready!(self.poll_read(cx)) {
                Ok(1..) => {}
                Ok(0) if matches!(self.framing, BodyFraming::UntilClose) => {
                    self.framing = BodyFraming::Done;
                    return Poll::Ready(None);
                }
                _ => {
                    return Poll::Ready(Some(Err(ResponseBodyError::Broken(
                        "the connection closed",
                    ))));
                }
            }
        }
    }

    /// The stand-in for the next piece of a body that the system moves, if this is one.
    fn poll_conveyed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Option<Bytes>>>> {
        let (BodyFraming::Counted(left), Some(conveyor)) = (&mut self.framing, &self.conveyor)
        else {
            return Poll::Ready(None);
        };
        let piece = ready!(conveyor.poll(cx, &self.io, *left));
        if let Ok(Some(piece)) = &piece {
            *left -= piece.len() as u64;
            if *left == 0 {
                self.framing = BodyFraming::Done;
            }
        }
        Poll::Ready(Some(piece))
    }

    /// The length of the rest of the body, if it is known.
    pub fn size_hint(&self) -> SizeHint {
        match self.framing {
            BodyFraming::Done => SizeHint::with_exact(0),
            BodyFraming::Counted(left) => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }

    /// Reads the bytes that have come. There is always room for half of a read, so that small pieces share
    /// their memory.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        if self.read.capacity() - self.read.len() < self.room / 2 {
            self.read.reserve(self.room);
        }
        let spare = self.read.capacity() - self.read.len();
        let count = ready!(pin!(self.io.read_buf(&mut self.read)).poll(cx))?;
        if count >= spare {
            self.room = (2 * self.room).min(self.most);
        } else if count < self.room / 4 {
            self.room = (self.room / 2).max(ROOM);
        }
        Poll::Ready(Ok(count))
    }

    fn give_up_sending(&mut self) {
        self.outgoing.give_up();
        self.stays = false;
    }
}
