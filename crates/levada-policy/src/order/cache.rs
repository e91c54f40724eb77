//! Remembered orders: a direct-mapped table of cache lines, and a small one for whole orders.
//!
//! Nearly every walk ends within the first few nodes, so that half a line of the processor's cache
//! holds what it needs:
//!
//! ```text
//! | key 8 | first 10 nodes, 2 each | depth 1 | spread 1 | used 1 | 1 free |
//! ```
//!
//! A line that was used since the last object passed it over is not given up to the next: that one's
//! order is worked out aside. So objects that are asked for once do not drive out the popular ones.
//!
//! Only objects that are in demand beyond that, as in a flash crowd, have a deep order. There are few
//! of them at a time, so 1/64 as many places suffice, each as long as the walk was.

use levada_types::{Key, weigh};

use super::Table;
use crate::NodeIndex;

/// Nodes in a line.
pub(super) const LINE: usize = 10;

/// The largest cluster whose nodes fit into lines. Orders of a larger one are all deep.
const MOST_NODES: usize = 1 << 16;

#[derive(Clone)]
pub(super) struct Cache {
    lines: Box<[Line]>,
    deep: Box<[Deep]>,
}

#[derive(Clone, Copy)]
#[repr(align(32))]
struct Line {
    key: Key,
    nodes: [u16; LINE],
    depth: u8,
    spread: u8,
    used: bool,
}

/// Where one key is or would be.
#[derive(Clone, Copy)]
pub(super) struct Place {
    line: usize,
    deep: usize,
}

#[derive(Clone, Default)]
struct Deep {
    key: u64,
    spread: usize,
    nodes: Vec<NodeIndex>,
}

impl Cache {
    /// Room for `entries` orders besides that of the walk under way, which is the last line.
    pub(super) fn new(entries: usize) -> Self {
        let empty = Line { key: Key(0), nodes: [0; LINE], depth: 0, spread: 0, used: false };
        Self {
            lines: vec![empty; entries + 1].into(),
            deep: vec![Deep::default(); entries.div_ceil(64).max(1)].into(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.lines.iter_mut().for_each(|line| line.depth = 0);
        self.deep.iter_mut().for_each(|deep| deep.nodes.clear());
    }

    /// The place of `key` for one walk: from bits that neither the shard of an owner nor an order
    /// follows from.
    #[inline]
    pub(super) fn place(&mut self, key: Key) -> Place {
        let bits = weigh(key, PLACE);
        let (aside, deep) = (self.lines.len() - 1, scale(bits, self.deep.len()));
        let own = scale(bits, aside);
        let line = &mut self.lines[own];
        if line.key != key && line.used {
            line.used = false;
            return Place { line: aside, deep };
        }
        if line.key == key && !line.used {
            line.used = line.depth > 0;
        }
        Place { line: own, deep }
    }

    /// The node at `position` of the order of `key`, if it is remembered.
    #[inline]
    pub(super) fn known(&self, key: Key, place: Place, position: usize) -> Option<NodeIndex> {
        let line = &self.lines[place.line];
        if line.key == key && position < usize::from(line.depth) {
            return line.nodes.get(position).map(|node| NodeIndex(u32::from(*node)));
        }
        None
    }

    /// The first `count` nodes of the order of `key`, if its line holds as many.
    #[inline]
    pub(super) fn first(
        &self,
        key: Key,
        place: Place,
        count: usize,
    ) -> Option<impl Iterator<Item = NodeIndex>> {
        let line = &self.lines[place.line];
        if line.key != key || count > usize::from(line.depth) {
            return None;
        }
        let nodes = line.nodes.get(..count)?;
        Some(nodes.iter().map(|node| NodeIndex(u32::from(*node))))
    }

    /// Works the order of `key` out to `position` or beyond: to `usual` at first, then further in
    /// leaps, as every leap costs a pass over all nodes.
    pub(super) fn extend(
        &mut self,
        key: Key,
        place: Place,
        position: usize,
        usual: usize,
        table: &Table,
    ) -> Option<NodeIndex> {
        let all = table.nodes();
        if position >= all {
            return None;
        }
        if position >= LINE || usual > LINE || all > MOST_NODES {
            return self.deep[place.deep].nth(key, position, usual, table);
        }
        let line = &mut self.lines[place.line];
        let held = if line.key == key { usize::from(line.depth) } else { 0 };
        let depth = usual.max(position + 1).max(held * LEAP).min(LINE).min(all);
        line.used &= line.key == key;
        line.key = key;
        let mut nodes = [NodeIndex(0); LINE];
        line.spread = table.fill(key, &mut nodes[..depth]).min(LINE) as u8;
        line.depth = depth as u8;
        line.nodes = nodes.map(|node| node.0 as u16);
        Some(nodes[position])
    }

    /// The spread of the order of `key`, which has just been looked at.
    pub(super) fn spread(&self, key: Key, place: Place) -> usize {
        let (line, deep) = (&self.lines[place.line], &self.deep[place.deep]);
        if line.depth > 0 && line.key == key { usize::from(line.spread) } else { deep.spread }
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
