//! Sizes of objects, learned from responses. The large-file variants of
//! the policies (OSDI'02 Sec. 5.4.2) need them.

use levada_types::Key;
use parking_lot::RwLock;

/// Slots of the table. Two objects that share a slot only replace each other.
const SLOTS: usize = 1 << 16;

/// A table of sizes, of bounded size.
pub struct Sizes {
    slots: RwLock<Box<[(Key, u64)]>>,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { slots: RwLock::new(vec![(Key(0), u64::MAX); SLOTS].into()) }
    }
}

impl Sizes {
    /// The size of the object, if it is known.
    pub fn get(&self, key: Key) -> Option<u64> {
        let (owner, size) = self.slots.read()[slot(key)];
        (owner == key && size != u64::MAX).then_some(size)
    }

    /// Notes the size of an object.
    pub fn learn(&self, key: Key, size: u64) {
        if self.slots.read()[slot(key)] != (key, size) {
            self.slots.write()[slot(key)] = (key, size);
        }
    }
}

fn slot(key: Key) -> usize {
    key.0 as usize % SLOTS
}
