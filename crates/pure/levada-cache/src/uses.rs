//! Counts the requests for keys, to store only what is requested often enough.
//!
//! A count-min sketch (Cormode and Muthukrishnan 2005) of fixed size: the count of a key is the least of
//! its four counters, so it is never too small before the counters are halved, and rarely too large.
//! Halving, after as many requests as there are counters in a row, lets counts of the past fade.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use levada_types::{Key, weigh};

const ROWS: u64 = 4;
const ROW: u64 = 1 << 16;

/// The number of recent requests for each key, in 256 KiB.
#[derive(Debug)]
pub struct Uses {
    counters: Box<[AtomicU8]>,
    since_halving: AtomicU32,
    seed: u64,
}

impl Uses {
    /// The largest number that can be asked for.
    pub const MOST: u8 = 100;

    /// No requests yet. With a random seed nobody can choose URLs whose counters are others'.
    pub fn new(seed: u64) -> Self {
        let counters = (0..ROWS * ROW).map(|_| AtomicU8::new(0)).collect();
        Self { counters, since_halving: AtomicU32::new(0), seed }
    }

    /// Counts a request.
    pub fn note(&self, key: Key) {
        for counter in self.of(key) {
            let _ = counter.fetch_update(Relaxed, Relaxed, |n| n.checked_add(1));
        }
        if u64::from(self.since_halving.fetch_add(1, Relaxed)) == ROW {
            for counter in &self.counters {
                counter.store(counter.load(Relaxed) / 2, Relaxed);
            }
            self.since_halving.store(0, Relaxed);
        }
    }

    /// The requests for a key so far.
    pub fn count(&self, key: Key) -> u8 {
        self.of(key).map(|counter| counter.load(Relaxed)).min().unwrap_or_default()
    }

    fn of(&self, key: Key) -> impl Iterator<Item = &AtomicU8> {
        (0..ROWS).map(move |row| {
            let place = weigh(key, self.seed ^ row) % ROW;
            &self.counters[(row * ROW + place) as usize]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_key() {
        let uses = Uses::new(7);
        for n in 1..=5 {
            uses.note(Key(1));
            assert_eq!((uses.count(Key(1)), uses.count(Key(2))), (n, 0));
        }
    }

    #[test]
    fn counts_fade_and_few_keys_are_counted_too_often() {
        let uses = Uses::new(7);
        for _ in 0..40 {
            uses.note(Key(0));
        }
        for key in 1..=ROW {
            uses.note(Key(weigh(Key(key), 1)));
        }
        assert!((20..=22).contains(&uses.count(Key(0))), "{}", uses.count(Key(0)));
        let wrong = (0..10_000).filter(|n| uses.count(Key(weigh(Key(*n), 2))) > 1).count();
        assert!(wrong < 500, "{wrong}");
    }
}
