//! The differences between a destination and a manifest.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io,
};

use futures_util::{StreamExt as _, stream};
use levada_fetch::{
    Algorithm, Digest,
    manifest::{Entry, Manifest},
};
use parking_lot::Mutex;
use rustix::fs::{FileType, Stat, fstat};

use super::{
    PullRequest, Pulling,
    accounts::Accounts,
    attributes::Attributes,
    state::{InstalledState, Stamp},
    tree::{Destination, OrderedLook},
};
use crate::Hasher;

/// The operations to perform.
#[derive(Debug, Default)]
pub(super) struct SyncPlan {
    /// All directories.
    pub(super) directories: Vec<Vec<u8>>,
    /// Files to fetch.
    pub(super) fetch: BTreeMap<Vec<u8>, WantedFile>,
    /// Files with the right bytes but other attributes, which they would share with files of other
    /// names: they are replaced by copies.
    pub(super) copy: BTreeMap<Vec<u8>, WantedFile>,
    /// Files, links and existing directories whose attributes must be set.
    pub(super) dress: BTreeSet<Vec<u8>>,
    /// Links and their targets.
    pub(super) links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Other names of files.
    pub(super) names: Vec<OtherName>,
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
    pub(super) digest: Digest,
}

/// Another name of a file (a hard link).
#[derive(Clone, Debug)]
pub(super) struct OtherName {
    pub(super) path: Vec<u8>,
    /// The first name that is taken.
    pub(super) first: Vec<u8>,
    /// Whether it is not yet a name of that file.
    pub(super) is_new: bool,
}

/// A manifest and a destination.
pub(super) struct Comparison<'a> {
    pub(super) request: &'a PullRequest,
    pub(super) pulling: &'a Pulling,
    pub(super) manifest: &'a Manifest,
    pub(super) tree: &'a Destination,
    pub(super) accounts: &'a Accounts,
    pub(super) state: &'a Mutex<InstalledState>,
}

