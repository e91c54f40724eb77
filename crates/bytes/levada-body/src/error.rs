//! Errors that end the reading of a body early.

use std::{error::Error, sync::Arc};

/// The reason why no more of a body can be read. Its client's connection is cut then, so that it can
/// tell.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The fetch of the object has broken off.
    #[error("the fetch of this object failed")]
    Broken,
    /// The origin has another representation by now, or does not send parts of this one.
    #[error("the rest of this object cannot be had any more")]
    Gone,
    /// The bytes of a file do not have the digest that they should have.
    #[error("the file is not what its digest says")]
    Digest,
    /// A part was not received, with the reason.
    #[error("a part of this object could not be fetched: {0}")]
    Failed(Arc<dyn Error + Send + Sync>),
}
