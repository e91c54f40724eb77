//! The reasons why the body of a response breaks off.

use levada_http::ResponseBodyError;

/// The reason why the body of a response broke off.
#[derive(Debug, thiserror::Error)]
pub enum InboundError {
    /// The connection over HTTP/2, with its error.
    #[error("the server's body broke off: {0}")]
    Http2(#[from] h2::Error),
    /// The connection over HTTP/1.1, with the reason.
    #[error("the server's body broke off: {0}")]
    Http1(&'static str),
    /// The body of the request, which was still being sent.
    #[error("the request's body broke off")]
    Request,
    /// The trailers are too large, or have fields that must not come after a body.
    #[error("the server's trailers have a fault")]
    Trailers,
    /// No piece came for too long.
    #[error("the server sent nothing for too long")]
    Stalled,
}

impl From<ResponseBodyError> for InboundError {
    fn from(error: ResponseBodyError) -> Self {
        match error {
            ResponseBodyError::Broken(reason) => Self::Http1(reason),
            ResponseBodyError::Request => Self::Request,
        }
    }
}
