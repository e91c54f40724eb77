//! Outstanding requests per node: the only load signal of OSDI'02 and LARD.
//!
//! When nodes join and leave, another table takes over. Requests that were counted before it still count, at
//! the place that their node has then:
//!
//! ```text
//!   table of a, b, c ──> table of a, c, d
//!   a  MOVED ──────────> a  with the count of a
//!   b  MOVED + count        a node that left keeps its count, which falls to zero
//!   c  MOVED ──────────> c  with the count of c
//! ```
//!
//! A guard learns from the count that it changes whether it has moved, so this costs a request nothing.

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
};

use crate::NodeIndex;

/// Counts, per node, the requests that were sent and are not finished.
#[derive(Debug)]
pub struct LoadTable {
    // Packed, not padded to cache lines: policies scan this array far more often than cores contend
    // for it.
    outstanding: Box<[AtomicU32]>,
    total: AtomicU64,
    successor: OnceLock<Successor>,
}

/// The table that has taken over, and where each node is in it; `None`: it left.
#[derive(Debug)]
struct Successor {
    table: Arc<LoadTable>,
    places: Box<[Option<NodeIndex>]>,
}

/// Counts from here on have moved. What guards add or take meanwhile is far less than the distance to the next
/// bound.
const MOVED: u32 = 1 << 31;
/// A count that has moved begins here.
const MOVED_ZERO: u32 = MOVED | 1 << 30;
/// Keeps a count above zero while another one is added to it.
const MARGIN: u32 = 1 << 29;

impl LoadTable {
    /// A table for `nodes` nodes, all idle.
    pub fn new(nodes: usize) -> Arc<Self> {
        let outstanding = (0..nodes).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { outstanding, total: AtomicU64::new(0), successor: OnceLock::new() })
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Outstanding requests at `node`.
    #[inline]
    pub fn of(&self, node: NodeIndex) -> u32 {
        let count = self.outstanding[node.get()].load(Relaxed);
        if count < MOVED { count } else { self.of_moved(node, count) }
    }

    #[cold]
    fn of_moved(&self, node: NodeIndex, count: u32) -> u32 {
        match self.successor_of(node) {
            Some((table, to)) => table.of(to),
            None => count.saturating_sub(MOVED_ZERO),
        }
    }

    /// Outstanding requests at all nodes together.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// The counts of all nodes by index, for policies that look at every node.
    #[inline]
    pub(crate) fn counts(&self) -> &[AtomicU32] {
        &self.outstanding
    }

    /// Counts one request to `node` until the guard drops, on every path that the request can take.
    pub fn begin(self: &Arc<Self>, node: NodeIndex) -> Outstanding {
        if self.outstanding[node.get()].fetch_add(1, Relaxed) >= MOVED {
            return self.begin_moved(node);
        }
        self.total.fetch_add(1, Relaxed);
        Outstanding { table: self.clone(), node }
    }

    #[cold]
    fn begin_moved(self: &Arc<Self>, node: NodeIndex) -> Outstanding {
        match self.successor_of(node) {
            Some((table, to)) => {
                self.outstanding[node.get()].fetch_sub(1, Relaxed);
                table.begin(to)
            }
            None => Outstanding { table: self.clone(), node },
        }
    }

    fn end(&self, node: NodeIndex) {
        if self.outstanding[node.get()].fetch_sub(1, Relaxed) >= MOVED {
            self.end_moved(node);
        } else {
            self.total.fetch_sub(1, Relaxed);
        }
    }

    #[cold]
    fn end_moved(&self, node: NodeIndex) {
        if let Some((table, to)) = self.successor_of(node) {
            table.end(to);
        }
    }

    /// Where a node is whose count has moved; `None`: it left.
    fn successor_of(&self, node: NodeIndex) -> Option<(&Arc<Self>, NodeIndex)> {
        // A thread that has seen a moved count sees the successor, which was set before.
        fence(Acquire);
        let Successor { table, places } = self.successor.get()?;
        Some((table, (*places.get(node.get())?)?))
    }

