//! FDR's memory: a fixed table of set sizes, shared by the objects that hash to the same slot
//! (OSDI'02 Sec. 3.4.2). At worst two objects in one slot share a length. So the table needs no keys,
//! and a flood of new objects cannot grow it.

use std::time::Duration;

use levada_types::{Key, Timestamp, weigh};

use crate::{Tracked, lazy::LazyTable, order::scale};

/// Lengths and times are in separate tables: nearly all lengths are minimal, and then the time is
/// not read.
#[derive(Clone)]
pub(super) struct Slots {
    lengths: LazyTable<u16>,
    // The time of the last change of the length, in milliseconds and modulo 2^32. A set that did
    // not change for a multiple of 49.7 days looks fresh again, and shrinks `shrink_after` later.
    changed: LazyTable<u32>,
    shortest: u16,
    shrink_after: u128,
    // The number of slots above the minimum.
    extended: usize,
}

/// One slot and the length that it had.
#[derive(Clone, Copy)]
pub(super) struct SetSlot {
    index: usize,
    pub(super) length: usize,
}

impl Slots {
    pub(super) fn new(count: usize, shortest: u16, shrink_after: Duration) -> Self {
        let count = count.max(1);
        Self {
            lengths: LazyTable::new(count, shortest),
            changed: LazyTable::new(count, 0),
            shortest,
            shrink_after: shrink_after.as_millis(),
            extended: 0,
        }
    }

    /// Takes over the lengths of a table of the same size. In a table of another size the slots
    /// belong to other keys.
    pub(super) fn inherit(&mut self, former: Self) {
        if former.lengths.len() == self.lengths.len() {
            self.lengths = former.lengths;
            self.changed = former.changed;
            self.lengths.update(|length| *length = (*length).max(self.shortest));
            self.extended =
                self.lengths.written().filter(|length| **length > self.shortest).count();
        }
    }

    #[inline]
    pub(super) fn of(&self, key: Key) -> SetSlot {
        let index = scale(weigh(key, SLOT), self.lengths.len());
        SetSlot { index, length: usize::from(*self.lengths.get(index)) }
    }

    /// Call this when the walk found a server within `length` steps. Takes one step off if the
    /// length has not changed for `shrink_after`, and returns the new length.
    #[inline]
    pub(super) fn shrink(&mut self, slot: SetSlot, length: usize, now: Timestamp) -> usize {
        if length <= usize::from(self.shortest) {
            return length;
        }
        let quiet = milliseconds(now).wrapping_sub(*self.changed.get(slot.index));
        if u128::from(quiet) <= self.shrink_after {
            return length;
        }
        self.set(slot, length - 1, now);
        length - 1
    }

    /// Call this when the walk took `length` steps to a server that is not busy, or to the end.
    pub(super) fn grow(&mut self, slot: SetSlot, length: usize, now: Timestamp) {
        if length > slot.length {
            self.set(slot, length, now);
        }
    }

    fn set(&mut self, slot: SetSlot, length: usize, now: Timestamp) {
        let after = u16::try_from(length).unwrap_or(u16::MAX).max(self.shortest);
        let before = std::mem::replace(self.lengths.get_mut(slot.index), after);
        *self.changed.get_mut(slot.index) = milliseconds(now);
        self.extended += usize::from(after > self.shortest);
        self.extended -= usize::from(before > self.shortest);
    }

    pub(super) fn tracked(&self) -> Tracked {
        let bytes = self.lengths.bytes() + self.changed.bytes();
        Tracked { objects: self.extended, limit: self.lengths.len(), bytes }
    }
}

fn milliseconds(now: Timestamp) -> u32 {
    (now.0 / 1_000_000) as u32
}

/// The seed that makes the slot of a key independent of the key's other hashes.
const SLOT: u64 = 0x6664_7220_736c_6f74;
