//! How fast the disk is: the smoothed time of its reads, held against the time of the origin.
//!
//! Only reads that wait for the device count: what the system has in its memory says nothing of it. A read that was
//! given up counts as twice the time that it was given, so that a disk that stands becomes slow after a few.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// A disk that answers within this time is never passed by: also a healthy one may need it under load, and the
/// cache keeps load from origins.
pub(super) const QUICK: Duration = Duration::from_millis(100);
/// The weight of one read is one of so many.
const READS: u64 = 8;

/// The smoothed time of the reads of one disk. Updates that meet may lose one of them.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// In microseconds.
    usual: AtomicU64,
    slow: AtomicBool,
}

impl Speed {
    /// The time that a read takes.
    pub(super) fn usual(&self) -> Duration {
        Duration::from_micros(self.usual.load(Relaxed))
    }

    /// Whether a read takes longer than this origin.
    pub(super) fn is_below(&self, origin: impl FnOnce() -> Duration) -> bool {
        let usual = self.usual();
        usual > QUICK && usual > origin()
    }

    /// Takes in the time of a read. Returns whether the disk is slow, if that has changed.
    pub(super) fn took(&self, time: Duration) -> Option<bool> {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX) / READS;
        let usual = self.usual.load(Relaxed);
        let usual = (usual - usual / READS).saturating_add(time);
        self.usual.store(usual, Relaxed);
        let (usual, was_slow) = (Duration::from_micros(usual), self.slow.load(Relaxed));
        let slow = usual > if was_slow { QUICK / 2 } else { QUICK };
        (self.slow.swap(slow, Relaxed) != slow).then_some(slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn disk_becomes_slow_after_some_reads_and_quick_again() {
        let speed = Speed::default();
        (0..100).for_each(|_| assert_eq!(speed.took(MS), None));
        let changes: Vec<_> = (0..20).map(|_| speed.took(300 * MS)).collect();
        assert_eq!(changes.iter().position(|change| *change == Some(true)), Some(3));
        assert_eq!(changes.iter().flatten().count(), 1);
        let changes: Vec<_> = (0..20).map(|_| speed.took(MS)).collect();
        assert_eq!(changes.iter().flatten().collect::<Vec<_>>(), [&false]);
        assert!(speed.usual() < QUICK / 2);
    }

    #[test]
    fn one_late_read_changes_nothing() {
        let speed = Speed::default();
        assert_eq!(speed.took(5 * QUICK), None);
        assert!(!speed.is_below(|| Duration::ZERO));
    }

    #[test]
    fn slow_disk_is_better_than_a_slower_origin() {
        let speed = Speed::default();
        for _ in 0..50 {
            speed.took(300 * MS);
        }
        assert!(speed.is_below(|| MS));
        assert!(!speed.is_below(|| 400 * MS));
        for _ in 0..50 {
            speed.took(Duration::MAX);
        }
        assert!(!speed.is_below(|| Duration::MAX));
    }
}
