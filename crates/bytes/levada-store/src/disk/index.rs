//! The records on the disk, as far as they are known: by key, with the room that each takes, in the
//! order of eviction.
//!
//! The files are the truth and this is a hint; but only the tier's own thread writes and removes
//! files, so that the room accounted here is never less than the room taken.
//!
//! An entry takes 16 bytes here, 6 to 12 in the table, and what `Eviction::overhead` says.

use hashbrown::HashTable;
use levada_cache::eviction::{self, Eviction, Handle};
use levada_types::{Key, weigh};

/// The unit in which the file system gives out room.
pub(super) const PAGE: u64 = 4096;
/// The room of a file in addition to its pages: an inode and a name in a directory that is half empty.
const FILE: u64 = 512;
/// The directory itself, the lock, and rounding.
const FIXED: u64 = 64 << 10;

/// Pages that a file of this length takes.
pub(super) fn pages(length: u64) -> u32 {
    u32::try_from(length.div_ceil(PAGE)).unwrap_or(u32::MAX)
}

fn cost(pages: u32) -> u64 {
    u64::from(pages) * PAGE + FILE
}

/// A record on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) key: u64,
    pub(super) pages: u32,
    /// When it was written or last asked for, in seconds of Unix time.
    pub(super) stamp: u32,
}

/// The pages of a slot that is free.
const FREE: u32 = u32::MAX;

pub(super) struct Index {
    table: HashTable<u32>,
    slots: Vec<IndexEntry>,
    free: Vec<u32>,
    eviction: Box<dyn Eviction>,
    algorithm: &'static eviction::EvictionEntry,
    limit: u64,
    /// The room of directories and of the snapshot.
    beside: u64,
    /// Chosen at random: keys follow from URLs, so anyone could make them meet in the table.
    seed: u64,
}

impl Index {
    pub(super) fn new(limit: u64, algorithm: &'static eviction::EvictionEntry, seed: u64) -> Self {
        Self {
            table: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            eviction: (algorithm.build)(limit),
            algorithm,
            limit,
            beside: FIXED,
            seed,
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limit, self.algorithm, self.seed);
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The bytes that all of it takes on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.beside + self.eviction.used()
    }

    /// Whether a file of so many pages finds room without anything going.
    pub(super) fn has_room(&self, pages: u32) -> bool {
        self.bytes().saturating_add(cost(pages)) <= self.limit
    }

    /// Whether it could, if all else went.
    pub(super) fn could_have_room(&self, pages: u32) -> bool {
        self.beside.saturating_add(cost(pages)) <= self.limit
    }

    /// Accounts for what is not a record: directories, the snapshot.
    pub(super) fn beside(&mut self, more: u64, less: u64) {
        self.beside = (self.beside + more).saturating_sub(less);
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.find(key).is_some()
    }

    /// The pages that a record takes, if there is one.
    pub(super) fn pages(&self, key: Key) -> Option<u32> {
        self.find(key).map(|slot| self.slots[slot as usize].pages)
    }

    /// Notes that a record is asked for; false when there is none.
    pub(super) fn touch(&mut self, key: Key, now: u32) -> bool {
        let Some(slot) = self.find(key) else { return false };
        self.slots[slot as usize].stamp = now;
        self.eviction.touch(Handle(slot));
        true
    }

    /// Notes a record that has been written. The caller has made room for it.
    pub(super) fn insert(&mut self, entry: IndexEntry) {
        let key = Key(entry.key);
        match self.find(key) {
            Some(slot) => {
                self.slots[slot as usize] = entry;
                self.eviction.resize(Handle(slot), cost(entry.pages));
            }
            None => {
                let slot = self.new_slot(entry);
                self.eviction.add(Handle(slot), key, cost(entry.pages));
            }
        }
    }

