//! The body of a request on its way out, over HTTP/2.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use tokio::task::AbortHandle;

use crate::{RequestBody, request_body::Progress};

/// Bytes of a body that are kept until it is clear that the server takes the request.
const KEPT: usize = 64 << 10;

/// The part of a body that is still to be sent.
pub(super) struct OutgoingBody {
    stream: SendStream<Bytes>,
    body: RequestBody,
    /// A piece that waits for the server's window.
    piece: Bytes,
    /// The pieces that were sent, for another try; `None` when they are too many.
    sent: Option<Vec<Bytes>>,
    kept: usize,
    /// Whether its end was sent.
    ended: bool,
}

/// The reason why a body cannot be sent to its end.
pub(super) enum Halt {
    /// It broke off.
    Body,
    /// The server does not take it.
    Server,
}

impl OutgoingBody {
    pub(super) fn new(stream: SendStream<Bytes>, body: RequestBody) -> Self {
        Self { stream, body, piece: Bytes::new(), sent: Some(Vec::new()), kept: 0, ended: false }
    }

    /// Ready when all of it was sent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Halt>> {
        while !self.ended {
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Halt::Server));
            }
            while !self.piece.is_empty() {
                ready!(self.poll_piece(cx))?;
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    tracing::debug!(%error, "a request's body broke off");
                    self.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(Err(Halt::Body));
                }
                None => {
                    self.ended = true;
                    let ended = self.stream.send_data(Bytes::new(), true);
                    return Poll::Ready(ended.map_err(|_| Halt::Server));
                }
            };
            match frame.into_data() {
                Ok(piece) => {
                    self.keep(&piece);
                    // Not earlier: a reservation that waits for the client's bytes keeps other streams from theirs.
                    self.stream.reserve_capacity(piece.len());
                    self.piece = piece;
                }
                Err(frame) => {
                    let Ok(trailers) = frame.into_trailers() else { continue };
                    (self.sent, self.ended) = (None, true);
                    let ended = match trailers.is_empty() {
                        true => self.stream.send_data(Bytes::new(), true),
                        false => self.stream.send_trailers(trailers),
                    };
                    return Poll::Ready(ended.map_err(|_| Halt::Server));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends as much of the piece as the server's window allows.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Halt>> {
        if self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                _ => return Poll::Ready(Err(Halt::Server)),
            }
        }
        let room = self.stream.capacity().min(self.piece.len());
        let part = self.piece.split_to(room);
        // The end is known with the last piece, and need not have a frame of its own.
        self.ended = self.piece.is_empty() && self.body.is_end_stream();
        Poll::Ready(self.stream.send_data(part, self.ended).map_err(|_| Halt::Server))
    }

    fn keep(&mut self, piece: &Bytes) {
        self.kept += piece.len();
        if self.kept > KEPT {
            self.sent = None;
        }
        if let Some(sent) = &mut self.sent {
            sent.push(piece.clone());
        }
    }

    /// The whole body again, for a server that has not processed the request. `None` when too much of it was sent.
    pub(super) fn take_back(self) -> Option<RequestBody> {
        let Self { mut body, sent, .. } = self;
        body.put_back(sent?);
        Some(body)
    }

    /// Sends the rest, if there is one, while the response comes. A client may wait for parts of it before
    /// it sends more.
    pub(super) fn go_on(mut self, progress: Option<Arc<Progress>>) -> Option<Upload> {
        if self.ended {
            return None;
        }
        self.sent = None;
        let failed = Arc::new(AtomicBool::new(false));
        let mark = failed.clone();
        if let Some(progress) = &progress {
            progress.answered();
        }
        let sending = tokio::spawn(async move {
            if let Err(Halt::Body) = std::future::poll_fn(|cx| self.poll(cx)).await {
                mark.store(true, Relaxed);
            }
        });
        Some(Upload { sending: sending.abort_handle(), failed, progress })
    }
}

/// A body that is being sent while the response comes. Dropped, it ends.
pub(super) struct Upload {
    sending: AbortHandle,
    failed: Arc<AtomicBool>,
    progress: Option<Arc<Progress>>,
}

impl Upload {
    /// Whether it broke off by itself.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Whether a piece of it was sent since the last call.
    pub(super) fn moved(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.moved())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.sending.abort();
    }
}
