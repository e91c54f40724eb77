//! A cache of hash orders: a direct-mapped table of short orders, and a small table of long ones.
//!
//! Nearly every walk ends within the first few nodes, so half a cache line of the processor holds
//! what it needs:
//!
//! ```text
//! | key 8 | first 10 nodes, 2 each | depth 1 | spread 1 | used 1 | 1 free |
//! ```
//!
//! A line that was used since the last conflicting object is kept: the order of that object is
//! computed in a spare line. So objects that are requested once do not evict the popular ones.
//!
//! Only objects in higher demand, as in a flash crowd, have a long order. There are few of them at
//! a time, so 1/64 as many entries are enough, each as long as the longest walk was.

use levada_types::{Key, weigh};

use super::OrderTable;
use crate::{NodeIndex, lazy::LazyTable};

/// The number of nodes in a line.
pub(super) const LINE: usize = 10;

/// The largest cluster whose nodes fit into lines. In a larger one all orders are in the table of
/// long ones.
const MOST_NODES: usize = 1 << 16;

pub(super) struct Cache {
    lines: LazyTable<Line>,
    deep: LazyTable<Deep>,
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

/// The entries of one key in both tables.
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

/// A copy begins empty: it computes the same orders, and takes no time to make.
impl Clone for Cache {
    fn clone(&self) -> Self {
        Self::new(self.lines.len() - 1)
    }
}

impl Cache {
    /// Room for `entries` orders, and a spare line, the last one, for the current walk.
    pub(super) fn new(entries: usize) -> Self {
        let empty = Line { key: Key(0), nodes: [0; LINE], depth: 0, spread: 0, used: false };
        Self {
            lines: LazyTable::new(entries + 1, empty),
            deep: LazyTable::new(entries.div_ceil(64).max(1), Deep::default()),
        }
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.deep.clear();
    }

    /// The entries of `key` for one walk. They follow from bits that are independent of the owner's
    /// shard and of the orders.
    #[inline]
    pub(super) fn place(&mut self, key: Key) -> Place {
        let bits = weigh(key, PLACE);
        let (aside, deep) = (self.lines.len() - 1, scale(bits, self.deep.len()));
        let own = scale(bits, aside);
        let line = self.lines.get_mut(own);
        if line.key != key && line.used {
            line.used = false;
            return Place { line: aside, deep };
        }
        if line.key == key && !line.used {
            line.used = line.depth > 0;
        }
        Place { line: own, deep }
    }

    /// Reads the line of `key`, so that it is in the processor's cache for the next walk.
    #[inline]
    pub(super) fn prefetch(&self, key: Key) {
        let own = scale(weigh(key, PLACE), self.lines.len() - 1);
        std::hint::black_box(self.lines.get(own).used);
    }

    /// The node at `position` of the order of `key`, if it is cached.
    #[inline]
    pub(super) fn known(&self, key: Key, place: Place, position: usize) -> Option<NodeIndex> {
        let line = self.lines.get(place.line);
        if line.key == key && position < usize::from(line.depth) {
            return line.nodes.get(position).map(|node| NodeIndex(u32::from(*node)));
        }
        None
    }

    /// Appends the first `count` nodes of the order of `key` to `set`; says whether it has them.
    #[inline]
    pub(super) fn append(
        &self,
        key: Key,
        place: Place,
        count: usize,
        set: &mut Vec<NodeIndex>,
    ) -> bool {
        let (line, deep) = (self.lines.get(place.line), self.deep.get(place.deep));
        if line.key == key && count <= usize::from(line.depth) {
            set.extend(line.nodes[..count].iter().map(|node| NodeIndex(u32::from(*node))));
            return true;
        }
        let long = deep.nodes.get(..count).filter(|_| deep.key == key.0);
        long.inspect(|nodes| set.extend_from_slice(nodes)).is_some()
    }

    /// The position of `node` in the order of `key`, if it is cached.
    #[inline]
    pub(super) fn position(&self, key: Key, place: Place, node: NodeIndex) -> Option<usize> {
        let (line, deep) = (self.lines.get(place.line), self.deep.get(place.deep));
        let short = if line.key == key { &line.nodes[..usize::from(line.depth)] } else { &[] };
        let found = short.iter().position(|short| u32::from(*short) == node.0);
        found.or_else(|| {
            let mut long = deep.nodes.iter().take_while(|_| deep.key == key.0);
            long.position(|long| *long == node)
        })
    }

    /// Computes the order of `key` up to `position` or further: `usual` nodes at first, then more
    /// nodes at a time, because each extension costs a pass over all nodes.
    pub(super) fn extend(
        &mut self,
        key: Key,
        place: Place,
        position: usize,
        usual: usize,
        table: &OrderTable,
    ) -> Option<NodeIndex> {
        let all = table.nodes();
        if position >= all {
            return None;
        }
        if position >= LINE || usual > LINE || all > MOST_NODES {
            return self.deep.get_mut(place.deep).nth(key, position, usual, table);
        }
        let line = self.lines.get_mut(place.line);
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

    /// The spread of the order of `key`, which was just looked up.
    pub(super) fn spread(&self, key: Key, place: Place) -> usize {
        let (line, deep) = (self.lines.get(place.line), self.deep.get(place.deep));
        if line.depth > 0 && line.key == key { usize::from(line.spread) } else { deep.spread }
    }
}

impl Deep {
    fn nth(
        &mut self,
        key: Key,
        position: usize,
        usual: usize,
        table: &OrderTable,
    ) -> Option<NodeIndex> {
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

/// The least number of nodes by which an order that is too short is extended.
const LEAP: usize = 4;

/// The seed that makes the entry of a key independent of the key's other hashes.
const PLACE: u64 = 0x6f72_6465_7263_6163;
