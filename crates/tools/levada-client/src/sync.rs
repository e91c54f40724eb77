//! `levada sync`: a tree is published with a manifest, and destinations pull it (Cosync, WORLDS'04,
//! Sec. 4). Through a CDN one manifest serves any number of destinations.

mod accounts;
mod acl;
mod aids;
mod attributes;
mod chunker;
mod compare;
mod deltas;
mod filter;
mod follow;
mod install;
mod known;
mod manifest_file;
mod packs;
mod publish;
mod pull;
mod report;
mod sparse;
mod state;
mod transfers;
mod tree;

use std::{io, path::PathBuf};

use levada_fetch::manifest::ManifestError;
use serde::Serialize;

pub use filter::{FilterError, FilterRule, PathFilter};
pub use follow::{FollowSettings, Round};
pub use publish::{Publication, Published, Skipped};
pub use pull::{PullReport, PullRequest, Pulling};

use crate::GetError;

/// The reason why a tree cannot be published or pulled at all.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The operating system returned an error.
    #[error("{path}: {why}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
    /// An entry of the tree cannot be published.
    #[error("{path}: {why}; --exclude leaves it out")]
    Unfit {
        /// The path.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// Another process writes to the same destination.
    #[error("{0} is being written by another levada sync")]
    Busy(PathBuf),
    /// The destination is something else.
    #[error("{0} is not a directory: name one, or a path at which there is nothing yet")]
    NoDirectory(PathBuf),
    /// The manifest does not have a fact that is to be taken over.
    #[error("the manifest does not have it: publish the tree with --{0}, or pull without it")]
    NotRecorded(&'static str),
    /// The manifest was not fetched.
    #[error("the manifest: {0}")]
    Manifest(GetError),
    /// The manifest cannot be used.
    #[error(transparent)]
    Unusable(#[from] ManifestError),
    /// The manifest is too long.
    #[error("the manifest has {0} bytes: the limit is 1 GiB")]
    Huge(u64),
    /// The root in the manifest is not a valid URL.
    #[error("the manifest says that files are at `{0}`, which is not a URL")]
    Root(String),
    /// The destination's file system does not distinguish two of the files.
    #[error("{0} and {1} are one file at the destination, which ignores the case of letters")]
    Case(String, String),
    /// The pull was stopped.
    #[error("it was interrupted; run the same command again to continue")]
    Stopped,
}

/// An operation that failed while the others continued.
#[derive(Clone, Debug, Serialize)]
pub struct SyncFailure {
    /// The path.
    pub path: String,
    /// The error.
    pub error: String,
}

fn io_error(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> SyncError {
    let path = path.into();
    move |why| SyncError::Io { path, why }
}

/// A path of a manifest, for display.
fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
