//! Least recently used: the object whose last request is the oldest is evicted first.

use super::{
    Eviction, EvictionEntry, Handle, HeldObject,
    queue::{NONE, Nodes, Queue},
};
use levada_types::Key;

pub(super) const ENTRY: EvictionEntry = EvictionEntry {
    name: "lru",
    paper: "Belady, IBM Systems Journal 5(2), 1966",
    summary: "Evicts the object whose last request is the oldest.",
    build: |capacity| {
        Box::new(Lru { capacity, nodes: Nodes::default(), queue: Queue::new(IN_QUEUE) })
    },
};

const IN_QUEUE: u8 = 1;

struct Lru {
    capacity: u64,
    nodes: Nodes,
    queue: Queue,
}

impl Eviction for Lru {
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
        if self.nodes.contains(handle) {
            self.queue.renew(&mut self.nodes, handle.0);
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
            self.queue.take(&mut self.nodes, handle.0);
        }
        there
    }

    fn evict(&mut self) -> Option<Handle> {
        let oldest = self.queue.oldest;
        (oldest != NONE).then(|| {
            self.queue.take(&mut self.nodes, oldest);
            Handle(oldest)
        })
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
    fn longest_unasked_goes_first() {
        assert_eq!(play(&ENTRY, 3, "a1 b1 c1 a d1 e1"), ". . . b c");
        assert_eq!(play(&ENTRY, 10, "a4 b4 c4 a d9"), ". . a bc");
        assert_eq!(play(&ENTRY, 10, "a5 b5 -a c5 d11 e1"), ". . . ! b");
    }
}
