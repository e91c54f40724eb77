//! The bodies that pass through a node, and the accounts that close when one ends.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use levada_access::client_shares::ClientPlace;
use levada_access::pace::{Paced, Pacer};
use levada_body::compress::{Coder, CoderError};
use levada_body::{ReadAt, ReadError, Script};
use levada_cluster::announce::drain::{Drain, Movable};
use levada_store::Object;
use levada_upstream::{Relay, ServerEnd};

use levada_failure::BodyError;

use crate::access_record::AccessRecord;

/// The body of a response on its way to a client.
pub struct ResponseBody {
    source: Source,
    /// The fields of its response, if they are not in a map.
    fields: Option<Vec<u8>>,
    pace: Option<Box<Paced>>,
    /// Drops when the body has ended or was given up.
    record: Option<Box<AccessRecord>>,
    /// The error that breaks the body off as soon as all bytes before it are on their way.
    broken: Option<BodyError>,
    /// While a drain may end it in the middle.
    movable: Option<Box<Movable>>,
}

/// A tunnel whose server has agreed. The client learns of it by the head of the response.
pub(crate) struct OpenTunnel {
    pub(crate) server: ServerEnd,
    /// The longest time without a byte.
    pub(crate) idle_timeout: Duration,
    /// One of the tunnels that may be open.
    pub(crate) place: ClientPlace,
}

/// Where a response body comes from.
pub(crate) enum Source {
    Empty,
    /// A short text of this node's own.
    Text(Bytes),
    /// A stored object: its segments from `next` on.
    Stored {
        object: Arc<Object>,
        next: usize,
    },
    /// Any other object, or parts of one.
    Script(Box<Script>),
    /// A server's body, passed through.
    Upstream(Box<Relay>),
    /// Another body, compressed on its way.
    Coded(Box<(Coder, Source)>),
    /// None: the connection, or the stream, is to become a tunnel.
    Tunnel(Box<OpenTunnel>),
}

impl<R: ReadAt + 'static> From<Script<R>> for Source {
    fn from(script: Script<R>) -> Self {
        Self::Script(Box::new(script))
    }
}

impl ResponseBody {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, fields: None, pace: None, record: None, broken: None, movable: None }
    }

    /// Brings the fields of its response as lines of HTTP/1, which HTTP/2 takes as well, with its exact length and the date among them.
    pub(crate) fn with_fields(self, fields: Vec<u8>) -> Self {
        Self { fields: Some(fields), ..self }
    }

    pub(crate) fn take_fields(&mut self) -> Option<Vec<u8>> {
        self.fields.take()
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::new(Source::Text(text.into()))
    }

    /// Has the body compressed on its way.
    pub(crate) fn code(&mut self, coder: Coder) {
        let source = std::mem::replace(&mut self.source, Source::Empty);
        self.source = Source::Coded(Box::new((coder, source)));
    }

    /// Takes the text, if it is one.
    pub(crate) fn take_text(&mut self) -> Option<Bytes> {
        match &mut self.source {
            Source::Text(text) => Some(std::mem::take(text)),
            _ => None,
        }
    }

    /// Has the body come from elsewhere.
    pub(crate) fn replace(&mut self, source: Source) {
        self.source = source;
    }

    /// Slows the body down to the node's serving rate, if it has one.
    pub(crate) fn slow_down(&mut self, pace: Option<Paced>) {
        self.pace = pace.map(Box::new);
    }

    /// Slows the body down to one more rate, after its first `free` bytes.
    pub(crate) fn slow_down_to(&mut self, pacer: &Arc<Pacer>, free: u64) {
        let pace = self.pace.take().map_or_else(Paced::default, |pace| *pace);
        self.pace = Some(Box::new(pace.also(pacer, free)));
    }

    /// The tunnel that the connection is to become, which takes the record over.
    pub(crate) fn take_tunnel(&mut self) -> Option<(Box<OpenTunnel>, Option<Box<AccessRecord>>)> {
        if !matches!(self.source, Source::Tunnel(_)) {
            return None;
        }
        match std::mem::replace(&mut self.source, Source::Empty) {
            Source::Tunnel(tunnel) => Some((tunnel, self.record.take())),
            _ => None,
        }
    }

    /// Whether it is in memory.
    pub(crate) fn is_stored(&self) -> bool {
        self.pace.is_none() && matches!(&self.source, Source::Stored { .. })
    }

    /// Waits until it is in memory, if it is on its way there. Returns whether its frames hold on to
    /// nothing but themselves.
    pub(crate) async fn kept(&mut self) -> bool {
        match &mut self.source {
            _ if self.pace.is_some() => false,
            Source::Stored { .. } => true,
            Source::Script(script) => std::future::poll_fn(|cx| script.poll_kept(cx)).await,
            _ => false,
        }
    }

    /// Takes along what is counted until the body ends.
    pub(crate) fn take_along(&mut self, mut record: Box<AccessRecord>) {
        // A body that is known to be empty is not polled.
        if self.ended() {
            record.finished();
        }
        self.record = Some(record);
    }

    /// Whether it is a server's, on its way to this client only.
    pub(crate) fn passes_by(&self) -> bool {
        matches!(self.source, Source::Upstream(_))
    }

    /// Lets a drain end it in the middle, if it is long. It is to be asked for again by its length.
    pub(crate) fn may_move(&mut self, drain: &Arc<Drain>) {
        let length = self.source.size_hint().exact();
        self.movable = length.and_then(|length| Movable::new(drain, length)).map(Box::new);
    }
}

