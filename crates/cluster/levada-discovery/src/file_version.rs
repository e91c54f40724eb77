//! The mark by which one version of a watched file differs from another.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, SystemTime},
};

/// A file that was changed so recently is read again: a second change may have left the same time of change.
const RECENT: Duration = Duration::from_secs(3);

/// A version of a file. Links are followed: a link that leads elsewhere is another version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    modified: Option<SystemTime>,
    pub(crate) size: u64,
    inode: u64,
}

impl FileVersion {
    /// The present version of a file.
    ///
    /// # Errors
    /// If there is no such file, or this process may not look at it.
    pub fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self { modified: file.modified().ok(), size: file.len(), inode: file.ino() })
    }

    pub(crate) fn is_recent(&self) -> bool {
        self.modified.is_none_or(|at| at.elapsed().is_ok_and(|age| age < RECENT))
    }
}
