//! The files of a transfer on disk:
//!
//! ```text
//!   NAME               the file, once it is complete and verified; created by rename
//!   NAME.levada-part   its bytes until then, at their offsets; locked by the fetching process
//!   NAME.levada-state  the version and the ranges of these bytes, as JSON
//! ```
//!
//! The state is written about once a second, after the bytes that it describes, and replaces the
//! old one by rename. So a process may be killed at any time: all bytes in the state were written
//! to the operating system before. If the machine fails, written bytes may be lost. So the bytes
//! are synced from time to time, the state records the synced ones, and after another boot only
//! these are used.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use levada_fetch::{
    Held,
    resume::{FileVersion, Known},
};
use serde::{Deserialize, Serialize};

/// A file on disk is in the way.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Another process fetches the same file.
    #[error("{0} is being fetched by another process")]
    Busy(PathBuf),
    /// The disk is full.
    #[error(
        "no space is left for {0}; the received bytes are kept: make room and run the same command again"
    )]
    Full(PathBuf),
    /// The path has another type of file.
    #[error("{0} is {1}: choose another name with -o")]
    Taken(PathBuf, &'static str),
    /// The file that the server named exists.
    #[error("the server names it {0}, which exists and is not replaced: choose a name with -o")]
    Exists(PathBuf),
    /// The operating system returned an error.
    #[error("{path}: {why}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
}

/// One file and its temporary files.
pub(super) struct Target {
    path: PathBuf,
    part: PathBuf,
    state: PathBuf,
    file: File,
    url: String,
    /// The state as last written, and the synced ranges in it.
    saved: Option<(Known, Held)>,
    synced: Held,
}