    /// Lets a new table take over. `places` says where each node of this table is in the new one; `None`: it left.
    /// Requests that were counted here count there from now on. Those at nodes that left are counted here until
    /// they end. Call it before policies see the new table, and once.
    pub fn hand_over(&self, new: &Arc<Self>, places: Box<[Option<NodeIndex>]>) {
        let successor = Successor { table: new.clone(), places: places.clone() };
        if self.successor.set(successor).is_err() {
            return;
        }
        for (count, to) in self.outstanding.iter().zip(&places) {
            let Some(to) = to else {
                let left = count.fetch_add(MOVED_ZERO, Release);
                self.total.fetch_sub(left.into(), Relaxed);
                continue;
            };
            let count_there = &new.outstanding[to.get()];
            // Guards that end meanwhile are taken from the new count at once.
            count_there.fetch_add(MARGIN, Relaxed);
            let moved = count.swap(MOVED_ZERO, Release);
            count_there.fetch_add(moved, Relaxed);
            count_there.fetch_sub(MARGIN, Relaxed);
            self.total.fetch_sub(moved.into(), Relaxed);
            new.total.fetch_add(moved.into(), Relaxed);
        }
    }

    /// Outstanding requests at nodes that left when another table took over.
    pub fn at_nodes_that_left(&self) -> u32 {
        let Some(Successor { places, .. }) = self.successor.get() else { return 0 };
        let left = self.outstanding.iter().zip(places).filter(|(_, place)| place.is_none());
        left.map(|(count, _)| count.load(Relaxed).saturating_sub(MOVED_ZERO)).sum()
    }

    /// Sets a count directly, for drivers that receive loads instead of counting them, and for
    /// tests.
    pub fn set(&self, node: NodeIndex, outstanding: u32) {
        let before = self.outstanding[node.get()].swap(outstanding, Relaxed);
        self.total.fetch_add(u64::from(outstanding), Relaxed);
        self.total.fetch_sub(u64::from(before), Relaxed);
    }
}

/// One outstanding request. Keep it until the body has ended or the request was aborted.
#[derive(Debug)]
pub struct Outstanding {
    table: Arc<LoadTable>,
    node: NodeIndex,
}

impl Outstanding {
    /// The node that the request was sent to.
    pub fn node(&self) -> NodeIndex {
        self.node
    }

    /// The same node's index in the table that counts now; `None` if it left.
    pub fn node_now(&self) -> Option<NodeIndex> {
        let (mut table, mut node) = (&self.table, self.node);
        while table.outstanding[node.get()].load(Relaxed) >= MOVED {
            (table, node) = table.successor_of(node)?;
        }
        Some(node)
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.table.end(self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_falls_when_the_guard_drops() {
        let table = LoadTable::new(2);
        let one = table.begin(NodeIndex(1));
        let two = table.begin(NodeIndex(1));
        assert_eq!((table.of(NodeIndex(0)), table.of(NodeIndex(1))), (0, 2));
        drop(one);
        table.set(NodeIndex(0), 7);
        assert_eq!((table.of(two.node()), table.total()), (1, 8));
        table.set(NodeIndex(0), 0);
        drop(two);
        assert_eq!((table.of(NodeIndex(1)), table.total()), (0, 0));
    }

    const ROTATED: [Option<NodeIndex>; 3] = [Some(NodeIndex(1)), Some(NodeIndex(0)), None];

    #[test]
    fn counts_follow_their_nodes_into_the_next_table() {
        let (first, second) = (LoadTable::new(3), LoadTable::new(3));
        let begun: Vec<_> = [0, 0, 1, 2].map(NodeIndex).map(|node| first.begin(node)).into();
        first.hand_over(&second, ROTATED.into());
        assert_eq!([0, 1, 2].map(|node| second.of(NodeIndex(node))), [1, 2, 0]);
        assert_eq!((second.total(), first.total(), first.at_nodes_that_left()), (3, 0, 1));
        let now: Vec<_> = begun.iter().map(Outstanding::node_now).collect();
        let at = |node| Some(NodeIndex(node));
        assert_eq!(now, [at(1), at(1), at(0), None]);
        // A request that chose before the change.
        let late = [0, 2].map(|node| first.begin(NodeIndex(node)));
        assert_eq!((first.of(NodeIndex(0)), second.of(NodeIndex(1))), (3, 3));
        assert_eq!((first.of(NodeIndex(2)), first.at_nodes_that_left()), (2, 2));
        let third = LoadTable::new(1);
        second.hand_over(&third, [None, at(0), None].into());
        assert_eq!((third.of(NodeIndex(0)), third.total()), (3, 3));
        drop((begun, late));
        assert_eq!((third.of(NodeIndex(0)), third.total()), (0, 0));
        assert_eq!((first.at_nodes_that_left(), second.at_nodes_that_left()), (0, 0));
    }
}
