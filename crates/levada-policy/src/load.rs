//! Outstanding requests per node: the only load signal of OSDI'02 and LARD.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use crate::NodeIndex;

/// Counts, per node, the requests that were sent and are not finished.
#[derive(Debug)]
pub struct LoadTable {
    // Packed, not padded to cache lines: policies scan this array far more often than cores contend
    // for it.
    outstanding: Box<[AtomicU32]>,
    total: AtomicU64,
}

impl LoadTable {
    /// A table for `nodes` nodes, all idle.
    pub fn new(nodes: usize) -> Arc<Self> {
        let outstanding = (0..nodes).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { outstanding, total: AtomicU64::new(0) })
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
        self.outstanding[node.get()].load(Relaxed)
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
        self.outstanding[node.get()].fetch_add(1, Relaxed);
        self.total.fetch_add(1, Relaxed);
        Outstanding { table: self.clone(), node }
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
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.table.outstanding[self.node.get()].fetch_sub(1, Relaxed);
        self.table.total.fetch_sub(1, Relaxed);
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
}