impl Target {
    /// Opens and locks the files of `path`, and returns the known ranges.
    pub(super) fn open(
        path: &Path,
        url: &str,
        adopt: bool,
        restart: bool,
    ) -> Result<(Self, Known), TargetError> {
        let taken = |what| TargetError::Taken(path.to_owned(), what);
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_dir() => return Err(taken("a directory")),
            Ok(there) if !there.is_file() && !there.is_symlink() => {
                return Err(taken("no regular file"));
            }
            _ => {}
        }
        let (part, state) = (beside(path, PART), beside(path, STATE));
        if adopt && !restart && !part.exists() && path.is_file() {
            // An incomplete file does not keep its final name.
            fs::rename(path, &part).map_err(|why| io_error(path, why))?;
        }
        let file = locked(path, &part)?;
        let mut target = Self {
            path: path.to_owned(),
            part,
            state,
            file,
            url: url.to_owned(),
            saved: None,
            synced: Held::default(),
        };
        let known = if restart { Known::default() } else { target.restore(adopt)? };
        if known.held.bytes() == 0 {
            target.file.set_len(0).map_err(|why| target.error(why))?;
        }
        Ok((target, known))
    }

    /// The state of an earlier run. An invalid state is ignored.
    fn restore(&mut self, adopt: bool) -> Result<Known, TargetError> {
        let length = self.file.metadata().map_err(|why| self.error(why))?.len();
        let state = fs::read(&self.state).ok();
        let Some(state) = state.and_then(|text| serde_json::from_slice::<SavedState>(&text).ok())
        else {
            let mut known = Known::default();
            if adopt {
                known.held.insert(0..length);
            }
            return Ok(known);
        };
        let same_boot = state.boot == boot();
        let ranges = if same_boot { &state.held } else { &state.synced };
        let mut held = held(ranges);
        held.truncate(length);
        self.synced = self::held(&state.synced);
        // A version name is meaningless for another URL.
        let version = if state.url == self.url { state.version } else { SavedVersion::default() };
        let version = FileVersion {
            strong: version.strong,
            digest: version.digest,
            encoding: version.encoding,
        };
        Ok(Known { version, total: state.length, held })
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.file.write_all_at(bytes, offset).map_err(|why| self.error(why))
    }

    /// The number of bytes at `offset` that equal `bytes`.
    pub(super) fn equal(&self, offset: u64, bytes: &[u8]) -> Result<usize, TargetError> {
        let mut buffer = [0; 16 << 10];
        let mut equal = 0;
        for piece in bytes.chunks(buffer.len()) {
            let held = &mut buffer[..piece.len()];
            self.file.read_exact_at(held, offset + equal as u64).map_err(|why| self.error(why))?;
            let same = piece.iter().zip(held.iter()).take_while(|(a, b)| a == b).count();
            equal += same;
            if same < piece.len() {
                break;
            }
        }
        Ok(equal)
    }

    /// Writes the state if it has changed.
    pub(super) fn save(&mut self, known: &Known) -> Result<(), TargetError> {
        if self.saved.as_ref().is_some_and(|(was, synced)| was == known && *synced == self.synced) {
            return Ok(());
        }
        let state = SavedState {
            url: self.url.clone(),
            length: known.total,
            version: SavedVersion {
                strong: known.version.strong.clone(),
                digest: known.version.digest.clone(),
                encoding: known.version.encoding.clone(),
            },
            held: pairs(&known.held),
            synced: pairs(&self.synced),
            boot: boot(),
        };
        let mut text = serde_json::to_vec(&state).map_err(|why| self.error(why.into()))?;
        text.resize(text.len().next_multiple_of(BLOCK), b' ');
        let new = beside(&self.path, NEW_STATE);
        let write = || {
            let mut file = options().create(true).truncate(true).open(&new)?;
            file.write_all(&text)?;
            fs::rename(&new, &self.state)
        };
        write().or_else(|why| {
            let _ = fs::remove_file(&new);
            self.save_in_place(&text).map_err(|_| self.error(why))
        })?;
        self.saved = Some((known.clone(), self.synced.clone()));
        Ok(())
    }

    /// A full disk has no room for a new state, but the old one can be overwritten.
    fn save_in_place(&self, text: &[u8]) -> io::Result<()> {
        let file = options().open(&self.state)?;
        if file.metadata()?.len() != text.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write_all_at(text, 0)
    }

    /// The file, to read or sync it elsewhere.
    pub(super) fn file(&self) -> Result<File, TargetError> {
        self.file.try_clone().map_err(|why| self.error(why))
    }

    /// Records the ranges that are synced to disk.
    pub(super) fn set_synced(&mut self, held: Held) {
        self.synced = held;
    }

    /// Gives the file, complete with `length` bytes, its name: `name` in the same directory if the
    /// server has chosen it.
    pub(super) fn finish(
        self,
        length: u64,
        name: Option<&str>,
        fsync: bool,
    ) -> Result<PathBuf, TargetError> {
        let path = name.map_or_else(|| self.path.clone(), |name| self.path.with_file_name(name));
        self.file.set_len(length).map_err(|why| self.error(why))?;
        if fsync {
            self.file.sync_all().map_err(|why| self.error(why))?;
        }
        if path == self.path {
            fs::rename(&self.part, &path).map_err(|why| io_error(&path, why))?;
        } else {
            // A link, unlike a rename, replaces nothing.
            fs::hard_link(&self.part, &path).map_err(|why| match why.kind() {
                io::ErrorKind::AlreadyExists => TargetError::Exists(path.clone()),
                _ => io_error(&path, why),
            })?;
            let _ = fs::remove_file(&self.part);
        }
        let _ = fs::remove_file(&self.state);
        if fsync {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = directory.unwrap_or(Path::new("."));
            let synced = File::open(directory).and_then(|directory| directory.sync_all());
            synced.map_err(|why| io_error(directory, why))?;
        }
        Ok(path)
    }

    /// Removes the temporary files.
    pub(super) fn remove(self) {
        let _ = fs::remove_file(&self.state);
        let _ = fs::remove_file(&self.part);
    }

    fn error(&self, why: io::Error) -> TargetError {
        match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                TargetError::Full(self.path.clone())
            }
            _ => io_error(&self.part, why),
        }
    }
}

/// Opens `part` and locks it against other processes.
fn locked(path: &Path, part: &Path) -> Result<File, TargetError> {
    for _ in 0..ATTEMPTS {
        let opened = options().read(true).create(true).truncate(false).open(part);
        let file = opened.map_err(|why| match why.raw_os_error() {
            Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
                TargetError::Taken(part.to_owned(), "a symbolic link")
            }
            _ => io_error(part, why),
        })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(TargetError::Busy(path.to_owned())),
            Err(fs::TryLockError::Error(why)) => return Err(io_error(part, why)),
        }
        let mine = file.metadata().map_err(|why| io_error(part, why))?;
        if !mine.is_file() {
            return Err(TargetError::Taken(part.to_owned(), "no regular file"));
        }
        // Another process may have finished the file between opening and locking. Then `part` is no
        // longer this file.
        let identity = |there: &fs::Metadata| (there.dev(), there.ino());
        if fs::symlink_metadata(part).is_ok_and(|there| identity(&there) == identity(&mine)) {
            return Ok(file);
        }
    }
    Err(TargetError::Busy(path.to_owned()))
}

