//! The digests of the files that are installed, so that a pull need not read them again.
//!
//! ```text
//! levada-sync-state 1 <id of the boot>
//! sha-256=<hex> <inode> <length> <time> <time of the inode's change> <path>
//! synced
//! ```
//!
//! A digest is believed as long as inode, length, time and the time of the inode's change are the
//! recorded ones. The last is what counts: programs can restore a file's length and time, but only the
//! kernel sets that one. It is why the digests are in a file and not in extended attributes: to set one
//! changes that time, many file systems have none, and copies of a file carry them along.
//!
//! Lines are appended as files are installed, and a later line of a path replaces the earlier one. So a
//! killed pull forgets nothing, and a torn last line is ignored. After another boot only the lines
//! before `synced` are believed, because the bytes of the others may be lost.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
};

use levada_fetch::{
    Algorithm, Digest,
    manifest::{Manifest, decoded, encoded},
};
use rustix::fs::{Mode, OFlags, Stat, openat, renameat};

use crate::get::boot;

/// The knowledge of the files of a destination.
pub(super) struct InstalledState {
    staging: OwnedFd,
    files: HashMap<Vec<u8>, InstalledFile>,
    boot: String,
    journal: Journal,
    /// The lines of the journal, those that were replaced included.
    lines: usize,
}

struct InstalledFile {
    digest: Digest,
    stamp: Stamp,
    /// Whether its bytes are on the disk.
    synced: bool,
}

enum Journal {
    /// Nothing is written: a dry run, or writing has failed.
    None,
    /// The file of another boot, or none: it is replaced before the first line.
    Stale,
    Open(File),
}

/// The facts that differ after any change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    length: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(stat: &Stat) -> Self {
        let nanoseconds = |n| i64::try_from(n).unwrap_or(-1);
        Self {
            inode: stat.st_ino,
            length: stat.st_size,
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        }
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub(super) fn read<'t>(words: &mut impl Iterator<Item = &'t str>) -> Option<Self> {
        let time = |text: &str| {
            let (seconds, nanoseconds) = text.split_once('.')?;
            Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
        };
        Some(Self {
            inode: words.next()?.parse().ok()?,
            length: words.next()?.parse().ok()?,
            modified: time(words.next()?)?,
            changed: time(words.next()?)?,
        })
    }

    /// Whether it is from before this time, in seconds since 1970: then a later change has another stamp.
    pub(super) fn is_before(&self, seconds: i64) -> bool {
        self.modified.0 < seconds && self.changed.0 < seconds
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inode, length, modified, changed } = self;
        write!(f, "{inode} {length} {}.{} {}.{}", modified.0, modified.1, changed.0, changed.1)
    }
}

impl InstalledState {
    /// Reads the state in `staging`. A state that cannot be read is as good as none: the files are read.
    pub(super) fn load(staging: OwnedFd, writes: bool) -> Self {
        let boot = boot().unwrap_or_else(|| "-".to_owned());
        let journal = if writes { Journal::Stale } else { Journal::None };
        let mut state = Self { staging, files: HashMap::new(), boot, journal, lines: 0 };
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = openat(&state.staging, STATE, flags, Mode::empty()) else { return state };
        let mut file = File::from(file);
        let mut bytes = Vec::new();
        if file.read_to_end(&mut bytes).is_err() {
            return state;
        }
        let text = String::from_utf8_lossy(&bytes);
        let same_boot = state.read(&text);
        if writes && same_boot && (text.ends_with('\n') || file.write_all(b"\n").is_ok()) {
            state.journal = Journal::Open(file);
        }
        state
    }

    /// Reads a text; returns whether it was written after the same boot.
    fn read(&mut self, text: &str) -> bool {
        let Some((head, lines)) = text.split_once('\n') else { return false };
        let Some(boot) = head.strip_prefix(HEAD) else { return false };
        for line in lines.lines() {
            self.lines += 1;
            if line == SYNCED {
                self.files.values_mut().for_each(|file| file.synced = true);
            } else if let Some((path, file)) = InstalledFile::read(line) {
                self.files.insert(path, file);
            }
        }
        let same_boot = boot == self.boot;
        self.files.retain(|_, file| same_boot || file.synced);
        same_boot
    }

