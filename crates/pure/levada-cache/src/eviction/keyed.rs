//! An eviction algorithm with an index by key: a cache that stores no contents.

use super::{Eviction, Handle};
use levada_types::{Key, weigh};
use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher, Hasher},
};

/// The cache of a simulated server, and of measurements of hit ratios.
///
/// Its index has a fixed hash function: use it for keys of a trace, not for keys that clients
/// choose.
pub struct Keyed {
    eviction: Box<dyn Eviction>,
    index: HashMap<Key, Handle, Mixed>,
    keys: Vec<Key>,
    free: Vec<Handle>,
    victims: Vec<Handle>,
}

impl Keyed {
    /// An empty cache that evicts by `eviction`.
    pub fn new(eviction: Box<dyn Eviction>) -> Self {
        let (keys, free, victims) = (Vec::new(), Vec::new(), Vec::new());
        Self { eviction, index: HashMap::default(), keys, free, victims }
    }

    /// The algorithm, for its statistics.
    pub fn eviction(&self) -> &dyn Eviction {
        &*self.eviction
    }

    /// Whether an object is cached. Does not count as a request.
    pub fn contains(&self, key: Key) -> bool {
        self.index.contains_key(&key)
    }

    /// Requests an object and inserts it on a miss; returns true on a hit. An object that is larger
    /// than the cache is never cached.
    pub fn request(&mut self, key: Key, bytes: u64) -> bool {
        let next = Handle(self.keys.len() as u32);
        let handle = match self.index.entry(key) {
            Entry::Occupied(there) => {
                self.eviction.touch(*there.get());
                return true;
            }
            Entry::Vacant(_) if bytes > self.eviction.capacity() => return false,
            Entry::Vacant(place) => *place.insert(self.free.pop().unwrap_or(next)),
        };
        if handle == next {
            self.keys.push(key);
        } else {
            self.keys[handle.index()] = key;
        }
        // The object fits the capacity, so the insertion succeeds.
        let _ = self.eviction.insert(handle, key, bytes, &mut self.victims);
        for victim in self.victims.drain(..) {
            self.index.remove(&self.keys[victim.index()]);
            self.free.push(victim);
        }
        false
    }

    /// Removes an object; returns false if it is not cached.
    pub fn remove(&mut self, key: Key) -> bool {
        let Some(handle) = self.index.remove(&key) else {
            return false;
        };
        self.free.push(handle);
        self.eviction.remove(handle)
    }
}

/// Keys are hashes. One round of mixing protects against keys of a trace that are not.
#[derive(Clone, Copy, Debug, Default)]
struct Mixed;

impl BuildHasher for Mixed {
    type Hasher = MixedHasher;

    fn build_hasher(&self) -> MixedHasher {
        MixedHasher(0)
    }
}

struct MixedHasher(u64);

impl Hasher for MixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = weigh(Key(number), self.0);
    }

    fn write(&mut self, bytes: &[u8]) {
        // A key is one number, so this is never called.
        self.0 = weigh(Key(levada_types::hash64(bytes)), self.0);
    }
}