/// Links are not followed, and opening a special file does not block.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    options.write(true).custom_flags(flags.bits().cast_signed());
    options
}

fn io_error(path: &Path, why: io::Error) -> TargetError {
    TargetError::Io { path: path.to_owned(), why }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The identifier of the machine's current boot, if available.
pub(crate) fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

fn held(pairs: &[(u64, u64)]) -> Held {
    pairs.iter().map(|&(start, end)| start..end).collect()
}

fn pairs(held: &Held) -> Vec<(u64, u64)> {
    held.iter().map(|range| (range.start, range.end)).collect()
}

/// The state file.
#[derive(Serialize, Deserialize)]
struct SavedState {
    url: String,
    length: Option<u64>,
    version: SavedVersion,
    /// The first byte, and one past the last.
    held: Vec<(u64, u64)>,
    synced: Vec<(u64, u64)>,
    boot: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct SavedVersion {
    strong: Vec<String>,
    digest: Option<String>,
    encoding: Option<String>,
}

const PART: &str = ".levada-part";
const STATE: &str = ".levada-state";
const NEW_STATE: &str = ".levada-state~";
/// File names must leave room for these suffixes.
pub(super) const LONGEST_SUFFIX: usize = NEW_STATE.len();
/// The length of a state is a multiple of this, so that a new one can overwrite the old one.
const BLOCK: usize = 4096;
const ATTEMPTS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn known(held: &[(u64, u64)]) -> Known {
        Known { held: self::held(held), total: Some(100), ..Known::default() }
    }

    #[test]
    fn what_is_saved_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (mut target, nothing) = Target::open(&path, "u", false, false).unwrap();
        assert_eq!(nothing, Known::default());
        target.write(10, b"0123456789").unwrap();
        let mut known = known(&[(10, 20)]);
        known.version.strong = vec!["\"a\"".to_owned()];
        target.save(&known).unwrap();
        drop(target);
        let (target, found) = Target::open(&path, "u", false, false).unwrap();
        assert_eq!(found, known);
        assert_eq!(target.equal(12, b"23x").unwrap(), 2);
        drop(target);
        // For another URL only the bytes are used, not the version.
        let (target, found) = Target::open(&path, "v", false, false).unwrap();
        assert_eq!((found.held, found.version), (known.held, FileVersion::default()));
        drop(target);
        let (_, nothing) = Target::open(&path, "u", false, true).unwrap();
        assert_eq!(nothing, Known::default());
    }

    #[test]
    fn after_another_boot_only_what_was_synced_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (mut target, _) = Target::open(&path, "u", false, false).unwrap();
        target.write(0, &[0; 50]).unwrap();
        target.set_synced(held(&[(0, 20)]));
        target.save(&known(&[(0, 50)])).unwrap();
        drop(target);
        let state = beside(&path, STATE);
        let text = fs::read_to_string(&state).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["boot"] = "another".into();
        fs::write(&state, json.to_string()).unwrap();
        let (_, found) = Target::open(&path, "u", false, false).unwrap();
        assert_eq!(found.held, held(&[(0, 20)]));
    }

    #[test]
    fn a_state_that_claims_more_than_there_is_or_is_garbage_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (mut target, _) = Target::open(&path, "u", false, false).unwrap();
        target.write(0, &[0; 10]).unwrap();
        target.save(&known(&[(0, 50)])).unwrap();
        drop(target);
        assert_eq!(Target::open(&path, "u", false, false).unwrap().1.held, held(&[(0, 10)]));
        fs::write(beside(&path, STATE), "{\"held\": [[5, 1]]").unwrap();
        assert_eq!(Target::open(&path, "u", false, false).unwrap().1, Known::default());
    }

    #[test]
    fn one_process_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let held = Target::open(&path, "u", false, false).unwrap();
        assert!(matches!(Target::open(&path, "u", false, false), Err(TargetError::Busy(_))));
        drop(held);
        Target::open(&path, "u", false, false).unwrap();
    }

    #[test]
    fn links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, "mine").unwrap();
        std::os::unix::fs::symlink(&elsewhere, beside(&path, PART)).unwrap();
        assert!(matches!(Target::open(&path, "u", false, false), Err(TargetError::Taken(..))));
        fs::remove_file(beside(&path, PART)).unwrap();
        // A link at the final path is replaced, not followed.
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let (target, _) = Target::open(&path, "u", false, false).unwrap();
        target.write(0, b"new").unwrap();
        target.finish(3, None, true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
