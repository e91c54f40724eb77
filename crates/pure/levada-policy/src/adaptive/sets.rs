//! The memory of sets and of popularity: a fixed table of slots.
//!
//! ```text
//! | print 2 | count 2 | epoch 2 | changed 2 | first 2 | len 2 |     12 bytes
//! ```
//!
//! A key belongs to one slot; the print tells which object has it. A new object takes the slot over
//! only if the count of the former one has fallen to 1 or below, else it decrements that count, as
//! in space saving (Metwally et al., ICDT'05). So a flood of new objects evicts nothing popular.
//!
//! The hash of the slots is seeded by chance for each instance: nobody outside can choose keys that
//! share a slot. The hash of the placement is not, because redirectors must agree on it.

use levada_types::{Key, Rng, Timestamp, weigh};

use super::window::Window;
use crate::{NodeIndex, Tracked, lazy::LazyTable, order::scale};

#[derive(Clone)]
pub(super) struct ObjectSets {
    slots: LazyTable<Slot>,
    used: usize,
    seed: Option<u64>,
}

#[derive(Clone, Copy)]
struct Slot {
    print: u16,
    // Requests in the window, as of `epoch`.
    count: u16,
    epoch: u16,
    changed: Ticks,
    first: u16,
    // 0 in a slot that was never used.
    len: u16,
}

/// The nodes of an object: `len` nodes of its order, from `first` on, or from the front of the order
/// if that is `None` or not up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectSet {
    pub(super) first: Option<NodeIndex>,
    pub(super) len: usize,
    changed: Ticks,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedSet {
    pub(super) set: ObjectSet,
    /// The object's requests in the window, this one included.
    pub(super) count: u16,
    /// Whether the object was in the table before.
    pub(super) known: bool,
    /// The object's slot; `None` if a more popular object keeps it.
    pub(super) slot: Option<usize>,
}

impl ObjectSet {
    pub(super) fn of(first: Option<NodeIndex>, len: usize) -> Self {
        Self { first, len, changed: 0 }
    }

    /// Whether the set has not changed for 20 s, K of LARD/R.
    #[inline]
    pub(super) fn rested(&self, now: Timestamp) -> bool {
        ticks(now).wrapping_sub(self.changed) > SHRINK_AFTER
    }
}

impl Default for ObjectSet {
    fn default() -> Self {
        Self::of(None, 1)
    }
}

impl ObjectSets {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots: LazyTable::new(slots.max(1), UNUSED), used: 0, seed: None }
    }

    /// Counts a request for `key`, and looks up its set.
    #[inline]
    pub(super) fn ask(&mut self, key: Key, window: &Window, rng: &mut Rng) -> AskedSet {
        let seed = *self.seed.get_or_insert_with(|| rng.bits());
        let (index, print) = self.place(key, seed);
        let slot = self.slots.get_mut(index);
        let count = slot.count_in(window.epoch());
        slot.epoch = window.epoch();
        if slot.print == print && slot.len > 0 {
            slot.count = count.saturating_add(1);
            return AskedSet { set: slot.set(), count: slot.count, known: true, slot: Some(index) };
        }
        if count > 1 {
            slot.count = count - 1;
            return AskedSet { set: ObjectSet::default(), count: 1, known: false, slot: None };
        }
        self.used += usize::from(slot.len == 0);
        *slot = Slot { print, count: 1, epoch: window.epoch(), len: 1, ..UNUSED };
        AskedSet { set: slot.set(), count: 1, known: false, slot: Some(index) }
    }

    /// The set of `key` and its requests in the window, if the table has it. Changes nothing.
    pub(super) fn peek(&self, key: Key, window: &Window) -> Option<(ObjectSet, u16)> {
        let (index, print) = self.place(key, self.seed?);
        let slot = self.slots.get(index);
        let known = slot.print == print && slot.len > 0;
        known.then(|| (slot.set(), slot.count_in(window.epoch())))
    }

    /// Sets the set of the object in `slot`. A node that cannot be written in 16 bits is forgotten.
    pub(super) fn record(&mut self, slot: Option<usize>, set: ObjectSet, now: Timestamp) {
        let Some(slot) = slot.map(|index| self.slots.get_mut(index)) else { return };
        let first = set.first.and_then(|node| u16::try_from(node.0).ok()).unwrap_or(FRONT);
        let len = u16::try_from(set.len).unwrap_or(u16::MAX).max(1);
        *slot = Slot { first, len, changed: ticks(now), ..*slot };
    }

    /// Replaces the first node of each moved set; a set that gets `None` returns to the front of its
    /// order.
    pub(super) fn rename(&mut self, name: impl Fn(NodeIndex) -> Option<NodeIndex>) {
        self.slots.update(|slot| {
            if slot.first != FRONT {
                let renamed = name(NodeIndex(slot.first.into()));
                slot.first = renamed.and_then(|node| u16::try_from(node.0).ok()).unwrap_or(FRONT);
            }
        });
    }

    /// Takes over the sets of a table of the same size; says whether it did. In a table of another
    /// size the slots belong to other keys.
    pub(super) fn inherit(&mut self, former: Self) -> bool {
        let same = former.slots.len() == self.slots.len();
        if same {
            *self = former;
        }
        same
    }

    pub(super) fn tracked(&self) -> Tracked {
        Tracked { objects: self.used, limit: self.slots.len(), bytes: self.slots.bytes() }
    }

    #[inline]
    fn place(&self, key: Key, seed: u64) -> (usize, u16) {
        let bits = weigh(key, seed);
        (scale(bits, self.slots.len()), bits as u16)
    }
}

impl Slot {
    fn set(&self) -> ObjectSet {
        let first = (self.first != FRONT).then(|| NodeIndex(self.first.into()));
        ObjectSet { first, len: self.len.into(), changed: self.changed }
    }

    /// The count in `epoch`: it halves with each epoch.
    fn count_in(&self, epoch: u16) -> u16 {
        self.count >> epoch.wrapping_sub(self.epoch).min(15)
    }
}

const UNUSED: Slot = Slot { print: 0, count: 0, epoch: 0, changed: 0, first: FRONT, len: 0 };

/// In place of a node: the set begins at the front of its order.
const FRONT: u16 = u16::MAX;

/// Units of 2^27 ns, about 1/8 s, modulo 2^16. A set that did not change for a multiple of 2.4 hours
/// looks fresh again, and shrinks 20 s later.
type Ticks = u16;

fn ticks(now: Timestamp) -> Ticks {
    (now.0 >> 27) as Ticks
}

const SHRINK_AFTER: Ticks = (20_000_000_000u64 >> 27) as Ticks;
