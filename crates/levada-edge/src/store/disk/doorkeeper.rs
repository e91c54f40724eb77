//! Admission on the second hit: what is asked for once is not worth a write.
//!
//! A table of fingerprints, each replaced by the next key that falls to its place: what was seen long
//! ago is forgotten by itself. Four bytes for each of the records that the disk may hold, roughly.

use levada_types::{Key, weigh};

pub(super) struct Doorkeeper {
    seen: Box<[u32]>,
    seed: u64,
}

/// A guess at the size of a record, and bounds of the table.
const RECORD: u64 = 16 << 10;
const PLACES: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 22;

impl Doorkeeper {
    /// One for a disk of so many bytes.
    pub(super) fn new(bytes: u64, seed: u64) -> Self {
        let places = (bytes / RECORD).clamp(*PLACES.start(), *PLACES.end());
        Self { seen: vec![0; places as usize].into(), seed }
    }

    /// Whether `key` was here before; it has been from now on.
    pub(super) fn knows(&mut self, key: Key) -> bool {
        let hash = weigh(key, self.seed);
        let place = (hash % self.seen.len() as u64) as usize;
        // Zero is a place that nobody has taken.
        let fingerprint = (hash >> 32) as u32 | 1;
        std::mem::replace(&mut self.seen[place], fingerprint) == fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_time_is_known_and_few_others_are() {
        let mut doorkeeper = Doorkeeper::new(1 << 30, 5);
        assert!(!doorkeeper.knows(Key(1)));
        assert!(doorkeeper.knows(Key(1)));
        let strangers = (10..10_000).filter(|&key| doorkeeper.knows(Key(key))).count();
        assert_eq!(strangers, 0);
        assert!(doorkeeper.knows(Key(9_999)));
    }
}
