//! The memory tier: entries by key, bounded in bytes with everything that is kept of them.
//!
//! ```text
//!   key ── hash ──┬── which shard ── lock ──> table: key -> entry, handle
//!   (seeded)      └── where in its table      eviction: by handle, what goes first
//!                                             keys: by handle, to find what went
//! ```
//!
//! A shard counts the weights of its entries and what its table, its eviction and its lists have
//! allocated. Together they never exceed its part of the limit: after every insertion, entries go
//! until that is so. Evicted entries are dropped after the lock has been released.

use std::{
    hash::{BuildHasher, RandomState},
    num::NonZero,
    sync::Arc,
};

use hashbrown::HashTable;
use levada_cache::eviction::{self, Choice, Eviction, Handle, TooLarge};
use levada_types::Key;
use parking_lot::Mutex;

use crate::{block::Block, object::Object, variants::Varies};

/// The entry under a key.
#[derive(Clone, Debug)]
pub(crate) enum StoredEntry {
    /// A response.
    Object(Arc<Object>),
    /// The fields by which a URI varies.
    Varies(Arc<Varies>),
    /// A part of a long body.
    Block(Arc<Block>),
}

impl StoredEntry {
    /// Its size in memory.
    pub(crate) fn weight(&self) -> u64 {
        match self {
            Self::Object(object) => object.weight(),
            Self::Varies(varies) => varies.weight(),
            Self::Block(block) => block.weight(),
        }
    }
}

/// The decision of a sweep about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SweepAction {
    Keep,
    Remove,
}

/// Where a sweep goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepCursor {
    shard: usize,
    handle: usize,
}

/// All entries in memory.
pub(crate) struct Memory {
    shards: Box<[Aligned]>,
    hash: Hash,
}

/// On lines of its own, so that two locks that are taken at once do not slow each other.
#[repr(align(128))]
struct Aligned(Mutex<MemoryShard>);

/// A shard has room for so many of the largest entries: what is left over at its end is little then,
/// and one of them does not drive out all others.
const LARGEST_PER_SHARD: u64 = 16;

/// Entries that a sweep looks at under one lock.
const SWEEP_STEP: usize = 1024;

impl Memory {
    /// A tier of this many bytes for entries of up to `largest`.
    pub(crate) fn new(bytes: u64, largest: u64, eviction: &eviction::EvictionEntry) -> Self {
        let parts = bytes / largest.saturating_mul(LARGEST_PER_SHARD).max(1);
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let parts = usize::try_from(parts).unwrap_or(usize::MAX).clamp(1, threads * 4);
        let parts = if parts.is_power_of_two() { parts } else { parts.next_power_of_two() / 2 };
        let hash = Hash::seeded();
        let shard = |_| Aligned(Mutex::new(MemoryShard::new(bytes / parts as u64, eviction, hash)));
        Self { shards: (0..parts).map(shard).collect(), hash }
    }

