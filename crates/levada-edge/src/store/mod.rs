//! What a node keeps: responses, found by the hash of their URI.

mod block;
pub mod disk;
mod memory;
mod object;
mod segments;
mod variants;
mod weight;

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use http::HeaderMap;
use levada_cache::Doorkeeper;
use levada_types::{Key, hash64, weigh};
use parking_lot::Mutex;

use crate::settings::CacheSettings;

use self::variants::Varies;
pub(crate) use self::{
    block::Block,
    memory::{Entry, Memory},
    object::{Blocks, Object, StoredHead},
};

/// All that is kept.
pub(crate) struct Store {
    memory: Memory,
    generations: AtomicU64,
    doorkeeper: Option<Mutex<Doorkeeper>>,
}

/// What is known of a URI.
pub(crate) struct Sought {
    /// Under which key its object is, or would be.
    pub(crate) key: Key,
    pub(crate) object: Option<Arc<Object>>,
    /// Other variants are known.
    pub(crate) varies: bool,
}

impl Store {
    pub(crate) fn new(settings: &CacheSettings) -> Self {
        let CacheSettings { memory, block, eviction, second_hit, .. } = *settings;
        let seed = RandomState::new().hash_one(memory);
        let doorkeeper = second_hit.then(|| Doorkeeper::new(memory, seed));
        let memory = memory - doorkeeper.as_ref().map_or(0, Doorkeeper::bytes).min(memory);
        Self {
            memory: Memory::new(memory, block, eviction),
            generations: AtomicU64::new(0),
            doorkeeper: doorkeeper.map(Mutex::new),
        }
    }

    /// The object for a URI and the request's fields.
    pub(crate) fn get(&self, key: Key, identity: &str, request: &HeaderMap) -> Sought {
        match self.memory.get(key) {
            Some(Entry::Object(object)) if object.identity() == identity => {
                Sought { key, object: Some(object), varies: false }
            }
            Some(Entry::Varies(varies)) if *varies.identity == *identity => {
                self.variant(varies.key(key, &varies.vary.key(request)), identity, request)
            }
            _ => Sought { key, object: None, varies: false },
        }
    }

    fn variant(&self, key: Key, identity: &str, request: &HeaderMap) -> Sought {
        let object = match self.memory.get(key) {
            Some(Entry::Object(o)) if o.identity() == identity && o.head.answers(request) => {
                Some(o)
            }
            _ => None,
        };
        Sought { key, object, varies: true }
    }

    /// Keeps an object of the URI whose key is `key`, unless it is too large or has to come again.
    pub(crate) fn put(&self, key: Key, object: Arc<Object>) {
        let mut key = key;
        if !self.admits(key, &object.head.variant) {
            return;
        }
        if !object.head.vary.is_empty() {
            let varies = self.varies(key, &object);
            let variant = varies.key(key, &object.head.variant);
            let _ = self.memory.insert(key, Entry::Varies(varies));
            key = variant;
        }
        let _ = self.memory.insert(key, Entry::Object(object));
    }

    /// Whether an object was put here before, or a part of its URI is known.
    fn admits(&self, key: Key, variant: &[u8]) -> bool {
        let Some(doorkeeper) = &self.doorkeeper else { return true };
        let object = Key(weigh(key, hash64(variant)));
        self.memory.peek(key).is_some() || doorkeeper.lock().knows(object)
    }

    /// What leads to the variants of this object's URI: as it stands, or a new one.
    fn varies(&self, key: Key, object: &Object) -> Arc<Varies> {
        match self.memory.peek(key) {
            Some(Entry::Varies(varies)) if varies.leads_to(object) => varies,
            _ => Arc::new(Varies::of(object, self.generations.fetch_add(1, Relaxed))),
        }
    }

    /// Keeps a block.
    pub(crate) fn put_block(&self, key: Key, block: Arc<Block>) {
        let _ = self.memory.insert(key, Entry::Block(block));
    }

    /// A block of a version of an object, from wherever it is.
    pub(crate) async fn block(
        &self,
        key: Key,
        object: Key,
        version: u64,
        number: u64,
    ) -> Option<Arc<Block>> {
        match self.memory.get(key) {
            Some(Entry::Block(block))
                if (block.object, block.version, block.number) == (object, version, number) =>
            {
                Some(block)
            }
            _ => None,
        }
    }

    /// Whether there is something under a key.
    pub(crate) fn holds(&self, key: Key) -> bool {
        self.memory.peek(key).is_some()
    }

    /// Whether what has left the memory may still be there.
    pub(crate) fn has_disk(&self) -> bool {
        false
    }

    /// Forgets what is stored for a URI. Variants that nothing leads to any more are evicted in time.
    pub(crate) fn remove(&self, key: Key) {
        self.memory.remove(key);
    }

    /// Holds everything against `keep`, a part at a time, and drops what does not pass. What leads to
    /// variants stays, and blocks, which nothing leads to any more.
    pub(crate) fn sweep(&self, keep: impl Fn(&Object) -> bool) {
        let mut place = Some(memory::Place::default());
        while let Some(from) = place {
            place = self.memory.sweep(from, |_, entry| match entry {
                Entry::Object(object) if !keep(object) => memory::Verdict::Remove,
                _ => memory::Verdict::Keep,
            });
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }
}
