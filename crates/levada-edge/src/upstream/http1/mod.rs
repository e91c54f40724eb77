//! One HTTP/1.1 connection to a server, with one request on it at a time.
//!
//! ```text
//!   Head, RequestBody ──> Outgoing ──┐
//!                                    ├── Io (TCP, TLS, Unix)
//!   head, frames <── Framing <───────┘
//! ```
//!
//! Whoever waits for the response drives the connection: it has no task and no channels of its own,
//! which would cost as much as all the rest of a small exchange. For the same reason it reads the
//! framing of a response once, and as strictly as this node's own clients may expect: what could be
//! understood in two ways is an error (RFC 9112 Sec. 6.3, 11.2).

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
use http::{HeaderMap, Response};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

pub(super) use self::io::Io;
use self::{
    answer::Heads,
    conveyor::Conveyor,
    framing::BodyFraming,
    outgoing::{Halt, OutgoingBody},
};
use super::UpstreamHead;
use crate::{
    alarm::{Alarm, after},
    body::{BodyError, Progress, RequestBody},
    failure::Failure,
    guard::ZeroCopyQueue,
};

/// Room for what is read at once, at first.
const ROOM: usize = 8 << 10;
/// And at most, after as many reads as it takes have filled what there was.
const LARGE_ROOM: usize = 384 << 10;

/// A connection.
pub(super) struct Http1Connection {
    io: Io,
    /// What has come and was not taken.
    read: BytesMut,
    /// For what is read next. Pieces of a body hold on to their room: it must not be more than what
    /// comes fills.
    room: usize,
    /// How far it grows.
    most: usize,
    outgoing: OutgoingBody,
    /// Of the response that is being read.
    framing: BodyFraming,
    /// By which the body may go to its client.
    conveyor: Option<Conveyor>,
    /// Whether the server takes another request after this one.
    stays: bool,
    /// How many fields a response may have.
    fields: usize,
    alarm: Alarm,
}

impl Http1Connection {
    pub(super) fn new(io: Io, fields: usize) -> Self {
        Self {
            io,
            read: BytesMut::new(),
            room: ROOM,
            most: LARGE_ROOM,
            outgoing: OutgoingBody::default(),
            framing: BodyFraming::Done,
            conveyor: None,
            stays: true,
            fields,
            alarm: Alarm::default(),
        }
    }

    /// Reads so much of the response at once at most, for those who count what they hold.
    pub(super) fn read_at_most(&mut self, bytes: usize) {
        self.most = bytes.max(ROOM);
    }

    /// Lets the system move the body to the client that parcels are for, if it is long; whether it is.
    pub(super) fn convey(&mut self, zero_copy: &Arc<ZeroCopyQueue>) -> bool {
        if let (BodyFraming::Counted(left), Io::Plain(_)) = (&self.framing, &self.io)
            && left.saturating_sub(self.read.len() as u64) >= conveyor::FROM
        {
            self.conveyor = Conveyor::new(zero_copy);
        }
        self.conveyor.is_some()
    }

    /// Whether nothing comes because the client has not taken what came before.
    pub(super) fn waits_for_client(&self) -> bool {
        self.conveyor.as_ref().is_some_and(Conveyor::is_full)
    }

    /// Whether an idle connection is still open, and the server has sent nothing unasked: bytes that
    /// nobody awaits would become the beginning of a stranger's response. What comes only after this
    /// look cannot be told from an answer.
    pub(super) fn is_fresh(&mut self) -> bool {
        let mut byte = [0];
        let cx = &mut Context::from_waker(Waker::noop());
        Pin::new(&mut self.io).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Whether another exchange may follow the one that has ended. Lets go of what only a long body
    /// needs.
    pub(super) fn rest(&mut self) -> bool {
        let reusable =
            self.stays && self.is_ended() && self.read.is_empty() && self.outgoing.is_done();
        if self.read.capacity() > 2 * ROOM {
            self.read = BytesMut::new();
        }
        (self.room, self.most, self.conveyor) = (ROOM, LARGE_ROOM, None);
        reusable
    }

    /// Whether the response has been read to its end.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.framing, BodyFraming::Done)
    }

