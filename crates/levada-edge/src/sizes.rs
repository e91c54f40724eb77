//! Sizes of objects that are served elsewhere, learnt from responses that passed: the large-file
//! variants of the policies (OSDI'02 Sec. 5.4.2) need them.

use http::{HeaderMap, StatusCode, header::CONTENT_LENGTH};
use levada_types::Key;
use parking_lot::RwLock;

use crate::fields::LARGE;

/// Slots of the table; two objects that share one forget each other, no more.
const SLOTS: usize = 1 << 16;

/// A bounded memory of sizes.
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
        // The head of a large file comes between peers without its body.
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
