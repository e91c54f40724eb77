//! The two tiers as one: look-ups, insertions and sweeps go to the memory and to the disk.
//!
//! Everything is written to both tiers at once. An entry that only the disk still has is recalled
//! into the memory by the next request.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use levada_cache::{Doorkeeper, Vary, disk_room::write_queue};
use levada_observe::metrics::Counter;
use levada_types::{Key, hash64, weigh};
use parking_lot::Mutex;

use crate::{
    block::{Block, new_version},
    choice::EvictionStatus,
    codec,
    disk::{self, Disk, DiskError, DiskMetrics, DiskSettings, OriginTime},
    label::Label,
    memory::{self, Memory, StoredEntry},
    object::{Object, StoredBody},
    settings::{CacheSettings, DiskCache},
    variants::Varies,
};

/// All that is kept.
pub struct Store {
    memory: Memory,
    disk: Option<Disk>,
    doorkeeper: Option<Mutex<Doorkeeper>>,
    variants: VariantBound,
}

/// The bound on the variants of a URI.
struct VariantBound {
    most: usize,
    turn: Mutex<()>,
    /// Variants that went for others.
    evicted: Counter,
}

/// Records on disk that are gone through in a second.
const SWEEP_RATE: u32 = 50_000;
/// The time that the disk tier has to write its queue and its index when the store closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The fate of a record on disk.
pub enum LabelVerdict {
    /// It stays as it is.
    Keep,
    /// It stays with its label as it is now.
    Relabel,
    /// It is removed.
    Remove,
}

/// An entry of the memory tier on its way to another process.
pub struct DepartingEntry {
    /// The object, if it is one.
    pub object: Option<Arc<Object>>,
    /// All but its body.
    pub head: Bytes,
    /// Its body.
    pub body: Box<[Bytes]>,
}

/// An entry that has come from another process.
pub struct ArrivingEntry(StoredEntry);

impl ArrivingEntry {
    /// The object, if it is one.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match &self.0 {
            StoredEntry::Object(object) => Some(object),
            _ => None,
        }
    }
}

/// The result of a look-up.
pub struct Sought {
    /// Under which key its object is, or would be.
    pub key: Key,
    /// The stored object, if there is one.
    pub object: Option<Arc<Object>>,
    /// The fields by which the known variants differ, where there are some and none of them is the object.
    pub vary: Option<Vary>,
}

/// Reads the bytes of an entry and writes them again, for fuzzing.
#[doc(hidden)]
pub fn reread(head: &Bytes, body: Box<[Bytes]>) -> Option<(Bytes, Box<[Bytes]>)> {
    let entry = codec::entry(head, StoredBody::of(body.into()))?;
    Some((codec::head(&entry), codec::body(&entry)))
}

impl Store {
    /// Opens the tiers.
    ///
    /// # Errors
    /// When the disk tier could never be used.
    pub fn open(settings: &CacheSettings, metrics: &DiskMetrics) -> Result<Self, DiskError> {
        Self::open_within(settings, metrics, Duration::ZERO)
    }

    /// Opens the tiers. Waits so long for another node that is about to give the directory back.
    ///
    /// # Errors
    /// When the disk tier could never be used.
    pub fn open_within(
        settings: &CacheSettings,
        metrics: &DiskMetrics,
        timeout: Duration,
    ) -> Result<Self, DiskError> {
        let CacheSettings { memory, block, eviction, second_hit, .. } = *settings;
        let seed = RandomState::new().hash_one(memory);
        let doorkeeper = second_hit.then(|| Doorkeeper::new(memory, seed));
        let memory = memory - doorkeeper.as_ref().map_or(0, Doorkeeper::bytes).min(memory);
        let open = |disk: &DiskCache| {
            let settings = DiskSettings {
                dir: disk.path.clone(),
                bytes: disk.size,
                eviction,
                lock_timeout: timeout,
                queue_bytes: write_queue(memory),
            };
            Disk::open(settings, metrics.clone())
        };
        Ok(Self {
            memory: Memory::new(memory, block, eviction),
            disk: settings.disk.as_ref().map(open).transpose()?,
            doorkeeper: doorkeeper.map(Mutex::new),
            variants: VariantBound {
                most: settings.variants,
                turn: Mutex::default(),
                evicted: Counter::default(),
            },
        })
    }

    /// Counts the variants that go for others.
    pub fn counting(mut self, evicted: Counter) -> Self {
        self.variants.evicted = evicted;
        self
    }

