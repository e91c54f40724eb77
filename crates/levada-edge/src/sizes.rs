//! Sizes of objects that other nodes serve, learned from relayed responses. The large-file variants of
//! the policies (OSDI'02 Sec. 5.4.2) need them.

use http::{HeaderMap, StatusCode, header::CONTENT_LENGTH};
use levada_types::Key;
use parking_lot::RwLock;

use crate::fields::LARGE;

/// Slots of the table. Two objects that share a slot only replace each other.
const SLOTS: usize = 1 << 16;

/// A table of sizes, of bounded size.
pub(crate) struct Sizes {
    slots: RwLock<Box<[(Key, u64)]>>,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { slots: RwLock::new(vec![(Key(0), u64::MAX); SLOTS].into()) }
    }
}

impl Sizes {
    /// The size of the object, if it is known.
    pub(crate) fn get(&self, key: Key) -> Option<u64> {
        let (owner, size) = self.slots.read()[slot(key)];
        (owner == key && size != u64::MAX).then_some(size)
    }

    /// Takes the size from the head of a whole response.
    pub(crate) fn learn(&self, key: Key, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::OK {
            return;
        }
        let number = |name| headers.get(name).and_then(|v| v.to_str().ok()?.parse().ok());
        // A peer sends the head of a large file without its body.
        let length: Option<u64> = match number(CONTENT_LENGTH) {
            Some(0) => number(LARGE).or(Some(0)),
            length => length,
        };
        let Some(size) = length else { return };
        if self.slots.read()[slot(key)] != (key, size) {
            self.slots.write()[slot(key)] = (key, size);
        }
    }
}

fn slot(key: Key) -> usize {
    key.0 as usize % SLOTS
}
