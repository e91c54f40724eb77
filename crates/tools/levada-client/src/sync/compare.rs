//! The differences between a destination and a manifest.

use std::collections::{BTreeMap, BTreeSet};

use levada_fetch::{
    Digest,
    manifest::{Entry, Manifest},
};
use rustix::fs::{FileType, Stat};

use super::{PathFilter, tree::Destination};
use crate::Hasher;

/// The operations to perform, in this order except for the last.
#[derive(Debug, Default)]
pub(super) struct SyncPlan {
    /// All directories, with their permissions.
    pub(super) directories: Vec<(Vec<u8>, u32)>,
    /// Files to fetch.
    pub(super) fetch: BTreeMap<Vec<u8>, WantedFile>,
    /// Files with the right bytes, whose permissions and time must be set.
    pub(super) dress: Vec<(Vec<u8>, u32, (i64, u32))>,
    /// Links and their targets.
    pub(super) links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Entries that are not in the manifest, and whether each is a directory.
    pub(super) delete: Vec<(Vec<u8>, bool)>,
    /// Entries to delete to make room: a directory where a file or link must be, or the reverse.
    pub(super) room: BTreeMap<Vec<u8>, Vec<(Vec<u8>, bool)>>,
    /// The number of files that are already right.
    pub(super) unchanged: u64,
}

/// A file to fetch.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedFile {
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified: (i64, u32),
    pub(super) digest: Digest,
}

impl SyncPlan {
    /// Compares a destination with a manifest. Files of the same length and time are considered
    /// equal unless `thorough`.
    pub(super) fn new(
        manifest: &Manifest,
        tree: &Destination,
        filter: &PathFilter,
        thorough: bool,
        delete: bool,
    ) -> std::io::Result<Self> {
        let mut plan = Self::default();
        for (path, entry) in &manifest.entries {
            let there = tree.stat(path);
            let kind = there.map(|stat| FileType::from_raw_mode(stat.st_mode));
            let in_the_way = match entry {
                // The user may have linked a directory to another disk.
                Entry::Directory { .. } => kind.is_some_and(|k| !k.is_dir() && !k.is_symlink()),
                _ => kind.is_some_and(FileType::is_dir),
            };
            if delete && in_the_way && filter.takes(path) {
                plan.room.insert(path.clone(), Vec::new());
            }
            match entry {
                Entry::Directory { mode } if filter.is_all() || filter.takes(path) => {
                    plan.directories.push((path.clone(), *mode));
                }
                Entry::File { size, mode, modified, digest } if filter.takes(path) => {
                    let wanted = WantedFile {
                        size: *size,
                        mode: *mode,
                        modified: *modified,
                        digest: *digest,
                    };
                    plan.file(path, wanted, there, tree, thorough);
                }
                Entry::Link { target }
                    if filter.takes(path) && tree.read_link(path).as_ref() != Some(target) =>
                {
                    plan.links.push((path.clone(), target.clone()));
                }
                _ => {}
            }
        }
        if delete {
            plan.remove(tree.paths()?, manifest, filter);
        }
        Ok(plan)
    }

    /// Splits entries into those deleted at the end and those deleted to make room. A directory
    /// that contains excluded entries is not deleted.
    fn remove(&mut self, paths: Vec<(Vec<u8>, bool)>, manifest: &Manifest, filter: &PathFilter) {
        let mut kept = BTreeSet::new();
        for (path, is_directory) in paths {
            let taker = with_ancestors(&path).find(|part| self.room.contains_key(*part));
            let takes = filter.takes(&path);
            if let Some(taker) = taker.map(<[u8]>::to_vec) {
                if takes {
                    self.room.entry(taker).or_default().push((path, is_directory));
                } else {
                    kept.insert(taker);
                }
            } else if takes && !manifest.entries.contains_key(&path) {
                self.delete.push((path, is_directory));
            }
        }
        self.room.retain(|taker, _| !kept.contains(taker));
    }

    fn file(
        &mut self,
        path: &[u8],
        wanted: WantedFile,
        there: Option<Stat>,
        tree: &Destination,
        thorough: bool,
    ) {
        let there = there.filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        let same_size = there.filter(|s| u64::try_from(s.st_size) == Ok(wanted.size));
        let Some(stat) = same_size else {
            self.fetch.insert(path.to_vec(), wanted);
            return;
        };
        let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(-1);
        let same_time =
            (stat.st_mtime, nanoseconds) == (wanted.modified.0, wanted.modified.1.into());
        let same_mode = stat.st_mode & 0o777 == wanted.mode;
        if same_time && same_mode && !thorough {
            self.unchanged += 1;
        } else if (same_time && !thorough) || has(tree, path, wanted) {
            self.unchanged += 1;
            if !same_time || !same_mode {
                self.dress.push((path.to_vec(), wanted.mode, wanted.modified));
            }
        } else {
            self.fetch.insert(path.to_vec(), wanted);
        }
    }
}

/// The path, and the paths of its parent directories.
fn with_ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.chain([path.len()]).map(|end| &path[..end])
}

/// Whether the file at `path` has the digest.
fn has(tree: &Destination, path: &[u8], wanted: WantedFile) -> bool {
    let found = tree
        .file(path)
        .and_then(|file| Hasher::new(&[wanted.digest.algorithm()]).finish(&file, wanted.size));
    found.is_ok_and(|found| found.contains(&wanted.digest))
}
