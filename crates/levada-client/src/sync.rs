//! `levada sync`: a tree is published with a manifest, and pulled by whoever wants it (Cosync,
//! WORLDS'04, Sec. 5). Through a CDN one manifest serves any number of destinations.

mod compare;
mod filter;
mod publish;
mod pull;
mod tree;

use std::{io, path::PathBuf};

use levada_fetch::manifest::ManifestError;
use serde::Serialize;

pub use filter::{Filter, FilterError};
pub use publish::{Publication, Published};
pub use pull::{PullReport, PullRequest, Pulling};

use crate::GetError;

/// Why a tree cannot be published or pulled at all.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The operating system refuses.
    #[error("{path}: {why}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// What is in the tree cannot be published.
    #[error("{path}: {why}; --exclude leaves it out")]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// Two processes want one destination.
    #[error("{0} is being written by another levada sync")]
    Busy(PathBuf),
    /// The manifest was not fetched.
    #[error("the manifest: {0}")]
    Manifest(GetError),
    /// The manifest cannot be used.
    #[error(transparent)]
    Unusable(#[from] ManifestError),
    /// It is too long.
    #[error("the manifest has {0} bytes: more than 1 GiB is not read")]
    Huge(u64),
    /// It says where files are, but not in a way that can be understood.
    #[error("the manifest says that files are at `{0}`, which is no URL")]
    Root(String),
    /// The destination cannot tell two of the files apart.
    #[error("{0} and {1} are one file at the destination, where letters' case does not count")]
    Case(String, String),
    /// It was stopped.
    #[error("it was interrupted; the same command goes on")]
    Stopped,
}

/// Something that could not be done, with the rest being done all the same.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// Where.
    pub path: String,
    /// Why.
    pub error: String,
}

fn io_error(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> SyncError {
    let path = path.into();
    move |why| SyncError::Io { path, why }
}

/// A path of a manifest, for people.
fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