impl Comparison<'_> {
    /// The operations that make the destination equal to the manifest. A file whose digest is not known
    /// is read: length and time do not prove that it is the right one.
    pub(super) async fn plan(&self) -> io::Result<SyncPlan> {
        let mut plan = SyncPlan::default();
        let mut look = OrderedLook::new(self.tree);
        let mut unread = Vec::new();
        let mut names = Vec::new();
        // By the first name of each file, the first one that is taken.
        let mut taken = HashMap::new();
        for (path, entry) in &self.manifest.entries {
            let is_directory = matches!(entry, Entry::Directory { .. });
            if !self.request.filter.takes(path, is_directory) {
                continue;
            }
            let there = look.stat(path);
            let kind = there.map(|stat| FileType::from_raw_mode(stat.st_mode));
            let in_the_way = match entry {
                // The user may have linked a directory to another disk.
                Entry::Directory { .. } => kind.is_some_and(|k| !k.is_dir() && !k.is_symlink()),
                _ => kind.is_some_and(FileType::is_dir),
            };
            if self.request.delete && in_the_way {
                plan.room.insert(path.clone(), Vec::new());
            }
            match entry {
                Entry::Directory { .. } => {
                    plan.directories.push(path.clone());
                    if let Some(stat) = there.filter(|_| kind.is_some_and(FileType::is_dir)) {
                        self.attributes(path, entry, &stat, &mut plan);
                    }
                }
                Entry::File { size, digest, .. } => {
                    if self.request.extras.hard_links {
                        let name = self.manifest.first_name(path).unwrap_or(path);
                        let first: &Vec<u8> = taken.entry(name).or_insert(path);
                        if first != path {
                            names.push((path, first.clone()));
                            continue;
                        }
                    }
                    let there = there.filter(|_| kind.is_some_and(FileType::is_file));
                    let wanted = WantedFile { size: *size, digest: *digest };
                    let stat = there.filter(|s| u64::try_from(s.st_size) == Ok(*size));
                    let known = stat.and_then(|stat| self.known(path, &stat, digest.algorithm()));
                    match (stat, known) {
                        (Some(stat), Some(known)) if known == *digest => {
                            self.right(path, entry, wanted, &stat, &mut plan);
                        }
                        (Some(stat), None) => unread.push((path, entry, wanted, stat)),
                        _ => {
                            plan.fetch.insert(path.clone(), wanted);
                        }
                    }
                }
                Entry::Link { target, .. } => {
                    if self.tree.read_link(path).as_ref() != Some(target) {
                        plan.links.push((path.clone(), target.clone()));
                    } else if let Some(stat) = there {
                        self.attributes(path, entry, &stat, &mut plan);
                    }
                }
            }
        }
        self.read(unread, &mut plan).await;
        for (path, first) in names {
            self.name(path, first, &mut plan);
        }
        if self.request.delete {
            self.remove(self.tree.paths()?, &mut plan);
        }
        Ok(plan)
    }

    /// The digest of a file that has not changed since it was recorded.
    fn known(&self, path: &[u8], stat: &Stat, algorithm: Algorithm) -> Option<Digest> {
        let state = self.state.lock();
        state.digest(path, stat, algorithm).filter(|_| !self.request.thorough)
    }

    /// Reads files, several at a time.
    async fn read<'e>(
        &self,
        files: Vec<(&'e Vec<u8>, &'e Entry, WantedFile, Stat)>,
        plan: &mut SyncPlan,
    ) {
        let plan = &Mutex::new(plan);
        let readers = std::thread::available_parallelism().map_or(1, usize::from);
        stream::iter(files)
            .for_each_concurrent(readers, |(path, entry, wanted, stat)| async move {
                if self.pulling.is_stopped() {
                    return;
                }
                let found = match self.tree.file(path) {
                    Ok(file) => digest_of(file, wanted).await.ok(),
                    Err(_) => None,
                };
                if let Some((digest, after)) =
                    found.filter(|(_, s)| Stamp::of(s) == Stamp::of(&stat))
                {
                    self.state.lock().record(path, digest, &after);
                    if digest == wanted.digest {
                        self.right(path, entry, wanted, &stat, &mut plan.lock());
                        return;
                    }
                }
                plan.lock().fetch.insert(path.clone(), wanted);
            })
            .await;
    }

    /// A file with the right bytes.
    fn right(
        &self,
        path: &[u8],
        entry: &Entry,
        wanted: WantedFile,
        stat: &Stat,
        plan: &mut SyncPlan,
    ) {
        plan.unchanged += 1;
        if self.attributes(path, entry, stat, plan) || stat.st_nlink == 1 {
            return;
        }
        plan.dress.remove(path);
        plan.copy.insert(path.to_vec(), wanted);
    }

    /// Whether the entry has its attributes; otherwise they are to be set.
    fn attributes(&self, path: &[u8], entry: &Entry, stat: &Stat, plan: &mut SyncPlan) -> bool {
        let wanted = Attributes::wanted(entry, self.request.extras, self.accounts);
        let fit = wanted.fit(stat)
            && (!wanted.needs_file()
                || self.tree.open(path).and_then(|file| wanted.fit_file(file)).unwrap_or(false));
        if !fit {
            plan.dress.insert(path.to_vec());
        }
        fit
    }

    /// Another name of a file.
    fn name(&self, path: &[u8], first: Vec<u8>, plan: &mut SyncPlan) {
        let file = |path: &[u8]| self.tree.stat(path).map(|stat| (stat.st_dev, stat.st_ino));
        let is_replaced = plan.fetch.contains_key(&first) || plan.copy.contains_key(&first);
        let is_new = is_replaced || file(path).is_none() || file(path) != file(&first);
        plan.unchanged += u64::from(!is_new);
        plan.names.push(OtherName { path: path.to_vec(), first, is_new });
    }

    /// Splits entries into those deleted at the end and those deleted to make room. A directory that
    /// contains excluded entries is not deleted.
    fn remove(&self, paths: Vec<(Vec<u8>, bool)>, plan: &mut SyncPlan) {
        let mut kept = BTreeSet::new();
        for (path, is_directory) in paths {
            let takes = self.request.delete_excluded
                || (self.request.filter.takes(&path, is_directory) && !kept.contains(&path));
            let taker = with_ancestors(&path).find(|part| plan.room.contains_key(*part));
            let taker = taker.map(<[u8]>::to_vec);
            if !takes {
                kept.extend(with_ancestors(&path).map(<[u8]>::to_vec));
            }
            if let Some(taker) = taker {
                plan.room.entry(taker).or_default().push((path, is_directory));
            } else if takes && !self.is_wanted(&path, is_directory) {
                plan.delete.push((path, is_directory));
            }
        }
        plan.room.retain(|taker, _| !kept.contains(taker));
    }

    fn is_wanted(&self, path: &[u8], is_directory: bool) -> bool {
        self.manifest.entries.contains_key(path)
            && (!self.request.delete_excluded || self.request.filter.takes(path, is_directory))
    }
}

/// The path, and the paths of its parent directories.
fn with_ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.chain([path.len()]).map(|end| &path[..end])
}

/// The digest of a file of a length that is wanted, and its state after it was read.
pub(super) async fn digest_of(file: File, wanted: WantedFile) -> io::Result<(Digest, Stat)> {
    let read = move || {
        let hasher = Hasher::new(&[wanted.digest.algorithm()]);
        let digest = hasher.finish(&file, wanted.size)?.pop();
        Ok((digest.ok_or(io::ErrorKind::InvalidData)?, fstat(&file)?))
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}
