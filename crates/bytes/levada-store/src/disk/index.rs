//! The records on the disk, as far as they are known: by key, with the room that each takes, in the
//! order of eviction.
//!
//! The files are the truth and this is a hint; but only the tier's own thread writes and removes
//! files, so that the room accounted here is never less than the room taken.
//!
//! An entry takes 24 bytes here, 6 to 12 in the table, and what `Eviction::overhead` says.
//!
//! A record that leaves a bundle leaves its bytes behind: they count until the whole bundle is removed.

use std::{collections::BTreeMap, fs::Metadata, num::NonZeroU32};

use hashbrown::HashTable;
use levada_cache::{
    disk_room::{FIXED, PAGE, file_room},
    eviction::{self, Eviction, Handle},
};
use levada_types::{Key, weigh};

use super::bundle::{self, Part};

/// The part of bundles that records which have gone may take. The less it is, the more often the others are
/// copied; as long as records go in the order in which they came, whole bundles go by themselves.
const DEAD_PART: u64 = 5;

/// Pages that a file of this length takes.
pub(super) fn pages(length: u64) -> u32 {
    u32::try_from(length.div_ceil(PAGE)).unwrap_or(u32::MAX)
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// In a file of its own, which takes so many pages.
    File { pages: u32 },
    /// In a bundle.
    Bundle(Part),
}

impl Spot {
    /// The room that the record takes.
    pub(super) fn cost(self) -> u64 {
        match self {
            Self::File { pages } => file_room(pages),
            Self::Bundle(part) => u64::from(part.length) + bundle::ENTRY,
        }
    }

    /// Where in its file the record begins, and its length.
    pub(super) fn extent(self, file: &Metadata) -> (u64, u64) {
        match self {
            Self::File { .. } => (0, file.len()),
            Self::Bundle(part) => (part.at.into(), part.length.into()),
        }
    }

    /// The bundle that it is in.
    pub(super) fn bundle(self) -> Option<NonZeroU32> {
        match self {
            Self::File { .. } => None,
            Self::Bundle(part) => Some(part.bundle),
        }
    }
}

/// The room that a record of so many bytes takes in a file of its own.
pub(super) fn file_cost(length: u64) -> u64 {
    Spot::File { pages: pages(length) }.cost()
}

/// A record on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) key: u64,
    pub(super) spot: Spot,
    /// When it was written or last asked for, in seconds of Unix time.
    pub(super) stamp: u32,
}

/// The spot of a slot that is free.
const FREE: Spot = Spot::File { pages: u32::MAX };

/// The bytes of entries and records in a bundle: all, and of the ones that are there.
#[derive(Clone, Copy, Debug, Default)]
struct BundleBytes {
    all: u64,
    live: u64,
}

pub(super) struct Index {
    table: HashTable<u32>,
    slots: Vec<IndexEntry>,
    free: Vec<u32>,
    eviction: Box<dyn Eviction>,
    algorithm: &'static eviction::EvictionEntry,
    limit: u64,
    /// Room that is kept for records that are copied from one bundle to another.
    reserve: u64,
    /// The room of directories and of the snapshot.
    beside: u64,
    bundles: BTreeMap<NonZeroU32, BundleBytes>,
    /// The bytes in all bundles, and the ones among them of records that have gone.
    bundled: u64,
    dead: u64,
    /// During the scan, the records of bundles, by key.
    early: Vec<IndexEntry>,
    /// Chosen at random: keys follow from URLs, so anyone could make them meet in the table.
    seed: u64,
}

impl Index {
    pub(super) fn new(
        limit: u64,
        reserve: u64,
        algorithm: &'static eviction::EvictionEntry,
        seed: u64,
    ) -> Self {
        Self {
            table: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            eviction: (algorithm.build)(limit),
            algorithm,
            limit,
            reserve,
            beside: FIXED,
            bundles: BTreeMap::new(),
            bundled: 0,
            dead: 0,
            early: Vec::new(),
            seed,
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limit, self.reserve, self.algorithm, self.seed);
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The bytes that all of it takes on the disk.
    pub(super) fn bytes(&self) -> u64 {
        let bundles = self.bundles.len() as u64 * bundle::FIXED;
        self.beside + bundles + self.dead + self.eviction.used()
    }

    /// Whether so many bytes find room without anything going.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.bytes().saturating_add(bytes).saturating_add(self.reserve) <= self.limit
    }

    /// The bytes that may be copied from a bundle before it is removed. A directory that has too many already, as
    /// after the limit was lowered, may have more for this moment.
    pub(super) fn room_to_move(&self) -> u64 {
        match self.limit.checked_sub(self.bytes()) {
            Some(room) => room.saturating_sub(bundle::FIXED),
            None => u64::MAX,
        }
    }

