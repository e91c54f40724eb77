//! Errors that end a body early. The client's connection is cut then, so that it can tell.

use levada_body::ReadError;
use levada_upstream::InboundError;

/// The reason why a body ends early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The server.
    #[error(transparent)]
    Upstream(#[from] InboundError),
    /// What is stored or being fetched.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A drain.
    #[error("this node drains: the client is to go on elsewhere")]
    Moved,
}