    /// An entry, as a request that uses it.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<StoredEntry> {
        let hash = self.hash.of(key);
        self.shard(hash).lock().get(hash, key)
    }

    /// An entry, without counting as a request.
    pub(crate) fn peek(&self, key: Key) -> Option<StoredEntry> {
        let hash = self.hash.of(key);
        self.shard(hash).lock().find(hash, key).map(|slot| slot.entry.clone())
    }

    /// Keeps an entry in place of whatever stood under its key. An eviction for which new objects compete may
    /// prefer to keep the others.
    ///
    /// # Errors
    /// When it is too large for its shard. Nothing stands under the key then.
    pub(crate) fn insert(&self, key: Key, entry: StoredEntry) -> Result<(), TooLarge> {
        let hash = self.hash.of(key);
        let mut gone = Vec::new();
        self.shard(hash).lock().insert(hash, key, entry, &mut gone)
    }

    /// Keeps an entry unless another stands under its key; returns which one it is.
    pub(crate) fn insert_if_absent(&self, key: Key, entry: StoredEntry) -> StoredEntry {
        let hash = self.hash.of(key);
        let mut gone = Vec::new();
        let mut shard = self.shard(hash).lock();
        if let Some(there) = shard.get(hash, key) {
            return there;
        }
        let _ = shard.insert(hash, key, entry.clone(), &mut gone);
        entry
    }

    /// Keeps an entry if none stands under its key and nothing has to go for it.
    pub(crate) fn adopt(&self, key: Key, entry: StoredEntry) -> bool {
        let hash = self.hash.of(key);
        let mut gone = Vec::new();
        let mut shard = self.shard(hash).lock();
        shard.find(hash, key).is_none()
            && shard.bytes() + entry.weight() <= shard.limit
            && shard.insert(hash, key, entry, &mut gone).is_ok()
    }

    /// Keeps nothing new from now on. Returns the keys of what is there, those that would be evicted first at
    /// the end, shards in turn. Entries can be found until they are removed.
    pub(crate) fn end(&self) -> Vec<Key> {
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.0.lock().end()).collect();
        let mut keys = Vec::with_capacity(shards.iter().map(Vec::len).sum());
        while keys.len() < keys.capacity() {
            keys.extend(shards.iter_mut().filter_map(Vec::pop));
        }
        keys
    }

    /// Takes an entry out.
    pub(crate) fn remove(&self, key: Key) -> Option<StoredEntry> {
        let hash = self.hash.of(key);
        self.shard(hash).lock().remove(hash, key)
    }

    /// Judges the next entries from `place` on, about a thousand, and gives the place after them;
    /// `None` at the end. From the default place to the end, everything is seen that is there all the
    /// while. `judge` is called under a lock: it must be quick and leave this tier alone.
    pub(crate) fn sweep(
        &self,
        place: SweepCursor,
        mut judge: impl FnMut(Key, &StoredEntry) -> SweepAction,
    ) -> Option<SweepCursor> {
        let mut gone = Vec::new();
        let SweepCursor { shard, handle } = place;
        let next = self.shards.get(shard)?.0.lock().sweep(handle, &mut judge, &mut gone);
        Some(match next {
            Some(handle) => SweepCursor { shard, handle },
            None => SweepCursor { shard: shard + 1, handle: 0 },
        })
    }

    /// Evicts about so many bytes, the same part of every shard.
    pub(crate) fn shrink(&self, bytes: u64) {
        let share = bytes.div_ceil(self.shards.len() as u64);
        for shard in &self.shards {
            let mut gone = Vec::new();
            shard.0.lock().shrink(share, &mut gone);
        }
    }

    /// Changes the limit, and evicts what is beyond it.
    pub(crate) fn resize(&self, limit: u64) {
        let share = limit / self.shards.len() as u64;
        for shard in &self.shards {
            let mut gone = Vec::new();
            let mut shard = shard.0.lock();
            shard.limit = share;
            shard.eviction.set_capacity(share);
            shard.make_room(0, &mut gone);
        }
    }

    /// Bytes that are taken, bookkeeping included.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().bytes()).sum()
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().table.len()).sum()
    }

    /// The choices of an eviction that makes one: each shard has its own.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        self.shards.iter().filter_map(|shard| shard.0.lock().eviction.choice()).collect()
    }

    /// The table uses the lowest and the highest bits.
    fn shard(&self, hash: u64) -> &Mutex<MemoryShard> {
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)].0
    }
}

struct MemoryShard {
    limit: u64,
    hash: Hash,
    table: HashTable<Slot>,
    eviction: Box<dyn Eviction>,
    /// The key of every handle; of one that is free, the last.
    keys: Vec<Key>,
    free: Vec<Handle>,
}

struct Slot {
    key: Key,
    handle: Handle,
    entry: StoredEntry,
}

impl MemoryShard {
    fn new(limit: u64, eviction: &eviction::EvictionEntry, hash: Hash) -> Self {
        let eviction = (eviction.build)(limit);
        let (keys, free) = (Vec::new(), Vec::new());
        Self { limit, hash, table: HashTable::new(), eviction, keys, free }
    }

    fn find(&self, hash: u64, key: Key) -> Option<&Slot> {
        self.table.find(hash, |slot| slot.key == key)
    }

    fn get(&mut self, hash: u64, key: Key) -> Option<StoredEntry> {
        let slot = self.table.find(hash, |slot| slot.key == key)?;
        self.eviction.touch(slot.handle);
        Some(slot.entry.clone())
    }

    fn insert(
        &mut self,
        hash: u64,
        key: Key,
        entry: StoredEntry,
        gone: &mut Vec<StoredEntry>,
    ) -> Result<(), TooLarge> {
        let weight = entry.weight();
        if weight > self.limit.saturating_sub(self.overhead()) {
            gone.extend(self.remove(hash, key));
            return Err(TooLarge);
        }
        let Some(entry) = self.replace(hash, key, entry, weight, gone) else { return Ok(()) };
        if !self.eviction.competes() {
            self.make_room(weight, gone);
        }
        let handle = self.free.pop().unwrap_or_else(|| {
            self.keys.push(key);
            Handle(self.keys.len() as u32 - 1)
        });
        self.keys[handle.0 as usize] = key;
        let of = self.hash;
        self.table.insert_unique(hash, Slot { key, handle, entry }, |slot| of.of(slot.key));
        self.eviction.add(handle, key, weight);
        // The tables may have grown.
        self.make_room(0, gone);
        Ok(())
    }

