//! S3-FIFO (Yang et al., SOSP 2023): three queues that evict objects with a single request early.
//!
//! ```text
//! new ─► small (10 %) ──hit twice──► main (90 %) ◄─ seen in ghost
//!             │                        │  ▲ hit: reinserted
//!             └─► ghost (keys only)    └──┘ not hit: evicted
//! ```

use super::{
    Eviction, EvictionEntry, Handle, HeldObject,
    queue::{NONE, Nodes, Queue},
};
use levada_types::Key;
use std::collections::{HashMap, VecDeque};

pub(super) const ENTRY: EvictionEntry = EvictionEntry {
    name: "s3fifo",
    paper: "Yang et al., FIFO Queues are All You Need for Cache Eviction, SOSP 2023",
    summary: "Evicts objects with a single request early; the others are reinserted into a queue while they get hits.",
    build: |capacity| Box::new(S3Fifo::new(capacity)),
};

const SMALL: u8 = 1;
const MAIN: u8 = 2;

/// The maximum of the hit counter (two bits in the paper).
const MOST_HITS: u8 = 3;

/// The number of hits that moves an object from small to main ("more than once", Algorithm 1).
const HITS_FOR_MAIN: u8 = 2;

struct S3Fifo {
    capacity: u64,
    /// The share of the small queue: a tenth.
    small_share: u64,
    nodes: Nodes,
    keys: Vec<Key>,
    small: Queue,
    main: Queue,
    ghost: Ghost,
}

impl S3Fifo {
    fn new(capacity: u64) -> Self {
        Self {
            capacity,
            small_share: capacity / 10,
            nodes: Nodes::default(),
            keys: Vec::new(),
            small: Queue::new(SMALL),
            main: Queue::new(MAIN),
            ghost: Ghost::new(capacity - capacity / 10),
        }
    }

    fn take(&mut self, handle: u32) {
        match self.nodes.at(handle).place {
            SMALL => self.small.take(&mut self.nodes, handle),
            _ => self.main.take(&mut self.nodes, handle),
        };
    }

    /// Evicts from small and moves objects with hits to main. Returns `None` when small is empty,
    /// or when main exceeds its share because of the moved objects.
    fn evict_small(&mut self) -> Option<Handle> {
        while self.small.oldest != NONE && self.main.bytes <= self.capacity - self.small_share {
            let oldest = self.small.oldest;
            self.small.take(&mut self.nodes, oldest);
            let node = self.nodes.at(oldest);
            if node.hits < HITS_FOR_MAIN {
                let bytes = node.bytes;
                self.ghost.remember(self.keys[oldest as usize], bytes);
                return Some(Handle(oldest));
            }
            node.hits = 0;
            self.main.push(&mut self.nodes, oldest);
        }
        None
    }

    /// Evicts the first object of main without a hit since its last reinsertion.
    fn evict_main(&mut self) -> Option<Handle> {
        while self.main.oldest != NONE {
            let oldest = self.main.oldest;
            if self.nodes.at(oldest).hits == 0 {
                self.main.take(&mut self.nodes, oldest);
                return Some(Handle(oldest));
            }
            self.nodes.at(oldest).hits -= 1;
            self.main.renew(&mut self.nodes, oldest);
        }
        None
    }
}

impl Eviction for S3Fifo {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
        self.small_share = bytes / 10;
        self.ghost.set_capacity(bytes - self.small_share);
    }

    fn used(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    fn len(&self) -> usize {
        self.small.count + self.main.count
    }

    fn overhead(&self) -> u64 {
        let keys = self.keys.capacity() * size_of::<Key>();
        self.nodes.overhead() + self.ghost.overhead() + keys as u64
    }

    fn find(&self, handle: Handle) -> Option<HeldObject> {
        self.nodes.held(handle)
    }

    fn touch(&mut self, handle: Handle) {
        if let Some(node) = self.nodes.find(handle) {
            node.hits = (node.hits + 1).min(MOST_HITS);
        }
    }

    fn resize(&mut self, handle: Handle, bytes: u64) {
        match self.nodes.find(handle).map(|node| node.place) {
            Some(SMALL) => self.small.resize(&mut self.nodes, handle.0, bytes),
            Some(_) => self.main.resize(&mut self.nodes, handle.0, bytes),
            None => {}
        }
    }

    fn remove(&mut self, handle: Handle) -> bool {
        let there = self.nodes.contains(handle);
        if there {
            self.take(handle.0);
        }
        there
    }

    fn evict(&mut self) -> Option<Handle> {
        let small_first = self.small.bytes > self.small_share || self.main.count == 0;
        let first = if small_first { self.evict_small() } else { None };
        // If main has its share, small is not searched; if main is empty, small still has an
        // object.
        first.or_else(|| self.evict_main()).or_else(|| self.evict_small())
    }

    fn add(&mut self, handle: Handle, key: Key, bytes: u64) {
        self.nodes.make(handle, bytes);
        if self.keys.len() <= handle.index() {
            self.keys.resize(handle.index() + 1, Key(0));
        }
        self.keys[handle.index()] = key;
        let queue = if self.ghost.forget(key) { &mut self.main } else { &mut self.small };
        queue.push(&mut self.nodes, handle.0);
    }
}

