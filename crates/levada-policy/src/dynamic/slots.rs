//! FDR's memory: a fixed table of set sizes, shared by the objects that hash to the same slot
//! (OSDI'02 Sec. 3.3). Two objects in one slot at worst share a length; so the table needs no keys,
//! and a flood of new objects cannot grow it.

use std::time::Duration;

use levada_types::{Key, Timestamp, weigh};

use crate::{Tracked, order::scale};

/// Lengths and times are apart: nearly all lengths are minimal, and then nobody reads the time.
#[derive(Clone)]
pub(super) struct Slots {
    lengths: Box<[u16]>,
    // When the length last changed, in milliseconds and modulo 2^32. A set left alone for a multiple
    // of 49.7 days looks fresh once more, and shrinks `shrink_after` later.
    changed: Box<[u32]>,
    shortest: u16,
    shrink_after: u128,
    // Slots of more than the minimum.
    extended: usize,
}

/// One slot, as it was found.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    index: usize,
    pub(super) length: usize,
}

impl Slots {
    pub(super) fn new(count: usize, shortest: u16, shrink_after: Duration) -> Self {
        let count = count.max(1);
        Self {
            lengths: vec![shortest; count].into(),
            changed: vec![0; count].into(),
            shortest,
            shrink_after: shrink_after.as_millis(),
            extended: 0,
        }
    }

    /// Takes over the lengths of a table of the same size; those of another belong to other keys.
    pub(super) fn inherit(&mut self, former: Self) {
        if former.lengths.len() == self.lengths.len() {
            self.lengths = former.lengths;
            self.changed = former.changed;
            self.lengths.iter_mut().for_each(|length| *length = (*length).max(self.shortest));
            self.extended = self.lengths.iter().filter(|length| **length > self.shortest).count();
        }
    }

    #[inline]
    pub(super) fn of(&self, key: Key) -> Slot {
        let index = scale(weigh(key, SLOT), self.lengths.len());
        Slot { index, length: usize::from(self.lengths[index]) }
    }

    /// The walk found a server within `length` steps. Takes one step off if it has long been so.
    /// Returns the length from now on.
    #[inline]
    pub(super) fn shrink(&mut self, slot: Slot, length: usize, now: Timestamp) -> usize {
        if length <= usize::from(self.shortest) {
            return length;
        }
        let quiet = milliseconds(now).wrapping_sub(self.changed[slot.index]);
        if u128::from(quiet) <= self.shrink_after {
            return length;
        }
        self.set(slot, length - 1, now);
        length - 1
    }

    /// The walk took `length` steps to a server that is not busy, or past all.
    pub(super) fn grow(&mut self, slot: Slot, length: usize, now: Timestamp) {
        if length > slot.length {
            self.set(slot, length, now);
        }
    }

    fn set(&mut self, slot: Slot, length: usize, now: Timestamp) {
        let before = std::mem::replace(
            &mut self.lengths[slot.index],
            u16::try_from(length).unwrap_or(u16::MAX).max(self.shortest),
        );
        self.changed[slot.index] = milliseconds(now);
        let after = self.lengths[slot.index];
        self.extended += usize::from(after > self.shortest);
        self.extended -= usize::from(before > self.shortest);
    }

    pub(super) fn tracked(&self) -> Tracked {
        let bytes = size_of_val(&*self.lengths) + size_of_val(&*self.changed);
        Tracked { objects: self.extended, limit: self.lengths.len(), bytes }
    }
}

fn milliseconds(now: Timestamp) -> u32 {
    (now.0 / 1_000_000) as u32
}

/// Tells the slot of a key from every other use of it.
const SLOT: u64 = 0x6664_7220_736c_6f74;
