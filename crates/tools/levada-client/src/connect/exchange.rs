//! The body of a response and the error of an exchange, whichever version of HTTP carries it.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use h3::error::StreamError;
use http::{Response, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::get::DisconnectReason;

/// A request and its response over HTTP/3.
pub(super) type Http3Stream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// The body of a response.
pub(crate) enum ResponseBody {
    Hyper(Incoming),
    Http3(Box<Http3Body>),
}

/// The body of a response over HTTP/3.
pub(crate) struct Http3Body {
    stream: Http3Stream,
    connection: quinn::Connection,
    /// The bytes that have not come, if the response has a length.
    left: Option<u64>,
}

impl Http3Body {
    pub(super) fn new(
        stream: Http3Stream,
        connection: quinn::Connection,
        head: &Response<()>,
    ) -> Self {
        let length = head.headers().get(header::CONTENT_LENGTH);
        let left = length.and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, connection, left }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, ExchangeError>>> {
        let Poll::Ready(received) = self.stream.poll_recv_data(context) else {
            return Poll::Pending;
        };
        Poll::Ready(match received {
            Ok(Some(mut data)) => {
                let data = data.copy_to_bytes(data.remaining());
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                Some(Ok(data))
            }
            Ok(None) => self.left.is_some_and(|left| left > 0).then_some(Err(ExchangeError::Early)),
            Err(error) => Some(Err(ExchangeError::http3(error, &self.connection))),
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        match self.get_mut() {
            Self::Hyper(body) => Pin::new(body).poll_frame(context).map_err(ExchangeError::Http),
            Self::Http3(body) => body.poll(context).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(body) => body.is_end_stream(),
            // The end of the stream may come in a packet of its own.
            Self::Http3(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Hyper(body) => body.size_hint(),
            Self::Http3(body) => body.left.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}

/// The reason why a request has no response, or a body no end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// Over HTTP/1.1 or HTTP/2.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// Over HTTP/3.
    #[error("{error}")]
    Http3 { error: StreamError, reason: DisconnectReason },
    /// A stream of HTTP/3 ended before its body.
    #[error("the body ended early")]
    Early,
}

impl ExchangeError {
    pub(super) fn http3(error: StreamError, connection: &quinn::Connection) -> Self {
        use quinn::ConnectionError;
        let reason = match connection.close_reason() {
            Some(ConnectionError::TimedOut) => DisconnectReason::Stall,
            Some(ConnectionError::ConnectionClosed(_) | ConnectionError::ApplicationClosed(_)) => {
                DisconnectReason::EarlyClose
            }
            Some(ConnectionError::TransportError(_)) => DisconnectReason::Broken,
            Some(_) => DisconnectReason::Reset,
            None => match error {
                StreamError::StreamError { .. } | StreamError::HeaderTooBig { .. } => {
                    DisconnectReason::Broken
                }
                _ => DisconnectReason::Reset,
            },
        };
        Self::Http3 { error, reason }
    }

    /// How the connection ended.
    pub(crate) fn reason(&self) -> DisconnectReason {
        match self {
            Self::Http(error) => DisconnectReason::of(error),
            Self::Http3 { reason, .. } => *reason,
            Self::Early => DisconnectReason::EarlyClose,
        }
    }
}
