//! Sizes of objects, learned from responses. The large-file variants of
//! the policies (OSDI'02 Sec. 5.4.2) need them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use levada_types::Key;

/// Slots of the table. Two objects that share a slot only replace each other.
const SLOTS: usize = 1 << 16;
/// In place of a size: the slot was never used.
const UNKNOWN: u64 = u64::MAX;

/// A table of sizes, of bounded size. All threads read it with each request, so it has no lock.
pub struct Sizes {
    slots: Box<[Slot]>,
}

/// The check is the key, changed by the size (exclusive or). If two threads write a slot at once, check
/// and size may be of two objects; then the slot belongs to neither.
struct Slot {
    check: AtomicU64,
    size: AtomicU64,
}

impl Default for Sizes {
    fn default() -> Self {
        let unused = |_| Slot { check: AtomicU64::new(0), size: AtomicU64::new(UNKNOWN) };
        Self { slots: (0..SLOTS).map(unused).collect() }
    }
}

impl Sizes {
    /// The size of the object, if it is known.
    pub fn get(&self, key: Key) -> Option<u64> {
        let slot = self.slot(key);
        let size = slot.size.load(Relaxed);
        (slot.check.load(Relaxed) ^ size == key.0 && size != UNKNOWN).then_some(size)
    }

    /// Notes the size of an object.
    pub fn learn(&self, key: Key, size: u64) {
        if self.get(key) != Some(size) {
            let slot = self.slot(key);
            slot.check.store(key.0 ^ size, Relaxed);
            slot.size.store(size, Relaxed);
        }
    }

    fn slot(&self, key: Key) -> &Slot {
        &self.slots[key.0 as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_known_until_another_object_takes_the_slot() {
        let sizes = Sizes::default();
        assert_eq!(sizes.get(Key(7)), None);
        sizes.learn(Key(7), 100);
        sizes.learn(Key(7), 200);
        assert_eq!((sizes.get(Key(7)), sizes.get(Key(u64::MAX))), (Some(200), None));
        let other = Key(7 + SLOTS as u64);
        sizes.learn(other, 300);
        assert_eq!((sizes.get(Key(7)), sizes.get(other)), (None, Some(300)));
    }
}
