//! Errors that end a body early. The client's connection is cut then, so that it can tell.

use levada_body::ReadError;
use levada_upstream::InboundError;

/// The reason why a body ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Upstream(#[from] InboundError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("this node drains: the client is to go on elsewhere")]
    Moved,
}
