//! Queues whose links are in one array, indexed by handle. LRU, S3-FIFO and SIEVE use them.

use super::{Handle, HeldObject};

/// The handle that means no node.
pub(super) const NONE: u32 = u32::MAX;

/// One object: its neighbours, its size and its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueNode {
    pub(super) bytes: u64,
    newer: u32,
    older: u32,
    /// The queue that holds it; [`ABSENT`] for none.
    pub(super) place: u8,
    /// The hits that the algorithm has counted.
    pub(super) hits: u8,
}

/// The queue number of an object that is in no queue.
pub(super) const ABSENT: u8 = 0;

/// All objects by handle.
#[derive(Debug, Default)]
pub(super) struct Nodes(Vec<QueueNode>);

impl Nodes {
    /// The node of an object in the set.
    pub(super) fn find(&mut self, handle: Handle) -> Option<&mut QueueNode> {
        self.0.get_mut(handle.index()).filter(|node| node.place != ABSENT)
    }

    /// An object in the set, for its owner.
    pub(super) fn held(&self, handle: Handle) -> Option<HeldObject> {
        let node = self.0.get(handle.index()).filter(|node| node.place != ABSENT)?;
        Some(HeldObject { bytes: node.bytes, hits: node.hits.into() })
    }

    /// The allocated bytes.
    pub(super) fn overhead(&self) -> u64 {
        (self.0.capacity() * size_of::<QueueNode>()) as u64
    }

    pub(super) fn contains(&self, handle: Handle) -> bool {
        self.0.get(handle.index()).is_some_and(|node| node.place != ABSENT)
    }

    /// The node of a handle that came from a queue.
    pub(super) fn at(&mut self, handle: u32) -> &mut QueueNode {
        &mut self.0[handle as usize]
    }

    /// Creates a node for a new object, in no queue yet.
    pub(super) fn make(&mut self, handle: Handle, bytes: u64) {
        let empty = QueueNode { bytes: 0, newer: NONE, older: NONE, place: ABSENT, hits: 0 };
        if self.0.len() <= handle.index() {
            self.0.resize(handle.index() + 1, empty);
        }
        self.0[handle.index()] = QueueNode { bytes, ..empty };
    }
}

/// One queue, from the newest to the oldest.
#[derive(Debug)]
pub(super) struct Queue {
    place: u8,
    newest: u32,
    pub(super) oldest: u32,
    /// The bytes of its objects.
    pub(super) bytes: u64,
    /// The number of its objects.
    pub(super) count: usize,
}

impl Queue {
    /// An empty queue; `place` marks its nodes and is not [`ABSENT`].
    pub(super) fn new(place: u8) -> Self {
        Self { place, newest: NONE, oldest: NONE, bytes: 0, count: 0 }
    }

    /// Adds a node that is in no queue at the newest end.
    pub(super) fn push(&mut self, nodes: &mut Nodes, handle: u32) {
        let node = nodes.at(handle);
        (node.newer, node.older, node.place) = (NONE, self.newest, self.place);
        self.bytes += node.bytes;
        self.count += 1;
        match self.newest {
            NONE => self.oldest = handle,
            newest => nodes.at(newest).newer = handle,
        }
        self.newest = handle;
    }

    /// Removes a node of this queue and returns the next newer one.
    pub(super) fn take(&mut self, nodes: &mut Nodes, handle: u32) -> u32 {
        let node = nodes.at(handle);
        let (newer, older) = (node.newer, node.older);
        node.place = ABSENT;
        self.bytes -= node.bytes;
        self.count -= 1;
        match newer {
            NONE => self.newest = older,
            newer => nodes.at(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => nodes.at(older).newer = newer,
        }
        newer
    }

    /// Changes the size of a node of this queue.
    pub(super) fn resize(&mut self, nodes: &mut Nodes, handle: u32, bytes: u64) {
        let node = nodes.at(handle);
        self.bytes = self.bytes - node.bytes + bytes;
        node.bytes = bytes;
    }

    /// Moves a node of this queue to the newest end.
    pub(super) fn renew(&mut self, nodes: &mut Nodes, handle: u32) {
        if self.newest != handle {
            self.take(nodes, handle);
            self.push(nodes, handle);
        }
    }

    /// The node newer than `handle`.
    pub(super) fn newer(nodes: &mut Nodes, handle: u32) -> u32 {
        nodes.at(handle).newer
    }
}