    /// The body of a request of which nothing was sent.
    pub(super) fn take_back(&mut self) -> Option<RequestBody> {
        self.outgoing.take_back()
    }

    /// Sends a request and awaits the head of its response.
    pub(super) async fn ask(
        &mut self,
        head: &UpstreamHead,
        body: RequestBody,
        upload: Option<&Progress>,
        patience: Duration,
    ) -> Result<Response<()>, Failure> {
        self.outgoing.begin(head, body);
        let mut heads = Heads::new();
        let mut deadline = after(patience);
        std::future::poll_fn(|cx| {
            loop {
                if let Poll::Ready(answer) = self.poll_answer(cx, head, &mut heads) {
                    return Poll::Ready(answer);
                }
                ready!(self.alarm.poll(cx, deadline));
                // The server may wait for the end of the request: its time has not begun.
                if !upload.is_some_and(Progress::excuses) {
                    return Poll::Ready(Err(Failure::ResponseTimeout));
                }
                deadline = after(patience);
            }
        })
        .await
    }

    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        head: &UpstreamHead,
        heads: &mut Heads,
    ) -> Poll<Result<Response<()>, Failure>> {
        match self.outgoing.poll(cx, &mut self.io) {
            Poll::Ready(Err(Halt::Body)) => return Poll::Ready(Err(Failure::RequestBody)),
            Poll::Ready(Err(Halt::Wire)) => {
                if self.outgoing.is_untouched() {
                    return Poll::Ready(Err(Failure::NoResponse));
                }
                // The server may have answered before it closed.
                self.give_up_sending();
            }
            _ => {}
        }
        let interim = |status, headers: &HeaderMap| {
            if let Some(interim) = &head.interim {
                interim.pass(status, headers);
            }
        };
        loop {
            if let Some(answer) = heads.take(&mut self.read, &head.method, self.fields, interim)? {
                self.stays &= answer.stays;
                self.framing = answer.framing;
                return Poll::Ready(Ok(answer.head));
            }
            let count = ready!(self.poll_read(cx)).map_err(|_| Failure::NoResponse)?;
            if count == 0 {
                return Poll::Ready(Err(Failure::NoResponse));
            }
        }
    }

    /// The next piece of the response's body.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // The request may go on while its response comes in.
        match self.outgoing.poll(cx, &mut self.io) {
            Poll::Ready(Err(Halt::Body)) => return Poll::Ready(Some(Err(BodyError::Request))),
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
                    return Poll::Ready(Some(Err(BodyError::Broken("the connection closed"))));
                }
                // What is wrong with the connection shows when it is read.
                Some(Err(_)) => self.conveyor = None,
                None => {}
            }
            match ready!(self.poll_read(cx)) {
                Ok(1..) => {}
                Ok(0) if matches!(self.framing, BodyFraming::UntilClose) => {
                    self.framing = BodyFraming::Done;
                    return Poll::Ready(None);
                }
                _ => return Poll::Ready(Some(Err(BodyError::Broken("the connection closed")))),
            }
        }
    }

    /// The next piece of a body that the system moves, if this is one.
    fn poll_conveyed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Option<Bytes>>>> {
        let (BodyFraming::Counted(left), Some(conveyor), Io::Plain(stream)) =
            (&mut self.framing, &self.conveyor, &self.io)
        else {
            return Poll::Ready(None);
        };
        let piece = ready!(conveyor.poll(cx, stream, *left));
        if let Ok(Some(piece)) = &piece {
            *left -= piece.len() as u64;
            if *left == 0 {
                self.framing = BodyFraming::Done;
            }
        }
        Poll::Ready(Some(piece))
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self.framing {
            BodyFraming::Done => SizeHint::with_exact(0),
            BodyFraming::Counted(left) => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }

    /// Reads what has come. There is always room for half of what should be read at once, so that
    /// small pieces share what they hold on to.
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
