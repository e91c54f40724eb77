//! The body of a response over HTTP/2 while it arrives.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Frame, SizeHint};

use super::{connection::StreamPlace, outgoing::Upload};
use crate::InboundError;

/// A body, with the place of its request on the connection. Dropped before its end, it resets the stream.
pub(crate) struct Http2Body {
    stream: RecvStream,
    place: StreamPlace,
    /// The bytes that are to come, if the response has stated them.
    left: Option<u64>,
    /// Whether all data has come; trailers may follow.
    data_ended: bool,
    /// The request's own body, if its end was not sent when the response began.
    upload: Option<Upload>,
}

impl Http2Body {
    pub(super) fn new(
        stream: RecvStream,
        place: StreamPlace,
        left: Option<u64>,
        upload: Option<Upload>,
    ) -> Self {
        Self { stream, place, left, data_ended: false, upload }
    }

    /// The next piece, or the trailers.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, InboundError>>> {
        while !self.data_ended {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(piece)) => {
                    // It fails for a stream that has ended, whose window is of no use.
                    let _ = self.stream.flow_control().release_capacity(piece.len());
                    self.place.0.hear();
                    if piece.is_empty() {
                        continue;
                    }
                    if let Some(left) = &mut self.left {
                        *left = left.saturating_sub(piece.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                // A reset is never the end of a body, whatever its reason is.
                Some(Err(error)) => return Poll::Ready(Some(Err(self.blame(error)))),
                None => self.data_ended = true,
            }
        }
        match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(Some(Err(self.blame(error)))),
        }
    }

    fn blame(&self, error: h2::Error) -> InboundError {
        match self.upload.as_ref().is_some_and(Upload::has_failed) {
            true => InboundError::Request,
            false => InboundError::Http2(error),
        }
    }

    /// Whether it has been received and read whole.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// Whether a piece of the request's body was sent since the last call.
    pub(crate) fn request_moved(&self) -> bool {
        self.upload.as_ref().is_some_and(Upload::moved)
    }

    /// The length of the rest, if it is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}