    /// The digest of the file at `path`, if it is known and the file has not changed since.
    pub(super) fn digest(&self, path: &[u8], stat: &Stat, algorithm: Algorithm) -> Option<Digest> {
        let file = self.files.get(path).filter(|file| file.stamp == Stamp::of(stat))?;
        Some(file.digest).filter(|digest| digest.algorithm() == algorithm)
    }

    /// Records the digest of a file that was read or written.
    pub(super) fn record(&mut self, path: &[u8], digest: Digest, stat: &Stat) {
        let file = InstalledFile { digest, stamp: Stamp::of(stat), synced: false };
        let line = file.line(path);
        self.files.insert(path.to_vec(), file);
        if matches!(self.journal, Journal::Stale) {
            self.rewrite();
        } else {
            self.append(&line);
        }
    }

    /// Ends a pull: forgets the files that `manifest` does not have, and notes that all bytes are on the
    /// disk if they were `synced`.
    pub(super) fn close(&mut self, manifest: &Manifest, synced: bool) {
        self.files.retain(|path, _| manifest.entries.contains_key(path));
        let has_changed = self.files.values().any(|file| !file.synced);
        if self.lines > 2 * self.files.len() + SPARE_LINES && !matches!(self.journal, Journal::None)
        {
            self.rewrite();
        }
        if synced && has_changed {
            self.append("synced\n");
            if let Journal::Open(file) = &self.journal {
                let _ = file.sync_data();
            }
            self.files.values_mut().for_each(|file| file.synced = true);
        }
    }

    /// Replaces the journal by one without superfluous lines.
    fn rewrite(&mut self) {
        let mut text = format!("{HEAD}{}\n", self.boot);
        let (synced, others): (Vec<_>, Vec<_>) =
            self.files.iter().partition(|(_, file)| file.synced);
        synced.iter().for_each(|(path, file)| text.push_str(&file.line(path)));
        if !synced.is_empty() {
            let _ = writeln!(text, "{SYNCED}");
        }
        others.iter().for_each(|(path, file)| text.push_str(&file.line(path)));
        self.lines = self.files.len();
        self.journal = self.replaced(&text).map_or(Journal::None, Journal::Open);
    }

    fn replaced(&self, text: &str) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::APPEND;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.staging, NEW_STATE, flags, Mode::from_raw_mode(0o600))?;
        let mut file = File::from(file);
        file.write_all(text.as_bytes())?;
        renameat(&self.staging, NEW_STATE, &self.staging, STATE)?;
        Ok(file)
    }

    /// A line that is not written only costs the next pull to read a file.
    fn append(&mut self, line: &str) {
        let Journal::Open(file) = &mut self.journal else { return };
        self.lines += 1;
        if file.write_all(line.as_bytes()).is_err() {
            self.journal = Journal::None;
        }
    }
}

impl InstalledFile {
    fn line(&self, path: &[u8]) -> String {
        format!("{} {} {}\n", self.digest, self.stamp, encoded(path))
    }

    fn read(line: &str) -> Option<(Vec<u8>, Self)> {
        let mut words = line.split(' ');
        let digest = Digest::parse(words.next()?)?;
        let stamp = Stamp::read(&mut words)?;
        let path = decoded(words.next()?)?;
        Some((path, Self { digest, stamp, synced: false })).filter(|_| words.next().is_none())
    }
}

pub(super) const STATE: &str = "state";
const NEW_STATE: &str = "state.new";
const HEAD: &str = "levada-sync-state 1 ";
const SYNCED: &str = "synced";
/// So many superfluous lines are never worth a new file.
const SPARE_LINES: usize = 100;