    /// Puts an entry in the place of one that is there, which keeps what is known of its hits: a
    /// response that was validated is as popular as before. Gives the entry back when none is there, or
    /// when that had to go to make room.
    fn replace(
        &mut self,
        hash: u64,
        key: Key,
        entry: StoredEntry,
        weight: u64,
        gone: &mut Vec<StoredEntry>,
    ) -> Option<StoredEntry> {
        let Some(there) = self.find(hash, key) else { return Some(entry) };
        self.make_room(weight.saturating_sub(there.entry.weight()), gone);
        let Some(slot) = self.table.find_mut(hash, |slot| slot.key == key) else {
            return Some(entry);
        };
        gone.push(std::mem::replace(&mut slot.entry, entry));
        self.eviction.resize(slot.handle, weight);
        // The eviction's lists may have grown.
        self.make_room(0, gone);
        None
    }

    /// Evicts until there is room for `weight` more bytes.
    fn make_room(&mut self, weight: u64, gone: &mut Vec<StoredEntry>) {
        while self.bytes() + weight > self.limit {
            let Some(victim) = self.eviction.evict() else { break };
            let key = self.keys[victim.0 as usize];
            gone.extend(self.forget(self.hash.of(key), key));
        }
    }

    fn shrink(&mut self, bytes: u64, gone: &mut Vec<StoredEntry>) {
        let target = self.eviction.used().saturating_sub(bytes);
        while self.eviction.used() > target {
            let Some(victim) = self.eviction.evict() else { break };
            let key = self.keys[victim.0 as usize];
            gone.extend(self.forget(self.hash.of(key), key));
        }
    }

    /// The keys in the order of eviction, which forgets them.
    fn end(&mut self) -> Vec<Key> {
        self.limit = 0;
        let mut keys = Vec::with_capacity(self.table.len());
        while let Some(handle) = self.eviction.evict() {
            keys.push(self.keys[handle.0 as usize]);
        }
        keys
    }

    fn remove(&mut self, hash: u64, key: Key) -> Option<StoredEntry> {
        let handle = self.find(hash, key)?.handle;
        self.eviction.remove(handle);
        self.forget(hash, key)
    }

    /// Takes out of the table what the eviction has no longer.
    fn forget(&mut self, hash: u64, key: Key) -> Option<StoredEntry> {
        let there = self.table.find_entry(hash, |slot| slot.key == key).ok()?;
        let (slot, _) = there.remove();
        self.free.push(slot.handle);
        Some(slot.entry)
    }

    fn sweep(
        &mut self,
        from: usize,
        judge: &mut impl FnMut(Key, &StoredEntry) -> SweepAction,
        gone: &mut Vec<StoredEntry>,
    ) -> Option<usize> {
        let end = (from + SWEEP_STEP).min(self.keys.len());
        for handle in from..end {
            if !self.eviction.contains(Handle(handle as u32)) {
                continue;
            }
            let key = self.keys[handle];
            let hash = self.hash.of(key);
            if self
                .find(hash, key)
                .is_some_and(|slot| judge(key, &slot.entry) == SweepAction::Remove)
            {
                gone.extend(self.remove(hash, key));
            }
        }
        (end < self.keys.len()).then_some(end)
    }

    fn bytes(&self) -> u64 {
        self.eviction.used() + self.overhead()
    }

    /// The allocated size of the lists, full or empty.
    fn overhead(&self) -> u64 {
        let keys = self.keys.capacity() * size_of::<Key>();
        let free = self.free.capacity() * size_of::<Handle>();
        (self.table.allocation_size() + keys + free) as u64 + self.eviction.overhead()
    }
}

/// A hash function drawn by chance, for keys that strangers may choose: they are hashes of URLs by a
/// fixed function.
///
/// Multiply-add-shift is strongly universal (Dietzfelbinger, STACS 1996): whatever two keys are, they
/// meet no more often than two that are drawn by chance.
#[derive(Clone, Copy)]
struct Hash {
    factor: u128,
    addend: u128,
}

impl Hash {
    fn seeded() -> Self {
        let chance = RandomState::new();
        let draw = |n: u8| u128::from(chance.hash_one(n));
        Self { factor: draw(0) << 64 | draw(1), addend: draw(2) << 64 | draw(3) }
    }

    #[inline]
    fn of(self, key: Key) -> u64 {
        (self.factor.wrapping_mul(u128::from(key.0)).wrapping_add(self.addend) >> 64) as u64
    }
}

#[cfg(test)]
mod tests;
