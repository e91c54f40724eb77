//! The body of a client's request, whatever protocol it comes over.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use levada_http::{IncomingBody, IncomingBodyError};

/// The body of a client's request.
pub enum ClientBody {
    /// Over HTTP/1 or HTTP/2.
    Tcp(IncomingBody),
    /// Over HTTP/3, where its frames come one by one, as the client's stream has them; or from elsewhere.
    Other(Pin<Box<OtherBody>>),
}

/// A body of another kind.
pub type OtherBody = dyn Body<Data = Bytes, Error = OtherBodyError> + Send + Sync;

/// The error of a body of another kind.
pub type OtherBodyError = Box<dyn Error + Send + Sync>;

/// Why a client's body broke off.
#[derive(Debug, thiserror::Error)]
pub enum ClientBodyError {
    /// Over HTTP/1 or HTTP/2.
    #[error(transparent)]
    Tcp(#[from] IncomingBodyError),
    /// Of another kind.
    #[error(transparent)]
    Other(#[from] OtherBodyError),
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        match self.get_mut() {
            Self::Tcp(body) => {
                Pin::new(body).poll_frame(cx).map(|item| item.map(|frame| Ok(frame?)))
            }
            Self::Other(body) => {
                body.as_mut().poll_frame(cx).map(|item| item.map(|frame| Ok(frame?)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Tcp(body) => body.is_end_stream(),
            Self::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Tcp(body) => body.size_hint(),
            Self::Other(body) => body.size_hint(),
        }
    }
}
