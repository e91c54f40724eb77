//! Admission on the second request: an object that is requested once is not worth storing.
//!
//! The doorkeeper of TinyLFU (Einziger et al., ACM Transactions on Storage 13(4), 2017, Sec.
//! 3.4.2), as a table of fingerprints instead of a Bloom filter. The next key with the same slot
//! replaces a fingerprint, so the table ages without a reset.

use levada_types::{Key, weigh};

/// Remembers about a fixed number of recent keys; older keys are more likely to be forgotten.
pub struct Doorkeeper {
    seen: Box<[u32]>,
    seed: u64,
}

/// The assumed size of an object, and limits of the number of slots.
const OBJECT: u64 = 16 << 10;
const PLACES: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 22;

impl Doorkeeper {
    /// A doorkeeper for a tier of `bytes`. Draw `seed` at random if clients can choose keys.
    pub fn new(bytes: u64, seed: u64) -> Self {
        Self::scaled(bytes, 1.0, seed)
    }

    /// The doorkeeper of a tier of `bytes` for a sample of the objects: it remembers this share of the keys, from
    /// above 0 to 1, and at least one.
    pub fn scaled(bytes: u64, rate: f64, seed: u64) -> Self {
        let places = (bytes / OBJECT).clamp(*PLACES.start(), *PLACES.end());
        let places = (places as f64 * rate).round().max(1.0);
        Self { seen: vec![0; places as usize].into(), seed }
    }

    /// Whether `key` was seen before. Records it.
    pub fn knows(&mut self, key: Key) -> bool {
        let hash = weigh(key, self.seed);
        let place = (hash % self.seen.len() as u64) as usize;
        // Zero marks an empty slot.
        let fingerprint = (hash >> 32) as u32 | 1;
        std::mem::replace(&mut self.seen[place], fingerprint) == fingerprint
    }

    /// The size of the table in bytes.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.seen) as u64
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

    #[test]
    fn what_was_seen_long_ago_is_forgotten_and_the_table_stays_as_it_is() {
        let mut doorkeeper = Doorkeeper::new(1 << 20, 5);
        let bytes = doorkeeper.bytes();
        assert!(!(0..100_000).any(|key| doorkeeper.knows(Key(key))));
        assert!((0..100).all(|key| !doorkeeper.knows(Key(key))));
        assert_eq!((bytes, doorkeeper.bytes()), (4 << 10, 4 << 10));
    }
}
