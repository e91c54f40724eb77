//! The body of a request over HTTP/3.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use h3::server::RequestStream;
use http_body::{Body, Frame, SizeHint};

use crate::{
    code::Code,
    transport::{RecvSide, RequestLine},
};

/// See the module.
pub struct RequestBody {
    /// None for a tunnel, which has no body.
    stream: Option<RequestStream<RecvSide, Bytes>>,
    line: Arc<RequestLine>,
    /// A piece that has come before the request was handed on.
    first: Option<Bytes>,
    /// The bytes that are left by `Content-Length`.
    left: Option<u64>,
    data_ended: bool,
    ended: bool,
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client's stream or connection, with its error.
    #[error(transparent)]
    Stream(#[from] h3::error::StreamError),
    /// The body is not as long as `Content-Length` says.
    #[error("the body is not as long as Content-Length says")]
    Length,
}

impl RequestBody {
    pub(crate) fn new(
        stream: Option<RequestStream<RecvSide, Bytes>>,
        line: Arc<RequestLine>,
        length: Option<u64>,
    ) -> Self {
        let ended = stream.is_none();
        Self { stream, line, first: None, left: length, data_ended: false, ended }
    }

    /// Looks whether there is a body, and waits with `waits` until this is known.
    pub(crate) async fn look(&mut self, waits: bool) -> Result<(), BodyError> {
        let looked = std::future::poll_fn(|cx| match self.poll(cx) {
            Poll::Pending if !waits => Poll::Ready(None),
            polled => polled,
        });
        match looked.await.transpose()?.map(Frame::into_data) {
            Some(Ok(data)) => self.first = Some(data),
            // Trailers without a body mean nothing.
            Some(Err(_)) => self.ended = true,
            None => {}
        }
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.ended) else {
            return Poll::Ready(None);
        };
        if !self.data_ended {
            if let Some(mut data) = ready!(stream.poll_recv_data(cx))? {
                let data = data.copy_to_bytes(data.remaining());
                return Poll::Ready(Some(self.count(data).map(Frame::data)));
            }
            self.data_ended = true;
            if self.left.is_some_and(|left| left > 0) {
                return Poll::Ready(Some(Err(self.wrong_length())));
            }
        }
        let trailers = ready!(stream.poll_recv_trailers(cx))?;
        self.ended = true;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn count(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        if let Some(left) = &mut self.left {
            match left.checked_sub(data.len() as u64) {
                Some(rest) => *left = rest,
                None => return Err(self.wrong_length()),
            }
        }
        Ok(data)
    }

    /// Ends the stream: the request is malformed (RFC 9114 Sec. 4.1.2).
    fn wrong_length(&mut self) -> BodyError {
        self.ended = true;
        if let Some(stream) = &mut self.stream {
            stream.stop_sending(h3::error::Code::H3_MESSAGE_ERROR);
        }
        self.line.reset(Code::MESSAGE_ERROR);
        BodyError::Length
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match this.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => this.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.first.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, Bytes::len) as u64;
        match self.left {
            Some(left) => SizeHint::with_exact(first + left),
            None if self.ended => SizeHint::with_exact(first),
            None => SizeHint::default(),
        }
    }
}