    fn new_slot(&mut self, entry: IndexEntry) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = entry;
                slot
            }
            None => {
                self.slots.push(entry);
                (self.slots.len() - 1) as u32
            }
        };
        let (slots, seed) = (&self.slots, self.seed);
        let hash = |&slot: &u32| weigh(Key(slots[slot as usize].key), seed);
        self.table.insert_unique(hash(&slot), slot, hash);
        slot
    }

    /// Makes the table large enough for so many more at once.
    pub(super) fn reserve(&mut self, more: usize) {
        let (slots, seed) = (&self.slots, self.seed);
        self.table.reserve(more, |&slot| weigh(Key(slots[slot as usize].key), seed));
        self.slots.reserve_exact(more);
    }

    /// Forgets a record whose file is gone.
    pub(super) fn remove(&mut self, key: Key) {
        if let Some(slot) = self.find(key) {
            self.eviction.remove(Handle(slot));
            self.release(slot);
        }
    }

    /// Forgets the record that goes first. Its file is still there.
    pub(super) fn evict(&mut self) -> Option<IndexEntry> {
        let Handle(slot) = self.eviction.evict()?;
        let entry = self.slots[slot as usize];
        self.release(slot);
        Some(entry)
    }

    fn release(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if let Ok(found) =
            self.table.find_entry(weigh(Key(entry.key), self.seed), |&other| other == slot)
        {
            found.remove();
        }
        entry.pages = FREE;
        self.free.push(slot);
    }

    fn find(&self, key: Key) -> Option<u32> {
        let same = |&slot: &u32| self.slots[slot as usize].key == key.0;
        self.table.find(weigh(key, self.seed), same).copied()
    }

    /// Appends to `entries` what stands in up to `count` slots from slot `from` on; `None` at the end,
    /// or where to go on. Between two calls records may come and go.
    pub(super) fn list(
        &self,
        from: usize,
        count: usize,
        entries: &mut Vec<IndexEntry>,
    ) -> Option<usize> {
        let end = self.slots.len().min(from.saturating_add(count));
        let slots = self.slots.get(from..end).unwrap_or_default();
        entries.extend(slots.iter().filter(|entry| entry.pages != FREE));
        (end < self.slots.len()).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use levada_cache::eviction::{EVICTIONS, find_eviction};

    use super::*;

    fn index(limit: u64) -> Index {
        Index::new(limit, find_eviction("lru").unwrap(), 1)
    }

    fn entry(key: u64) -> IndexEntry {
        IndexEntry { key, pages: 1, stamp: 0 }
    }

    #[test]
    fn what_was_not_asked_for_the_longest_goes_first() {
        let mut index = index(1 << 20);
        (0..4).for_each(|key| index.insert(entry(key)));
        assert!(index.touch(Key(0), 5));
        assert!(!index.touch(Key(9), 5));
        index.remove(Key(2));
        let gone: Vec<_> = std::iter::from_fn(|| index.evict()).map(|entry| entry.key).collect();
        assert_eq!(gone, [1, 3, 0]);
        assert_eq!((index.len(), index.bytes()), (0, FIXED));
    }

    #[test]
    fn replacing_a_record_accounts_for_the_new_one_only() {
        let mut index = index(1 << 20);
        index.insert(IndexEntry { pages: 9, ..entry(1) });
        index.insert(IndexEntry { pages: 2, ..entry(1) });
        assert_eq!((index.len(), index.bytes()), (1, FIXED + 2 * PAGE + FILE));
    }

    #[test]
    fn room_is_for_pages_names_directories_and_snapshot() {
        let mut index = index(FIXED + 2 * (PAGE + FILE));
        assert!(index.has_room(1));
        index.insert(entry(1));
        assert!(index.has_room(1) && !index.has_room(2));
        index.beside(PAGE, 0);
        assert!(!index.has_room(1) && index.could_have_room(0));
        index.beside(0, PAGE);
        assert!(index.has_room(1));
    }

    #[test]
    fn slots_are_used_again_and_listed_once() {
        for algorithm in EVICTIONS {
            let mut index = Index::new(1 << 30, algorithm, 3);
            for key in 0..1000 {
                index.insert(entry(key));
                if key % 3 == 0 {
                    index.remove(Key(key / 2));
                }
            }
            let (mut entries, mut next) = (Vec::new(), Some(0));
            while let Some(from) = next {
                next = index.list(from, 7, &mut entries);
            }
            assert_eq!(entries.len(), index.len());
            assert!(entries.iter().all(|entry| index.contains(Key(entry.key))));
            assert!(index.slots.len() < 1000);
        }
    }
}
