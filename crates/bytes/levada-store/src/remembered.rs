//! Remembers keys for a limited time in a table of bounded size, for example that an origin does not
//! send ranges of an object. A key that loses its slot to another is only forgotten early.

use std::time::Duration;

use levada_types::{Key, Timestamp};
use parking_lot::RwLock;

const SLOTS: usize = 1 << 12;

/// A set of keys, each for a limited time.
pub struct Remembered {
    slots: RwLock<Box<[(Key, Timestamp)]>>,
    lifetime: Duration,
}

impl Remembered {
    /// Remembers every key for `lifetime`.
    pub fn new(lifetime: Duration) -> Self {
        Self { slots: RwLock::new(vec![(Key(0), Timestamp::ZERO); SLOTS].into()), lifetime }
    }

    /// Notes a key.
    pub fn remember(&self, key: Key, now: Timestamp) {
        self.slots.write()[slot(key)] = (key, now + self.lifetime);
    }

    /// Forgets a key.
    pub fn forget(&self, key: Key) {
        if self.slots.read()[slot(key)].0 == key {
            self.slots.write()[slot(key)].1 = Timestamp::ZERO;
        }
    }

    /// Whether a key was noted within the lifetime.
    pub fn holds(&self, key: Key, now: Timestamp) -> bool {
        let (owner, until) = self.slots.read()[slot(key)];
        owner == key && now < until
    }
}

fn slot(key: Key) -> usize {
    key.0 as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_remembered_for_its_time_only() {
        let minute = Duration::from_secs(60);
        let (now, table) = (Timestamp::ZERO + minute, Remembered::new(minute));
        assert!(!table.holds(Key(7), now));
        table.remember(Key(7), now);
        assert!(table.holds(Key(7), now) && table.holds(Key(7), now + minute / 2));
        assert!(!table.holds(Key(7), now + minute));
        assert!(!table.holds(Key(7 + SLOTS as u64), now));
    }
}
