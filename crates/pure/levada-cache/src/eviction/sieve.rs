//! SIEVE (Zhang et al., NSDI 2024): a queue that is never reordered, and a moving hand.
//!
//! A hit sets a mark and moves nothing. The hand moves from the oldest to the newest object, clears
//! marks and evicts the first object without one. Surviving objects keep their position, which
//! separates new objects from popular old ones.

use super::{
    Eviction, EvictionEntry, Handle, HeldObject,
    queue::{NONE, Nodes, Queue},
};
use levada_types::Key;

pub(super) const ENTRY: EvictionEntry = EvictionEntry {
    name: "sieve",
    paper: "Zhang et al., SIEVE is Simpler than LRU, NSDI 2024",
    summary: "Evicts the first object that a moving hand finds without a hit since it last passed.",
    build: |capacity| {
        let queue = Queue::new(IN_QUEUE);
        Box::new(Sieve { capacity, nodes: Nodes::default(), queue, hand: NONE })
    },
};

const IN_QUEUE: u8 = 1;

struct Sieve {
    capacity: u64,
    nodes: Nodes,
    queue: Queue,
    /// The position at which the next search begins; [`NONE`] is the oldest.
    hand: u32,
}

impl Sieve {
    fn take(&mut self, handle: u32) {
        let newer = self.queue.take(&mut self.nodes, handle);
        if self.hand == handle {
            self.hand = newer;
        }
    }
}

impl Eviction for Sieve {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    fn used(&self) -> u64 {
        self.queue.bytes
    }

    fn len(&self) -> usize {
        self.queue.count
    }

    fn overhead(&self) -> u64 {
        self.nodes.overhead()
    }

    fn find(&self, handle: Handle) -> Option<HeldObject> {
        self.nodes.held(handle)
    }

    fn touch(&mut self, handle: Handle) {
        if let Some(node) = self.nodes.find(handle) {
            node.hits = 1;
        }
    }

    fn resize(&mut self, handle: Handle, bytes: u64) {
        if self.nodes.contains(handle) {
            self.queue.resize(&mut self.nodes, handle.0, bytes);
        }
    }

    fn remove(&mut self, handle: Handle) -> bool {
        let there = self.nodes.contains(handle);
        if there {
            self.take(handle.0);
        }
        there
    }

    /// Ends after at most one round, because the hand clears the marks that it passes.
    fn evict(&mut self) -> Option<Handle> {
        if self.queue.count == 0 {
            return None;
        }
        loop {
            if self.hand == NONE {
                self.hand = self.queue.oldest;
            }
            let at = self.hand;
            if self.nodes.at(at).hits == 0 {
                self.take(at);
                return Some(Handle(at));
            }
            self.nodes.at(at).hits = 0;
            self.hand = Queue::newer(&mut self.nodes, at);
        }
    }

    fn add(&mut self, handle: Handle, _: Key, bytes: u64) {
        self.nodes.make(handle, bytes);
        self.queue.push(&mut self.nodes, handle.0);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::steps::play, ENTRY};

    #[test]
    fn hand_spares_what_was_hit_and_goes_on_from_there() {
        // a and b survive and lose their marks; c is evicted; the hand is at d.
        assert_eq!(play(&ENTRY, 4, "a1 b1 c1 d1 a b e1 f1 g1 h1"), ". . . . c d e f");
    }

    #[test]
    fn hand_begins_again_at_the_oldest() {
        assert_eq!(play(&ENTRY, 2, "a1 b1 a b c1 d1"), ". . a b");
        assert_eq!(play(&ENTRY, 3, "a1 b1 c1 b d1 -c e1 f1"), ". . . a . d");
    }
}