impl Source {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Empty | Self::Tunnel(_) => Poll::Ready(None),
            Self::Text(text) => {
                let text = std::mem::take(text);
                *self = Self::Empty;
                Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))))
            }
            Self::Stored { object, next } => {
                let segment = object.body().get(*next).cloned();
                *next += 1;
                Poll::Ready(segment.map(|s| Ok(Frame::data(s))))
            }
            Self::Script(script) => {
                let frame =
                    |piece: Result<Bytes, _>| piece.map(Frame::data).map_err(BodyError::Read);
                script.poll(cx).map(|piece| piece.map(frame))
            }
            Self::Upstream(relay) => {
                relay.poll(cx).map(|item| item.map(|frame| frame.map_err(BodyError::from)))
            }
            Self::Coded(coded) => {
                let (coder, source) = &mut **coded;
                coder.poll(cx, |cx| source.poll_data(cx)).map(|item| {
                    item.map(|coded| match coded {
                        Ok(coded) => Ok(Frame::data(coded)),
                        Err(CoderError::Source(error)) => Err(error),
                        Err(CoderError::Encoder) => Err(ReadError::Broken.into()),
                    })
                })
            }
        }
    }

    /// The bytes of the body without its trailers.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            match ready!(self.poll(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Poll::Ready(Some(Ok(data))),
                    Err(_trailers) => {}
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Tunnel(_) => true,
            Self::Text(text) => text.is_empty(),
            Self::Stored { object, next } => *next >= object.body().len(),
            Self::Script(script) => script.left() == Some(0),
            Self::Upstream(relay) => relay.is_end_stream(),
            Self::Coded(coded) => coded.0.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty | Self::Tunnel(_) => SizeHint::with_exact(0),
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
            Self::Stored { object, next: 0 } => SizeHint::with_exact(object.length()),
            Self::Stored { .. } => SizeHint::default(),
            Self::Script(script) => {
                script.left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Self::Upstream(relay) => relay.size_hint(),
            Self::Coded(_) => SizeHint::default(),
        }
    }
}

impl ResponseBody {
    fn ended(&self) -> bool {
        self.source.is_end_stream() && self.pace.as_ref().is_none_or(|pace| pace.is_empty())
    }

    /// The end of the body in the middle, if that is to be: over HTTP/1 by an orderly close of the connection,
    /// over HTTP/2 by a reset of the stream.
    fn moved(&mut self) -> Option<BodyError> {
        self.movable.take_if(|movable| movable.ends())?;
        if let Some(record) = &mut self.record {
            record.cut(&BodyError::Moved);
        }
        Some(BodyError::Moved)
    }

    fn note(&mut self, item: &Option<Result<Frame<Bytes>, BodyError>>) {
        // It is not polled again past an end that can be foreseen.
        let ended = item.is_none() || self.ended();
        let Some(record) = &mut self.record else { return };
        match item {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                record.sent(bytes);
                if self.movable.as_mut().is_some_and(|movable| !movable.sent(bytes)) {
                    self.movable = None;
                }
            }
            Some(Err(error)) => return record.cut(error),
            None => {}
        }
        if ended {
            record.finished();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(error) = this.moved() {
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(pace) = &mut this.pace {
            std::task::ready!(pace.poll_ready(cx));
        }
        let polled = match &mut this.pace {
            Some(pace) => pace.cut(cx, |cx| this.source.poll(cx)),
            None => this.source.poll(cx),
        };
        let item = std::task::ready!(polled);
        this.note(&item);
        if let Some(Err(error)) = item {
            // Over HTTP/3 a reset takes with it what was not sent before: even the head.
            this.broken = Some(error);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(item)
    }

    fn is_end_stream(&self) -> bool {
        self.ended()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}