    /// Whether they could, if all else went.
    pub(super) fn could_have_room(&self, bytes: u64) -> bool {
        self.beside.saturating_add(self.reserve).saturating_add(bytes) <= self.limit
    }

    /// Accounts for what is not a record: directories, the snapshot.
    pub(super) fn beside(&mut self, more: u64, less: u64) {
        self.beside = (self.beside + more).saturating_sub(less);
    }

    /// Accounts for bytes that a bundle has got; a record among them is inserted next.
    pub(super) fn grow(&mut self, bundle: NonZeroU32, bytes: u64) {
        self.bundles.entry(bundle).or_default().all += bytes;
        self.bundled += bytes;
        self.dead += bytes;
    }

    /// Forgets a bundle that is gone.
    pub(super) fn remove_bundle(&mut self, bundle: NonZeroU32) {
        let bytes = self.bundles.remove(&bundle).unwrap_or_default();
        self.bundled -= bytes.all;
        self.dead -= bytes.all - bytes.live;
    }

    /// Whether no record of a bundle is left.
    pub(super) fn is_empty(&self, bundle: NonZeroU32) -> bool {
        self.bundles.get(&bundle).is_none_or(|bytes| bytes.live == 0)
    }

    /// The bundles without a record.
    pub(super) fn empty_bundles(&self) -> Vec<NonZeroU32> {
        self.bundles.keys().copied().filter(|bundle| self.is_empty(*bundle)).collect()
    }

    /// The bundle with the most bytes of records that have gone, if too much of all bundles is that.
    pub(super) fn sparse(&self) -> Option<NonZeroU32> {
        // Asked for each record that is evicted: the bundles are not gone through for nothing.
        if self.dead <= self.bundled / DEAD_PART {
            return None;
        }
        let dead = |bytes: &BundleBytes| bytes.all - bytes.live;
        self.bundles.iter().max_by_key(|(_, bytes)| dead(bytes)).map(|(bundle, _)| *bundle)
    }

    /// Makes the records of bundles known before the scan has found all others. They are in the order of
    /// their keys.
    pub(super) fn know(&mut self, early: Vec<IndexEntry>) {
        self.early = early;
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.find(key).is_some()
    }

    /// Where a record is, if there is one.
    pub(super) fn spot(&self, key: Key) -> Option<Spot> {
        let Some(slot) = self.find(key) else {
            let at = self.early.binary_search_by_key(&key.0, |entry| entry.key).ok()?;
            return self.early.get(at).map(|entry| entry.spot);
        };
        Some(self.slots[slot as usize].spot)
    }

    /// Notes that a record is asked for, and says where it is, if there is one.
    pub(super) fn touch(&mut self, key: Key, now: u32) -> Option<Spot> {
        if let Some(slot) = self.find(key) {
            self.slots[slot as usize].stamp = now;
            self.eviction.touch(Handle(slot));
        }
        self.spot(key)
    }

    /// Notes a record that has been written. The caller has made room for it.
    pub(super) fn insert(&mut self, entry: IndexEntry) {
        let key = Key(entry.key);
        match self.find(key) {
            Some(slot) => {
                let before = std::mem::replace(&mut self.slots[slot as usize], entry);
                self.eviction.resize(Handle(slot), entry.spot.cost());
                self.leave(before.spot);
            }
            None => {
                let slot = self.new_slot(entry);
                self.eviction.add(Handle(slot), key, entry.spot.cost());
            }
        }
        self.enter(entry.spot);
    }

    /// Notes that a record has been copied to another bundle. For eviction it is what it was.
    pub(super) fn shift(&mut self, key: Key, spot: Spot) {
        if let Some(slot) = self.find(key) {
            let before = std::mem::replace(&mut self.slots[slot as usize].spot, spot);
            self.leave(before);
            self.enter(spot);
        }
    }

    /// Accounts for a record whose bytes a bundle has already got.
    fn enter(&mut self, spot: Spot) {
        if let Some(bytes) = spot.bundle().and_then(|bundle| self.bundles.get_mut(&bundle)) {
            bytes.live += spot.cost();
            self.dead -= spot.cost();
        }
    }

