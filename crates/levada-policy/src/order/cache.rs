//! Remembered orders: a direct-mapped table of cache lines, and a small one for whole orders.
//!
//! Nearly every walk ends within the first few nodes, so that a line of 64 bytes holds what it
//! needs:
//!
//! ```text
//! | key 8 | depth 2 | spread 2 | first 13 nodes, 4 each |
//! ```
//!
//! Only objects that are in demand beyond that, as in a flash crowd, have a deep order. There are few
//! of them at a time, so 1/64 as many places suffice, each as long as the walk was.

use levada_types::{Key, weigh};

use super::Table;
use crate::NodeIndex;

/// Nodes in a line.
pub(super) const LINE: usize = 13;

#[derive(Clone)]
pub(super) struct Cache {
    lines: Box<[Line]>,
    deep: Box<[Deep]>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    key: Key,
    depth: u16,
    spread: u16,
    nodes: [NodeIndex; LINE],
}

#[derive(Clone, Default)]
struct Deep {
    key: u64,
    spread: usize,
    nodes: Vec<NodeIndex>,
}

impl Cache {
    /// Room for `entries` orders; one at least, that of the walk under way.
    pub(super) fn new(entries: usize) -> Self {
        let empty = Line { key: Key(0), depth: 0, spread: 0, nodes: [NodeIndex(0); LINE] };
        Self {
            lines: vec![empty; entries.max(1)].into(),
            deep: vec![Deep::default(); entries.div_ceil(64).max(1)].into(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.lines.iter_mut().for_each(|line| line.depth = 0);
        self.deep.iter_mut().for_each(|deep| deep.nodes.clear());
    }

    /// The place of `key`: from bits that neither the shard of an owner nor an order follows from.
    #[inline]
    pub(super) fn slot(&self, key: Key) -> usize {
        scale(weigh(key, PLACE), self.lines.len())
    }

    /// The node at `position` of the order of `key`, if it is remembered.
    #[inline]
    pub(super) fn known(&self, key: Key, slot: usize, position: usize) -> Option<NodeIndex> {
        let line = &self.lines[slot];
        if line.key == key && position < usize::from(line.depth) {
            return line.nodes.get(position).copied();
        }
        None
    }

    /// Works the order of `key` out to `position` or beyond: to `usual` at first, then further in
    /// leaps, as every leap costs a pass over all nodes.
    pub(super) fn extend(
        &mut self,
        key: Key,
        slot: usize,
        position: usize,
        usual: usize,
        table: &Table,
    ) -> Option<NodeIndex> {
        let all = table.nodes();
        if position >= all {
            return None;
        }
        if position >= LINE || usual > LINE {
            let index = self.deep_slot(slot);
            return self.deep[index].nth(key, position, usual, table);
        }
        let line = &mut self.lines[slot];
        let held = if line.key == key { usize::from(line.depth) } else { 0 };
        let depth = usual.max(position + 1).max(held * LEAP).min(LINE).min(all);
        line.key = key;
        line.spread = table.fill(key, &mut line.nodes[..depth]).min(LINE) as u16;
        line.depth = depth as u16;
        Some(line.nodes[position])
    }

    /// The spread of the order of `key`, which has just been looked at.
    pub(super) fn spread(&self, key: Key, slot: usize) -> usize {
        let (line, deep) = (&self.lines[slot], &self.deep[self.deep_slot(slot)]);
        if line.depth > 0 && line.key == key { usize::from(line.spread) } else { deep.spread }
    }

    fn deep_slot(&self, slot: usize) -> usize {
        slot % self.deep.len()
    }
}

impl Deep {
    fn nth(&mut self, key: Key, position: usize, usual: usize, table: &Table) -> Option<NodeIndex> {
        if self.key != key.0 || self.nodes.is_empty() {
            self.key = key.0;
            self.nodes.clear();
        }
        if position >= self.nodes.len() {
            let held = self.nodes.len().max(LINE);
            let depth = usual.max(position + 1).max(held * LEAP).min(table.nodes());
            self.nodes.resize(depth, NodeIndex(0));
            self.spread = table.fill(key, &mut self.nodes);
        }
        self.nodes.get(position).copied()
    }
}

/// Scales 64 random bits to `0..length`.
#[inline]
pub(crate) fn scale(bits: u64, length: usize) -> usize {
    ((u128::from(bits) * length as u128) >> 64) as usize
}

/// By how much an order that proved too short is lengthened.
const LEAP: usize = 4;

/// Tells the cache's use of a key from every other.
const PLACE: u64 = 0x6f72_6465_7263_6163;
