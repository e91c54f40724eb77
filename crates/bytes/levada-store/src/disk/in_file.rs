//! Bodies that stay in their files: the system sends them from its own memory.
//!
//! This process does not read such a body, so it must be known to be good already. A record whose
//! checksums held when it was read counts as [`Verified`] for a minute, as the very file that it
//! was. After that, or when the system has let go of a part of it, it is read and verified once
//! more.
//!
//! A file that is removed or replaced meanwhile lives on until it was sent: files are never changed in
//! place. The room that such files take is bounded ([`room`]).

use std::{
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use bytes::Bytes;
use levada_types::{Key, hash64};
use tokio::sync::OwnedSemaphorePermit;

/// Seconds for which what was verified counts as good.
const GOOD_FOR: u64 = 60;
/// Files that are remembered as verified: those that are asked for within a minute, or most of them.
const REMEMBERED: usize = 1 << 14;
/// Bodies below this are copied: that costs less than to ask the system for more than one thing.
pub(super) const SHORTEST: u64 = 64 << 10;

/// The body of a record, in its file.
#[derive(Debug)]
pub struct FileBody {
    file: Arc<File>,
    start: u64,
    length: u64,
    _room: OwnedSemaphorePermit,
}

/// A record whose body stays in its file.
pub(crate) struct InFile {
    pub(crate) head: Bytes,
    pub(crate) body: FileBody,
}

impl FileBody {
    pub(super) fn taking(file: File, start: u64, length: u64, room: OwnedSemaphorePermit) -> Self {
        Self { file: Arc::new(file), start, length, _room: room }
    }

    /// The file that it is part of.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where in the file it begins.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How many bytes it has.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// How many files, or mebibytes of them, may be on their way at once in a tier of this size: as long as
/// they are, they take room even when they have been evicted. A sixteenth of the tier is theirs in addition to
/// it.
pub(super) fn room(tier: u64) -> usize {
    (tier >> 24).clamp(4, 4096) as usize
}

/// How much of that room a body takes.
pub(super) fn share(length: u64) -> u32 {
    u32::try_from(length.div_ceil(1 << 20)).unwrap_or(u32::MAX)
}

/// The files that were read whole and found good of late. Of two that meet in its table, one is
/// forgotten.
#[derive(Debug)]
pub(super) struct Verified {
    marks: Box<[AtomicU64]>,
    seed: u64,
    since: Instant,
}

impl Verified {
    pub(super) fn new(seed: u64) -> Self {
        let marks = (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect();
        Self { marks, seed, since: Instant::now() }
    }

    pub(super) fn remember(&self, key: Key, file: &Metadata) {
        let mark = self.mark(key, file, self.since.elapsed().as_secs());
        self.place(key).store(mark, Relaxed);
    }

    pub(super) fn holds(&self, key: Key, file: &Metadata) -> bool {
        let mark = self.mark(key, file, self.since.elapsed().as_secs());
        self.place(key).load(Relaxed) == mark
    }

    fn place(&self, key: Key) -> &AtomicU64 {
        let place = hash64(&(key.0 ^ self.seed).to_le_bytes());
        &self.marks[place as usize % self.marks.len()]
    }

    /// A mark that tells this file, as it is, at about this time, from all others.
    fn mark(&self, key: Key, file: &Metadata, seconds: u64) -> u64 {
        // Not all in the same second.
        let period = (seconds + key.0 % GOOD_FOR) / GOOD_FOR;
        let parts = [
            self.seed,
            key.0,
            file.ino(),
            file.len(),
            file.ctime() as u64,
            file.ctime_nsec() as u64,
            period,
        ];
        hash64(parts.map(u64::to_le_bytes).as_flattened()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_good_as_it_was_and_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let (verified, key) = (Verified::new(7), Key(5));
        let before = path.metadata().unwrap();
        assert!(!verified.holds(key, &before));
        verified.remember(key, &before);
        assert!(verified.holds(key, &before));
        assert!(!verified.holds(Key(6), &before));
        std::fs::write(&path, "longer").unwrap();
        assert!(!verified.holds(key, &path.metadata().unwrap()));
        let marks = [0, GOOD_FOR].map(|seconds| verified.mark(key, &before, seconds));
        assert_ne!(marks[0], marks[1]);
    }

    #[test]
    fn what_is_being_sent_takes_a_sixteenth_of_the_tier() {
        assert_eq!((room(1 << 30), room(1 << 20), room(1 << 50)), (64, 4, 4096));
        assert_eq!((share(1), share(1 << 20), share((1 << 20) + 1)), (1, 1, 2));
    }
}
