//! The body of a client's request, whatever protocol it comes over.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use levada_http::{IncomingBody, IncomingBodyError};

/// The body of a client's request.
pub enum ClientBody {
    /// Over HTTP/1.
    Http1(IncomingBody),
    /// Over HTTP/2.
    Tcp(Incoming),
    /// Over HTTP/3. Its frames come one by one, as the client's stream has them.
    Quic(Pin<Box<QuicBody>>),
}

/// A body over HTTP/3.
pub type QuicBody = dyn Body<Data = Bytes, Error = QuicBodyError> + Send + Sync;

/// The error of a body over HTTP/3.
pub type QuicBodyError = Box<dyn Error + Send + Sync>;

/// Why a client's body broke off.
#[derive(Debug, thiserror::Error)]
pub enum ClientBodyError {
    /// Over HTTP/1.
    #[error(transparent)]
    Http1(#[from] IncomingBodyError),
    /// Over HTTP/2.
    #[error(transparent)]
    Tcp(#[from] hyper::Error),
    /// Over HTTP/3.
    #[error(transparent)]
    Quic(#[from] QuicBodyError),
}

impl From<Incoming> for ClientBody {
    fn from(body: Incoming) -> Self {
        Self::Tcp(body)
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        match self.get_mut() {
            Self::Http1(body) => {
                Pin::new(body).poll_frame(cx).map(|item| item.map(|frame| Ok(frame?)))
            }
            Self::Tcp(body) => {
                Pin::new(body).poll_frame(cx).map(|item| item.map(|frame| Ok(frame?)))
            }
            Self::Quic(body) => {
                body.as_mut().poll_frame(cx).map(|item| item.map(|frame| Ok(frame?)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Tcp(body) => body.is_end_stream(),
            Self::Quic(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Tcp(body) => body.size_hint(),
            Self::Quic(body) => body.size_hint(),
        }
    }
}