    /// Accounts for a record that is no longer at a spot, though its bytes are.
    fn leave(&mut self, spot: Spot) {
        if let Some(bytes) = spot.bundle().and_then(|bundle| self.bundles.get_mut(&bundle)) {
            bytes.live -= spot.cost();
            self.dead += spot.cost();
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

    /// Forgets a record that is gone.
    pub(super) fn remove(&mut self, key: Key) {
        if let Some(slot) = self.find(key) {
            self.eviction.remove(Handle(slot));
            self.release(slot);
        }
    }

    /// Forgets the record that goes first. It is still there.
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
        let spot = std::mem::replace(&mut entry.spot, FREE);
        self.free.push(slot);
        self.leave(spot);
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
        entries.extend(slots.iter().filter(|entry| entry.spot != FREE));
        (end < self.slots.len()).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use levada_cache::{
        disk_room::FILE,
        eviction::{EVICTIONS, find_eviction},
    };

    use super::*;

    fn index(limit: u64) -> Index {
        Index::new(limit, 0, find_eviction("lru").unwrap(), 1)
    }

    fn entry(key: u64) -> IndexEntry {
        IndexEntry { key, spot: Spot::File { pages: 1 }, stamp: 0 }
    }

    #[test]
    fn what_was_not_asked_for_the_longest_goes_first() {
        let mut index = index(1 << 20);
        (0..4).for_each(|key| index.insert(entry(key)));
        assert!(index.touch(Key(0), 5).is_some());
        assert!(index.touch(Key(9), 5).is_none());
        index.remove(Key(2));
        let gone: Vec<_> = std::iter::from_fn(|| index.evict()).map(|entry| entry.key).collect();
        assert_eq!(gone, [1, 3, 0]);
        assert_eq!((index.len(), index.bytes()), (0, FIXED));
    }

    #[test]
    fn replacing_a_record_accounts_for_the_new_one_only() {
        let mut index = index(1 << 20);
        index.insert(IndexEntry { spot: Spot::File { pages: 9 }, ..entry(1) });
        index.insert(IndexEntry { spot: Spot::File { pages: 2 }, ..entry(1) });
        assert_eq!((index.len(), index.bytes()), (1, FIXED + 2 * PAGE + FILE));
    }

    #[test]
    fn room_is_for_pages_names_directories_and_snapshot() {
        let mut index = index(FIXED + 2 * (PAGE + FILE));
        let [one, two] = [PAGE, 2 * PAGE].map(file_cost);
        assert!(index.has_room(one));
        index.insert(entry(1));
        assert!(index.has_room(one) && !index.has_room(two));
        index.beside(PAGE, 0);
        assert!(!index.has_room(one) && index.could_have_room(file_cost(0)));
        index.beside(0, PAGE);
        assert!(index.has_room(one));
    }

    #[test]
    fn bytes_of_a_bundle_count_until_it_is_gone() {
        assert_eq!(size_of::<IndexEntry>(), 24);
        let mut index = index(1 << 20);
        let [first, second] = [1, 2].map(|number| NonZeroU32::new(number).unwrap());
        let part = |bundle, slot| Part { bundle, at: 0, length: 968, slot };
        let insert = |index: &mut Index, key, bundle| {
            index.grow(bundle, 1000);
            let spot = Spot::Bundle(part(bundle, key as u16));
            index.insert(IndexEntry { spot, ..entry(key) });
        };
        (0..10).for_each(|key| insert(&mut index, key, first));
        index.remove(Key(0));
        index.evict().unwrap();
        let fixed = FIXED + bundle::FIXED;
        assert_eq!((index.len(), index.bytes()), (8, fixed + 10_000));
        assert_eq!(index.sparse(), None, "most of it is there");
        // Records that are replaced elsewhere leave their bytes, too.
        (2..4).for_each(|key| insert(&mut index, key, second));
        let both = fixed + bundle::FIXED;
        assert_eq!((index.len(), index.bytes()), (8, both + 12_000));
        assert_eq!(index.sparse(), Some(first));
        index.grow(second, 6000);
        for key in 4..10 {
            index.shift(Key(key), Spot::Bundle(part(second, key as u16)));
        }
        assert!(index.is_empty(first) && !index.is_empty(second));
        index.remove_bundle(first);
        assert_eq!((index.len(), index.bytes()), (8, fixed + 8000));
        assert_eq!(index.sparse(), None);
        let gone: Vec<_> = std::iter::from_fn(|| index.evict()).map(|entry| entry.key).collect();
        assert_eq!(gone, [2, 3, 4, 5, 6, 7, 8, 9], "the order is what it was");
        assert_eq!(index.bytes(), fixed + 8000);
        index.remove_bundle(second);
        assert_eq!(index.bytes(), FIXED);
    }

    #[test]
    fn slots_are_used_again_and_listed_once() {
        for algorithm in EVICTIONS {
            let mut index = Index::new(1 << 30, 0, algorithm, 3);
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