/// The keys of objects that small evicted recently, as many as main could hold.
///
/// The map's seed is random, so that clients cannot choose keys that collide. The map is never
/// iterated, so decisions do not depend on the seed.
struct Ghost {
    capacity: u64,
    bytes: u64,
    order: VecDeque<(Key, u64)>,
    /// Size and position in the order. An entry of `order` with another position is void.
    known: HashMap<Key, (u64, u64)>,
    next_place: u64,
}

/// A remembered key takes memory too, about 50 to 120 bytes. With this minimum per key, the keys
/// take at most half of the cache's memory, however small the objects are.
const LEAST_GHOST_BYTES: u64 = 256;

impl Ghost {
    fn new(capacity: u64) -> Self {
        let (order, known) = (VecDeque::new(), HashMap::new());
        Self { capacity, bytes: 0, order, known, next_place: 0 }
    }

    /// The allocated bytes. The map uses one extra byte per slot, and leaves one slot in eight
    /// free.
    fn overhead(&self) -> u64 {
        let places = (self.known.capacity() * 8 / 7).next_power_of_two();
        let known = places * (size_of::<(Key, (u64, u64))>() + 1);
        (known + self.order.capacity() * size_of::<(Key, u64)>()) as u64
    }

    fn remember(&mut self, key: Key, bytes: u64) {
        self.forget(key);
        let bytes = bytes.max(LEAST_GHOST_BYTES);
        self.next_place += 1;
        self.known.insert(key, (bytes, self.next_place));
        self.order.push_back((key, self.next_place));
        self.bytes += bytes;
        self.tidy();
    }

    fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
        self.tidy();
    }

    /// Forgets the oldest keys beyond the capacity. Void entries are removed when they reach the front, or
    /// when they are as many as the others.
    fn tidy(&mut self) {
        while self.bytes > self.capacity || self.order.len() > 2 * self.known.len() + 16 {
            let Some((oldest, place)) = self.order.pop_front() else { break };
            if self.known.get(&oldest).is_some_and(|(_, current)| *current == place) {
                self.forget(oldest);
            }
        }
    }

    fn forget(&mut self, key: Key) -> bool {
        let known = self.known.remove(&key);
        self.bytes -= known.map_or(0, |(bytes, _)| bytes);
        known.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::steps::play, ENTRY, Ghost};
    use levada_types::Key;

    #[test]
    fn what_is_asked_for_once_goes_before_what_is_asked_for_again() {
        assert_eq!(play(&ENTRY, 3000, "a1000 b1000 c1000 a a d1000 e1000"), ". . . b c");
    }

    #[test]
    fn return_from_the_ghost_goes_to_main() {
        // a comes back and stays longer than the newer d and e, which are only in small.
        assert_eq!(
            play(&ENTRY, 3000, "a1000 b1000 c1000 d1000 a1000 e1000 f1000 g1000"),
            ". . . a b c d e"
        );
    }

    #[test]
    fn main_goes_round_while_it_is_hit() {
        let steps = "a1000 b1000 a a b b c1000 d1000 e1000 a c e f1000";
        assert_eq!(play(&ENTRY, 2000, steps), ". . a c d e");
    }

    #[test]
    fn ghost_stays_within_its_bytes() {
        let mut ghost = Ghost::new(2560);
        for n in 0..1000 {
            ghost.remember(Key(n % 7), 1);
            ghost.remember(Key(n), 100);
            assert!(ghost.bytes <= 2560 && ghost.order.len() <= 2 * ghost.known.len() + 16);
        }
        assert!(ghost.forget(Key(999)) && !ghost.forget(Key(500)));
    }
}