    /// The object for a URI and the request's fields.
    pub fn get(&self, key: Key, identity: &str, request: &HeaderMap) -> Sought {
        match self.memory.get(key) {
            Some(StoredEntry::Object(object)) if object.is_of(identity) => {
                Sought { key, object: Some(object), vary: None }
            }
            Some(StoredEntry::Varies(varies)) => self.variant(key, identity, &varies, request),
            _ => Sought { key, object: None, vary: None },
        }
    }

    fn variant(&self, key: Key, identity: &str, varies: &Varies, request: &HeaderMap) -> Sought {
        let variant = varies.vary.key(request);
        let key = varies.key(key, &variant);
        let object = match self.memory.get(key) {
            Some(StoredEntry::Object(o)) if o.is_of(identity) && *o.variant() == *variant => {
                varies.used(key);
                Some(o)
            }
            _ => None,
        };
        // A hit knows them by itself.
        let vary = object.is_none().then(|| varies.vary.clone());
        Sought { key, object, vary }
    }

    /// Whether the disk may have what the memory does not.
    pub fn may_recall(&self, key: Key) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.holds(key))
    }

    /// The object for a URI and the request's fields, from the disk where the memory does not have it and an
    /// origin with this time is not faster.
    pub async fn recall(
        &self,
        key: Key,
        identity: &str,
        request: &HeaderMap,
        origin: OriginTime<'_>,
    ) -> Sought {
        let found = self.entry(key, origin).await;
        let (key, found, vary) = match found {
            Some(StoredEntry::Varies(varies)) => {
                let variant = varies.key(key, &varies.vary.key(request));
                (variant, self.entry(variant, origin).await, Some(varies.vary.clone()))
            }
            found => (key, found, None),
        };
        let object = match found {
            Some(StoredEntry::Object(o)) if o.is_of(identity) && o.answers(request) => Some(o),
            _ => None,
        };
        Sought { key, object, vary }
    }

    /// The object for a URI and the request's fields with its body in a file, for a client that can
    /// be sent it from there; `None` when it has to be looked for elsewhere. Bytes that the system
    /// has in its memory are not copied into this process.
    pub fn in_file(&self, key: Key, identity: &str, request: &HeaderMap) -> Option<Sought> {
        let key = match self.memory.peek(key) {
            None => key,
            Some(StoredEntry::Varies(varies)) => varies.key(key, &varies.vary.key(request)),
            Some(_) => return None,
        };
        match self.entry_in_file(key)? {
            StoredEntry::Object(o) if o.is_of(identity) && o.answers(request) => {
                Some(Sought { key, object: Some(o), vary: None })
            }
            _ => None,
        }
    }

    /// An entry whose body is in a file, unless the memory has it.
    fn entry_in_file(&self, key: Key) -> Option<StoredEntry> {
        let disk = self.disk.as_ref().filter(|_| self.memory.peek(key).is_none())?;
        let found = disk.in_file(key)?;
        codec::entry(&found.head, StoredBody::File(Arc::new(found.body)))
    }

    /// An entry from wherever it is; it is in the memory then, if it fits.
    async fn entry(&self, key: Key, origin: OriginTime<'_>) -> Option<StoredEntry> {
        if let Some(entry) = self.memory.get(key) {
            return Some(entry);
        }
        let disk = self.disk.as_ref().filter(|disk| disk.holds(key))?;
        let record = disk.get_before(key, origin).await?;
        let Some(entry) = codec::entry(&record.head, StoredBody::of(record.body.into())) else {
            tracing::warn!(
                key = key.0,
                "a record on disk is none of this version's; it is removed"
            );
            disk.remove(key);
            return None;
        };
        // An entry that was stored while the disk was read is newer.
        let entry = self.memory.insert_if_absent(key, entry);
        if !disk.holds(key) {
            // It was removed while it was read.
            self.memory.remove(key);
            return None;
        }
        Some(entry)
    }

    fn insert(&self, key: Key, entry: StoredEntry) {
        if let Some(disk) = &self.disk {
            disk.put(key, codec::head(&entry), codec::body(&entry));
        }
        let _ = self.memory.insert(key, entry);
    }

    /// Whether an object is to be kept: always, or when it is fetched for the second time. To be asked
    /// once a fetch.
    pub fn admits(&self, key: Key, variant: &[u8]) -> bool {
        let Some(doorkeeper) = &self.doorkeeper else { return true };
        let object = Key(weigh(key, hash64(variant)));
        self.holds(key) || doorkeeper.lock().knows(object)
    }

    /// Keeps an object of the URI whose key is `key`, unless it is too large.
    pub fn put(&self, key: Key, object: Arc<Object>) {
        let key = match object.variant() {
            [] => key,
            _ => self.place_of_variant(key, &object),
        };
        self.insert(key, StoredEntry::Object(object));
    }

    /// The key of a variant, to which its URI's entry leads from now on. The least used of too many variants goes.
    fn place_of_variant(&self, uri: Key, object: &Object) -> Key {
        // One at a time: two that are stored at once must both be known.
        let _turn = self.variants.turn.lock();
        let known = match self.memory.peek(uri) {
            Some(StoredEntry::Varies(varies)) if varies.leads_to(object) => Some(varies),
            _ => None,
        };
        let varies = known.unwrap_or_else(|| {
            let varies = Arc::new(Varies::of(object, new_version()));
            self.insert(uri, StoredEntry::Varies(varies.clone()));
            varies
        });
        let key = varies.key(uri, object.variant());
        if let Some((varies, gone)) = varies.and(key, self.variants.most) {
            // On disk, the entry has no list.
            let _ = self.memory.insert(uri, StoredEntry::Varies(Arc::new(varies)));
            if let Some(gone) = gone {
                self.remove(gone);
                self.variants.evicted.inc();
            }
        }
        key
    }

    /// Keeps a block.
    pub fn put_block(&self, key: Key, block: Arc<Block>) {
        self.insert(key, StoredEntry::Block(block));
    }

    /// A block of a version of an object, from wherever it is, unless an origin with this time is faster.
    pub async fn block(
        &self,
        key: Key,
        object: Key,
        (version, number): (u64, u64),
        origin: OriginTime<'_>,
    ) -> Option<Arc<Block>> {
        match self.entry(key, origin).await? {
            StoredEntry::Block(block)
                if (block.object, block.version, block.number) == (object, version, number) =>
            {
                Some(block)
            }
            _ => None,
        }
    }

    /// A block of a version of an object in a file, for a client that can be sent it from there.
    pub fn block_in_file(
        &self,
        key: Key,
        object: Key,
        version: u64,
        number: u64,
    ) -> Option<Arc<Block>> {
        match self.entry_in_file(key)? {
            StoredEntry::Block(block)
                if (block.object, block.version, block.number) == (object, version, number) =>
            {
                Some(block)
            }
            _ => None,
        }
    }

    /// Whether there is something under a key, in either tier.
    pub fn holds(&self, key: Key) -> bool {
        self.memory.peek(key).is_some() || self.may_recall(key)
    }

    /// Whether the disk takes an entry of about so many bytes now, and has room for a body of `all` bytes: the
    /// entry is found again when it has left the memory.
    pub fn disk_takes(&self, bytes: u64, all: u64) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.takes(bytes, all))
    }

    /// Whether what has left the memory may still be there.
    pub fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Forgets what is stored for a URI. Variants that nothing leads to any more are evicted in time.
    pub fn remove(&self, key: Key) {
        // In this order: what is being recalled looks at the disk once more when it is in the memory.
        if let Some(disk) = &self.disk {
            disk.remove(key);
        }
        self.memory.remove(key);
    }

    /// Lets other nodes know that this one is about to end.
    pub fn is_to_end(&self) {
        self.disk.iter().for_each(Disk::is_to_end);
    }

    /// Takes the disk tier again after [`close`](Self::close).
    ///
    /// # Errors
    /// When another node has it.
    pub fn reopen(&self) -> Result<(), DiskError> {
        self.disk.as_ref().map_or(Ok(()), Disk::reopen)
    }

    /// Keeps nothing new in memory from now on. Returns the keys of what is there, for
    /// [`departing`](Self::departing), those that matter most first.
    pub fn end_memory(&self) -> Vec<Key> {
        self.memory.end()
    }

    /// An entry of the memory tier for another process. It is freed, except for blocks with `keep_blocks`:
    /// readers of long bodies may still want them.
    pub fn departing(&self, key: Key, keep_blocks: bool) -> Option<DepartingEntry> {
        let entry = match self.memory.peek(key)? {
            block @ StoredEntry::Block(_) if keep_blocks => block,
            _ => self.memory.remove(key)?,
        };
        let object = match &entry {
            StoredEntry::Object(object) => Some(object.clone()),
            _ => None,
        };
        Some(DepartingEntry { object, head: codec::head(&entry), body: codec::body(&entry) })
    }

    /// The entry that was written so, to be kept in memory; `None` when it is none.
    pub fn arriving(head: &Bytes, body: Vec<Bytes>) -> Option<ArrivingEntry> {
        codec::entry(head, StoredBody::of(body)).map(ArrivingEntry)
    }

    /// Keeps an entry of another process in memory, unless something newer is there or something would have
    /// to go for it.
    pub fn adopt(&self, key: Key, entry: &ArrivingEntry) -> bool {
        self.memory.adopt(key, entry.0.clone())
    }

    /// Writes what waits to be written, and the index, as far as there is time.
    pub fn close(&self) {
        if let Some(disk) = &self.disk {
            disk.close(CLOSE_TIMEOUT);
        }
    }

    /// Holds everything against `keep`, a part at a time, and drops what does not pass. Entries
    /// that lead to variants stay, and blocks, which nothing leads to any more.
    pub fn sweep(&self, keep: impl Fn(&Object) -> bool) {
        let mut place = Some(memory::SweepCursor::default());
        while let Some(from) = place {
            place = self.memory.sweep(from, |_, entry| match entry {
                StoredEntry::Object(object) if !keep(object) => memory::SweepAction::Remove,
                _ => memory::SweepAction::Keep,
            });
        }
    }

    /// Holds what is on disk against `keep`, in the background; returns when all that follows is done.
    pub async fn sweep_disk(&self, keep: impl Fn(&str, &Label) -> LabelVerdict) {
        let Some(disk) = &self.disk else { return };
        let swept = disk
            .sweep(SWEEP_RATE, |_, head| {
                let Some((identity, label)) = codec::label(head) else {
                    return disk::RecordAction::Keep;
                };
                match keep(identity, &label) {
                    LabelVerdict::Keep => disk::RecordAction::Keep,
                    LabelVerdict::Relabel => codec::relabelled(head, &label)
                        .map_or(disk::RecordAction::Remove, disk::RecordAction::Rewrite),
                    LabelVerdict::Remove => disk::RecordAction::Remove,
                }
            })
            .await;
        disk.flushed().await;
        tracing::debug!(?swept, "the disk was gone through");
    }

    /// How much is being sent from files.
    pub fn sending(&self) -> usize {
        self.disk.as_ref().map_or(0, Disk::sending)
    }

    /// Evicts about so many bytes from the memory tier; the disk keeps what it has.
    pub fn shrink(&self, bytes: u64) {
        self.memory.shrink(bytes);
    }

    /// Changes the size of the memory tier, and evicts what is beyond it.
    pub fn resize(&self, memory: u64) {
        self.memory.resize(memory);
    }

    /// Bytes that the memory tier takes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// The choice of an eviction that makes one.
    pub fn eviction(&self) -> Option<EvictionStatus> {
        EvictionStatus::of(&self.memory.choices())
    }

    /// Entries in the memory tier.
    pub fn entries(&self) -> usize {
        self.memory.len()
    }
}

#[cfg(test)]
mod tests {
    use levada_observe::metrics::Registry;

    use super::*;
    use crate::block::block_key;

    #[tokio::test]
    async fn block_is_found_as_part_of_the_version_that_it_was_put_for() {
        let metrics = DiskMetrics::registered(&mut Registry::default());
        let store = Store::open(&CacheSettings::default(), &metrics).unwrap();
        let body: Bytes = (0..100_000).map(|at| (at % 251) as u8).collect();
        let key = block_key(Key(1), 2, 3);
        let block = Block::new(Key(1), 2, 3, std::iter::once(&body), 100_000);
        store.put_block(key, Arc::new(block));
        let block = store.block(key, Key(1), (2, 3), &|| Duration::MAX).await.unwrap();
        for at in [0, 1, 65_535, 65_536, 99_999] {
            assert_eq!(block.at(at as u64).unwrap()[0], body[at], "{at}");
        }
        assert_eq!(block.at(100_000), None);
        for (object, part) in [(Key(2), (2, 3)), (Key(1), (3, 3)), (Key(1), (2, 4))] {
            assert!(store.block(key, object, part, &|| Duration::MAX).await.is_none());
        }
    }
}
