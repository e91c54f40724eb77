//! The body of a request on its way to a server.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use levada_http::{Fault, Patience, judge_request_trailers};

use crate::{
    ServerFailure,
    client_body::{ClientBody, ClientBodyError},
    stall::Stall,
};

/// The reason why a client's body broke off.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The client's connection, with its error.
    #[error("the client's body broke off: {0}")]
    Client(ClientBodyError),
    /// The trailer section has a fault.
    #[error("the client's trailers have a fault: {}", .0.as_str())]
    Trailers(Fault),
    /// It is longer than its bound.
    #[error("the client's body is too large")]
    TooLarge,
    /// No piece came for too long, or too little in all.
    #[error("the client sent nothing, or too little, for too long")]
    Stalled,
}

/// The body of a request on its way to a server.
pub enum RequestBody {
    /// No body.
    None,
    /// A text of this node's own.
    Text(Bytes),
    /// A client's body.
    Client(Upload),
}

/// A client's body.
pub struct Upload {
    /// Pieces that were read ahead, and are sent first.
    ahead: VecDeque<Bytes>,
    body: ClientBody,
    bound: Option<BodyBound>,
    stall: Stall,
    progress: Arc<Progress>,
}

/// The bound of a client's body.
#[derive(Clone, Debug)]
pub struct BodyBound {
    left: u64,
    exceeded: Arc<AtomicBool>,
}

impl BodyBound {
    /// A bound of so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self { left: bytes, exceeded: Arc::default() }
    }

    /// Whether the body has gone beyond it; all copies of a bound know it.
    pub fn is_exceeded(&self) -> bool {
        self.exceeded.load(Relaxed)
    }

    fn take(&mut self, bytes: usize) -> Result<(), UploadError> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.exceeded.store(true, Relaxed);
                Err(UploadError::TooLarge)
            }
        }
    }
}

/// The progress of a client's body, for the wait for its response.
#[derive(Default)]
pub(crate) struct Progress {
    moved: AtomicBool,
    awaited: AtomicBool,
    answered: AtomicBool,
}

impl Progress {
    /// Whether no response could be expected since the last call, because the body was still on its way.
    pub(crate) fn excuses(&self) -> bool {
        self.moved.swap(false, Relaxed) || self.awaited.load(Relaxed)
    }

    /// Whether a piece of the body was sent since the last call.
    pub(crate) fn moved(&self) -> bool {
        self.moved.swap(false, Relaxed)
    }

    /// Notes that the response has started. Client and server may take turns from now on, so that the body has no
    /// deadline of its own any more: that of the response counts both.
    pub(crate) fn answered(&self) {
        self.answered.store(true, Relaxed);
    }
}

impl Upload {
    /// The first `length` bytes, or all if there are fewer. They are sent all the same.
    ///
    /// Holds no more than that and one piece of the body. Cancel safe.
    pub async fn read_ahead(&mut self, length: usize) -> Result<Vec<u8>, UploadError> {
        while self.ahead.iter().map(Bytes::len).sum::<usize>() < length {
            match std::future::poll_fn(|cx| self.poll_body(cx)).await {
                Some(frame) => self.ahead.extend(frame?.into_data().ok()),
                None => break,
            }
        }
        let mut beginning = Vec::new();
        for piece in &self.ahead {
            let room = length - beginning.len();
            beginning.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        Ok(beginning)
    }

    /// Reads all of a body that is known to be no longer than this. False for any other, of which nothing is read: its
    /// client may wait for the response in between.
    ///
    /// # Errors
    /// When the body breaks off.
    pub async fn reads_whole(&mut self, at_most: u64) -> Result<bool, ServerFailure> {
        let length = self.body.size_hint().exact().filter(|length| *length <= at_most);
        let Some(length) = length else { return Ok(false) };
        let ahead: usize = self.ahead.iter().map(Bytes::len).sum();
        // One byte more would come behind the end.
        let read = self.read_ahead(ahead + length as usize + 1).await;
        read.map(|_| true).map_err(|_| ServerFailure::RequestBody)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        if let Some(piece) = self.ahead.pop_front() {
            self.progress.moved.store(true, Relaxed);
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        self.poll_body(cx)
    }

    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.progress.awaited.store(polled.is_pending(), Relaxed);
        match polled {
            Poll::Ready(Some(Ok(mut frame))) => {
                self.stall.moved(frame.data_ref().map_or(0, |data| data.len() as u64));
                self.progress.moved.store(true, Relaxed);
                if let (Some(bound), Some(data)) = (&mut self.bound, frame.data_ref())
                    && let Err(error) = bound.take(data.len())
                {
                    return Poll::Ready(Some(Err(error)));
                }
                if let Some(trailers) = frame.trailers_mut()
                    && let Err(fault) = judge_request_trailers(trailers)
                {
                    return Poll::Ready(Some(Err(UploadError::Trailers(fault))));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(UploadError::Client(error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending if self.progress.answered.load(Relaxed) => Poll::Pending,
            Poll::Pending => self.stall.poll(cx).map(|()| Some(Err(UploadError::Stalled))),
        }
    }
}

impl RequestBody {
    /// A client's body. It fails when it comes slower than `patience` allows, or
    /// when it is longer than its bound.
    pub fn client(body: ClientBody, bound: Option<BodyBound>, patience: Patience) -> Self {
        if body.is_end_stream() {
            return Self::None;
        }
        let ahead = VecDeque::new();
        let stall = Stall::new(patience);
        Self::Client(Upload { ahead, body, bound, stall, progress: Arc::default() })
    }

    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        match self {
            Self::None | Self::Text(_) => None,
            Self::Client(upload) => Some(upload.progress.clone()),
        }
    }

    /// Has these pieces sent before the rest of the body: they were taken from it.
    pub(crate) fn put_back(&mut self, pieces: Vec<Bytes>) {
        match self {
            Self::None => {}
            Self::Text(text) => *text = [pieces.concat(), text.to_vec()].concat().into(),
            Self::Client(upload) => {
                pieces.into_iter().rev().for_each(|piece| upload.ahead.push_front(piece));
            }
        }
    }

    /// Whether all of it is here: the response waits for the server alone.
    pub fn has_come(&self) -> bool {
        match self {
            Self::None | Self::Text(_) => true,
            Self::Client(upload) => upload.body.is_end_stream(),
        }
    }

    /// Whether there is no body.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match self.get_mut() {
            Self::None => Poll::Ready(None),
            Self::Text(text) => {
                let text = std::mem::take(text);
                Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))))
            }
            Self::Client(upload) => upload.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Text(text) => text.is_empty(),
            Self::Client(upload) => upload.ahead.is_empty() && upload.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
            Self::Client(upload) => match upload.body.size_hint().exact() {
                None => SizeHint::default(),
                Some(rest) => {
                    let ahead: usize = upload.ahead.iter().map(Bytes::len).sum();
                    SizeHint::with_exact(ahead as u64 + rest)
                }
            },
        }
    }
}
