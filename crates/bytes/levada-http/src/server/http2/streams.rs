//! The streams of a connection, each in a place that it keeps until it ends, with a waker of its own ([`Wakeups`]).
//! Places are used again: a stream that is answered at once allocates no waker.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Response};
use http_body::{Body, Frame};

use super::{
    flow::{ReceiveWindow, SendWindow},
    tunnel::TunnelOutlet,
};
use crate::{
    server::incoming::{BodyFeed, IncomingBody},
    wakeups::{self, Wakeups},
};

/// The streams that a client may have open at once.
pub(super) const MOST: usize = wakeups::MOST;
/// Parts of bodies that are shorter are joined while they wait.
const SHORT: usize = 1 << 10;

/// A stream.
pub(super) struct Stream<'s, B> {
    pub(super) id: u32,
    pub(super) method: Method,
    pub(super) answer: Answer<'s, B>,
    /// The window of its response.
    pub(super) window: SendWindow,
    pub(super) upload: Inflow,
    /// The body of a CONNECT, which is for a tunnel alone.
    pub(super) tunnel_body: Option<IncomingBody>,
    /// The wait for a window is over when the client opens one.
    pub(super) is_blocked: bool,
}

/// The response of a stream.
pub(super) enum Answer<'s, B> {
    Awaited(Pin<Box<dyn Future<Output = Response<B>> + Send + 's>>),
    Sending(Outflow<B>),
    /// A tunnel is kept, whose other way may go on.
    Sent(Option<TunnelOutlet>),
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct Inflow {
    pub(super) feed: BodyFeed,
    /// The parts that have come and were not taken.
    pub(super) waiting: VecDeque<Frame<Bytes>>,
    pub(super) window: ReceiveWindow,
    /// The bytes that are still to come, if the request states them.
    pub(super) left: Option<u64>,
    pub(super) has_ended: bool,
}

/// The body of a response.
pub(super) struct Outflow<B> {
    pub(super) body: Outgoing<B>,
    /// The rest of the last piece.
    pub(super) piece: Bytes,
    pub(super) trailers: Option<HeaderMap>,
    /// Nothing comes behind piece and trailers.
    pub(super) ends: bool,
    /// It waits for its body, which wakes it.
    pub(super) waits: bool,
}

/// The source of a body.
pub(super) enum Outgoing<B> {
    Body(B),
    Tunnel(TunnelOutlet),
}

impl Inflow {
    /// Takes out what is to be read next. Returns its length as well.
    pub(super) fn next(&mut self) -> Option<(Frame<Bytes>, usize)> {
        let frame = self.waiting.pop_front()?;
        let length = frame.data_ref().map_or(0, Bytes::len);
        Some((frame, length))
    }

    /// Has data wait. Short parts share a frame, which takes much more memory than they do.
    pub(super) fn keep(&mut self, data: Bytes) {
        match self.waiting.back_mut().and_then(Frame::data_mut) {
            Some(last) if last.len().max(data.len()) < SHORT => {
                let mut joined = BytesMut::from(std::mem::take(last));
                joined.extend_from_slice(&data);
                *last = joined.freeze();
            }
            _ => self.waiting.push_back(Frame::data(data)),
        }
    }

    /// Drops what has come and was not taken. Returns its length.
    pub(super) fn let_go(&mut self) -> usize {
        self.waiting
            .drain(..)
            .filter_map(|frame| frame.into_data().ok())
            .map(|data| data.len())
            .sum()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Outflow<B> {
    pub(super) fn new(body: Outgoing<B>) -> Self {
        Self { body, piece: Bytes::new(), trailers: None, ends: false, waits: false }
    }

    /// Takes parts of the body until there is something to be sent.
    ///
    /// # Errors
    /// The body has broken off.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        while self.piece.is_empty() && !self.ends {
            let frame = match &mut self.body {
                Outgoing::Body(body) => Pin::new(body).poll_frame(cx).map_err(drop),
                Outgoing::Tunnel(end) => end.poll(cx).map_ok(Frame::data),
            };
            match std::task::ready!(frame).transpose()?.map(Frame::into_data) {
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(other)) => {
                    self.trailers = other.into_trailers().ok();
                    self.ends = true;
                }
                None => self.ends = true,
            }
            if let Outgoing::Body(body) = &self.body {
                self.ends |= body.is_end_stream();
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The places of streams.
pub(super) struct Streams<'s, B> {
    /// The streams by place, where 0 is none.
    ids: Vec<u32>,
    places: Vec<StreamPlace<'s, B>>,
    open: usize,
    pub(super) wakeups: Arc<Wakeups>,
}

pub(super) struct StreamPlace<'s, B> {
    pub(super) waker: Waker,
    pub(super) stream: Option<Stream<'s, B>>,
}

impl<'s, B> Streams<'s, B> {
    pub(super) fn new() -> Self {
        Self { ids: Vec::new(), places: Vec::new(), open: 0, wakeups: Arc::default() }
    }

    /// How many streams there are.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// The place of a stream.
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.ids.iter().position(|other| *other == id)
    }

    /// Gives a stream a place, of which there are [`MOST`].
    pub(super) fn insert(&mut self, stream: Stream<'s, B>) -> usize {
        let at = self.find(0).unwrap_or_else(|| {
            let at = self.ids.len();
            let waker = self.wakeups.waker(at);
            self.ids.push(0);
            self.places.push(StreamPlace { waker, stream: None });
            at
        });
        self.ids[at] = stream.id;
        self.places[at].stream = Some(stream);
        self.open += 1;
        at
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Stream<'s, B>> {
        let stream = self.places.get_mut(at)?.stream.take()?;
        self.ids[at] = 0;
        self.open -= 1;
        Some(stream)
    }

    /// A stream and the waker of its place.
    pub(super) fn get(&mut self, at: usize) -> Option<(&mut Stream<'s, B>, &Waker)> {
        let StreamPlace { waker, stream } = self.places.get_mut(at)?;
        Some((stream.as_mut()?, waker))
    }

    /// All streams with their places.
    pub(super) fn all(&mut self) -> impl Iterator<Item = (usize, &mut Stream<'s, B>)> {
        let streams = self.places.iter_mut().map(|place| place.stream.as_mut()).enumerate();
        streams.filter_map(|(at, stream)| Some((at, stream?)))
    }

    /// Gives the memory of places back that no stream has.
    pub(super) fn rest(&mut self) {
        if self.open == 0 {
            (self.ids, self.places) = (Vec::new(), Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_parts_that_wait_are_joined() {
        let mut upload = Inflow {
            feed: BodyFeed::default(),
            waiting: VecDeque::new(),
            window: ReceiveWindow::new(1 << 20),
            left: None,
            has_ended: false,
        };
        for at in 0..60_000_u32 {
            upload.keep(Bytes::copy_from_slice(&[at as u8]));
        }
        assert!(upload.waiting.len() <= 60);
        let mut all = Vec::new();
        while let Some((part, length)) = upload.next() {
            all.extend_from_slice(part.data_ref().unwrap());
            assert_eq!(length, part.data_ref().unwrap().len());
        }
        assert!(all.len() == 60_000 && all.iter().zip(0_u32..).all(|(byte, at)| *byte == at as u8));
        upload.keep(Bytes::from(vec![0; SHORT]));
        upload.keep(Bytes::from(vec![0; SHORT]));
        assert_eq!((upload.waiting.len(), upload.let_go()), (2, 2 * SHORT));
    }
}
