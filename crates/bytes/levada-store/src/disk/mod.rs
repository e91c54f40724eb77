//! The disk tier: records by key, and nothing about HTTP.
//!
//! ```text
//! get ──► queue (what waits to be written) ──► index ──► file ──► checksums
//! put ──► queue ──► the tier's thread: make room, write, rename
//! ```
//!
//! A long record is a file of its own (`record`, `files`), and short ones share a `bundle`. One thread
//! alone changes the directory: it takes it, scans it (`scan`), then does what waits (`queue`, `writer`).
//! Readers read at once what the system has in memory (`at_once`), and else on the runtime's blocking
//! threads. A fault of the disk or of a record is a miss, a count and a log line (`trouble`), never an
//! error of a request. A disk that is slower than the origin (`speed`) is passed by: that is a miss, too,
//! and one read at a time finds out in the background when it is quick again.
//!
//! A record is found by what the disk says: by the name of a file, or by the table of a bundle. The `index`
//! in memory says what is there, how much room it takes and what goes first. A scan begins with the
//! tables, which are read in a moment, and `get` waits for them; until the scan has ended it tries the
//! files. Nothing is written before that: how much room is taken is not known.
//!
//! A look-up finds the record that was put last, or nothing: when a record is dropped instead of
//! being written, the one before it goes, too. A removal counts at once; its bytes go when the
//! thread comes to it, so a crash before that brings the record back.

mod at_once;
mod bundle;
mod files;
mod in_file;
mod index;
mod metrics;
mod queue;
mod record;
mod scan;
mod snapshot;
mod speed;
mod sweep;
#[cfg(test)]
mod tests;
mod trouble;
mod writer;

use std::{
    collections::BTreeSet,
    fs::File,
    hash::{BuildHasher, RandomState},
    io,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use levada_cache::{disk_room::bundle_bytes, eviction};
use levada_types::Key;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Semaphore, watch};

pub use in_file::FileBody;
pub use metrics::DiskMetrics;
pub use record::{FORMAT, Record};
pub use sweep::{RecordAction, Swept};

use files::Files;
use in_file::InFile;
use index::{Index, Spot};
use queue::{Work, WriteQueue};
use record::{Damage, HEADER, MAX_BODY, MAX_HEAD, ReadError, length};
use speed::{QUICK, Speed};
use trouble::{Hush, Kind, Pause};

/// How many records are read at once: what they hold in memory is bounded, and a disk is busy with
/// fewer.
const READS: usize = 64;
/// A disk that has not answered by now is worse than the origin.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval of reads that find out whether a slow disk is quick again.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// The interval of checks whether all is written: short against the write of a queue.
const FLUSH_INTERVAL: Duration = Duration::from_millis(20);
/// The interval of checks whether another node has given the directory back.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);
/// How long the end waits for a thread that is stuck in the disk: the process must end even if the disk never answers.
const STUCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The settings of a disk tier.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// A directory of its own.
    pub dir: PathBuf,
    /// The most bytes that it may take, with all that belongs to it.
    pub bytes: u64,
    /// The order of eviction when it is full.
    pub eviction: &'static eviction::EvictionEntry,
    /// The most bytes that may wait to be written.
    pub queue_bytes: u64,
    /// How long to wait for a node that is about to give the directory back.
    pub lock_timeout: Duration,
}

/// Why there can be no disk tier.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The path leads to something else.
    #[error("the disk cache needs a directory, and {} is none; name another path", .0.display())]
    NotADirectory(PathBuf),
    /// Another process has it.
    #[error("the disk cache {} is in use by another node; give every node its own", .0.display())]
    InUse(PathBuf),
    /// The system gives no thread.
    #[error("the disk cache cannot start its thread: {0}")]
    Thread(io::Error),
}

/// The usual time of the origin, which a look-up does not wait much longer for the disk than.
pub type OriginTime<'a> = &'a (dyn Fn() -> Duration + Send + Sync);

/// Records on a disk.
///
/// Dropped, it ends without writing what waits; [`close`](Self::close) ends it in order.
pub struct Disk {
    shared: Arc<Shared>,
}

struct Shared {
    files: Files,
    /// The longest record in a bundle.
    longest_bundled: u64,
    /// The bytes of records in a bundle.
    bundle_bytes: u64,
    /// An index of nothing.
    no_index: Box<dyn Fn() -> Index + Send + Sync>,
    metrics: DiskMetrics,
    state: Mutex<State>,
    /// Wakes the thread.
    news: Condvar,
    /// Wakes who waits for the thread's end.
    end: Condvar,
    /// The directory is this node's.
    taken: AtomicBool,
    /// The records of bundles are known.
    tables_read: watch::Sender<bool>,
    scanned: watch::Sender<bool>,
    reads: Arc<Semaphore>,
    speed: Speed,
    /// The place of the read that finds out whether a slow disk is quick again.
    probe: Arc<Semaphore>,
    /// Room for files that are being sent.
    sent: Arc<Semaphore>,
    sent_room: usize,
    hushes: Mutex<[Hush; Kind::COUNT]>,
    hush_damaged: Mutex<Hush>,
}

struct State {
    index: Index,
    queue: WriteQueue,
    /// Bundles with marks of records that have gone, which the device may not have yet.
    marked: BTreeSet<NonZeroU32>,
    scanned: bool,
    /// The end of the time in which a look-up waits for the tables of bundles; none when they are read.
    tables_by: Option<Instant>,
    reading: Pause,
    writing: Pause,
    closing: Option<Closing>,
    ended: bool,
}

/// How the thread is to end.
#[derive(Clone, Copy, Debug)]
enum Closing {
    /// Now.
    AtOnce,
    /// When nothing waits, at this time at the latest.
    By(Instant),
}

/// The head that a record must have, and the one that it gets; with none it goes.
type HeadChange = (Bytes, Option<Bytes>);

/// Where a record may be.
enum Place {
    Waiting(Record),
    /// On the disk, perhaps; this change to its head waits.
    Disk {
        spot: Spot,
        change: Option<HeadChange>,
        troubled: bool,
    },
    Nowhere,
    /// It will be known soon, at this time at the latest: what comes later is a miss.
    Soon(Instant),
}

/// Whether a node could have its tier there: no file stands in the place of the directory or of one above it.
///
/// # Errors
/// When one does.
pub fn check_directory(directory: &Path) -> Result<(), DiskError> {
    match directory.ancestors().find_map(|path| path.metadata().ok()) {
        Some(found) if !found.is_dir() => Err(DiskError::NotADirectory(directory.to_owned())),
        _ => Ok(()),
    }
}

impl Disk {
    /// Opens the tier: makes the directory if it is missing and begins to scan it. A directory that
    /// cannot be used now is tried again; until then all are misses.
    ///
    /// # Errors
    /// When it never could be used: the path is not a directory, or another node has it.
    pub fn open(settings: DiskSettings, metrics: DiskMetrics) -> Result<Self, DiskError> {
        Self::bundling(settings, metrics, bundle::LONGEST)
    }

    /// Opens the tier with bundles for records up to this length.
    fn bundling(
        settings: DiskSettings,
        metrics: DiskMetrics,
        longest_bundled: u64,
    ) -> Result<Self, DiskError> {
        let dir = settings.dir;
        let seed = RandomState::new().hash_one(0);
        let sent_room = in_file::room(settings.bytes);
        let (bytes, eviction) = (settings.bytes, settings.eviction);
        let bundle_bytes = bundle_bytes(bytes);
        let reserve = bundle_bytes + bundle::FIXED;
        let no_index = move || Index::new(bytes, reserve, eviction, seed);
        let shared = Arc::new(Shared {
            files: Files::new(dir.clone(), seed),
            longest_bundled,
            bundle_bytes,
            no_index: Box::new(no_index),
            metrics,
            state: Mutex::new(State {
                index: no_index(),
                queue: WriteQueue::new(settings.queue_bytes),
                marked: BTreeSet::new(),
                scanned: false,
                tables_by: Some(Instant::now() + READ_TIMEOUT),
                reading: Pause::default(),
                writing: Pause::default(),
                closing: None,
                ended: false,
            }),
            news: Condvar::new(),
            end: Condvar::new(),
            taken: AtomicBool::new(false),
            tables_read: watch::Sender::new(false),
            scanned: watch::Sender::new(false),
            reads: Arc::new(Semaphore::new(READS)),
            speed: Speed::default(),
            probe: Arc::new(Semaphore::new(1)),
            sent: Arc::new(Semaphore::new(sent_room)),
            sent_room,
            hushes: Mutex::default(),
            hush_damaged: Mutex::default(),
        });
        let lock = match take_in_time(&shared.files, settings.lock_timeout) {
            Ok(lock) => Some(lock),
            Err(error) => match error.kind() {
                io::ErrorKind::ResourceBusy => return Err(DiskError::InUse(dir)),
                io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                    return Err(DiskError::NotADirectory(dir));
                }
                _ => {
                    shared.trouble("the disk cache cannot be used", &dir, &error);
                    shared.state.lock().writing.failed(Instant::now());
                    None
                }
            },
        };
        let disk = Self { shared };
        disk.start(lock)?;
        Ok(disk)
    }

    fn start(&self, lock: Option<File>) -> Result<(), DiskError> {
        self.shared.taken.store(lock.is_some(), Relaxed);
        let theirs = self.shared.clone();
        thread::Builder::new()
            .name("disk".into())
            .spawn(move || writer::run(&theirs, lock))
            .map_err(DiskError::Thread)?;
        Ok(())
    }

    /// Lets other nodes know that this one is about to end: they wait for the directory.
    pub fn is_to_end(&self) {
        self.shared.files.is_to_end();
    }

    /// Takes the directory again after [`close`](Self::close), and scans it: another node may have changed it.
    ///
    /// # Errors
    /// When another node has it.
    pub fn reopen(&self) -> Result<(), DiskError> {
        let lock = self.shared.files.take();
        let lock = lock.map_err(|_| DiskError::InUse(self.shared.files.root().to_owned()))?;
        self.shared.tables_read.send_replace(false);
        let mut state = self.shared.state.lock();
        (state.closing, state.ended, state.scanned) = (None, false, false);
        state.index = (self.shared.no_index)();
        state.tables_by = Some(Instant::now() + READ_TIMEOUT);
        drop(state);
        self.start(Some(lock))
    }

    /// Whether there is a record of `key`; until the scan has ended there may be one of any.
    pub fn holds(&self, key: Key) -> bool {
        let state = self.shared.state.lock();
        match state.queue.get(key) {
            Some(Work::Write { .. }) => true,
            Some(Work::Remove | Work::Change { new: None, .. }) => false,
            Some(Work::Change { .. }) | None => state.may_hold(key),
        }
    }

    /// The record of `key`, undamaged. Must be called on a runtime.
    pub async fn get(&self, key: Key) -> Option<Record> {
        self.get_before(key, &|| Duration::MAX).await
    }

    /// The same, unless an origin with this time is faster than the disk.
    pub(crate) async fn get_before(&self, key: Key, origin: OriginTime<'_>) -> Option<Record> {
        let mut place = self.shared.place(key);
        while let Place::Soon(by) = place {
            let mut read = self.shared.tables_read.subscribe();
            let _ = tokio::time::timeout_at(by.into(), read.wait_for(|read| *read)).await;
            place = self.shared.place(key);
        }
        let (spot, change, troubled) = match place {
            Place::Waiting(record) => {
                self.shared.metrics.hits.inc();
                return Some(record);
            }
            Place::Nowhere | Place::Soon(_) => {
                self.shared.metrics.misses.inc();
                return None;
            }
            Place::Disk { spot, change, troubled } => (spot, change, troubled),
        };
        let shared = &self.shared;
        let slow = shared.speed.is_below(origin);
        // Copying from the system's memory costs less than having another thread do it.
        if !troubled && let Ok(record) = shared.files.read_at_once(key, spot, slow) {
            return shared.found(record, change);
        }
        if !slow {
            let limit = origin().clamp(QUICK, READ_TIMEOUT);
            return shared.clone().read_within(limit, key, spot, change, troubled).await;
        }
        shared.metrics.misses.inc();
        shared.metrics.passed_by.inc();
        if let Ok(place) = shared.probe.clone().try_acquire_owned() {
            let shared = shared.clone();
            tokio::spawn(async move {
                shared.read_within(READ_TIMEOUT, key, spot, change, troubled).await;
                tokio::time::sleep(PROBE_INTERVAL).await;
                drop(place);
            });
        }
        None
    }

    /// The record of `key` with its body left in the file, for readers that can send it from there: if it
    /// is long, was found good of late and is in the system's memory. `None` says nothing of any other
    /// record: [`get`](Self::get) does.
    pub(crate) fn in_file(&self, key: Key) -> Option<InFile> {
        let shared = &self.shared;
        let spot = shared.long(key)?;
        let (head, file, body) = shared.files.find_at_once(key, spot).ok()?;
        let length = body.end - body.start;
        let room = shared.sent.clone().try_acquire_many_owned(in_file::share(length)).ok()?;
        shared.state.lock().index.touch(key, unix_time());
        shared.metrics.hits.inc();
        shared.metrics.sent_files.inc();
        Some(InFile { head, body: FileBody::taking(file, body.start, length, room) })
    }

    /// Keeps a record instead of what `key` had. It is written later, or dropped when the disk does not
    /// keep up; it is never waited for.
    pub fn put(&self, key: Key, head: Bytes, body: impl Into<Box<[Bytes]>>) {
        let work = Work::Write { head, body: body.into() };
        let taken = self.shared.taken.load(Relaxed);
        let mut state = self.shared.state.lock();
        match state.refusal(key, &work, taken) {
            None => state.queue.push(key, work),
            Some(reason) => {
                self.shared.metrics.dropped(reason);
                state.remove(key);
            }
        }
        self.shared.show(&state);
        self.shared.news.notify_one();
    }

    /// Whether a record of about so many bytes would be taken now, and `all` bytes have room together.
    pub fn takes(&self, bytes: u64, all: u64) -> bool {
        let state = self.shared.state.lock();
        state.closing.is_none()
            && self.shared.taken.load(Relaxed)
            && state.writing.until().is_none()
            && state.queue.has_room(bytes)
            && state.index.could_have_room(index::file_cost(all))
    }

    /// Removes the record of `key`, also one that waits to be written.
    pub fn remove(&self, key: Key) {
        self.shared.remove(key);
    }

    /// How many records there are, as far as is known.
    pub fn entries(&self) -> usize {
        self.shared.state.lock().index.len()
    }

    /// The bytes that they take with all that belongs to them, as far as is known.
    pub fn bytes(&self) -> u64 {
        self.shared.state.lock().index.bytes()
    }

    /// How much is being sent from files, in shares of their room.
    pub fn sending(&self) -> usize {
        self.shared.sent_room - self.shared.sent.available_permits()
    }

    /// The bytes that wait to be written.
    pub fn queued(&self) -> u64 {
        self.shared.state.lock().queue.bytes()
    }

    /// Returns when all that is on the disk is known.
    pub async fn scanned(&self) {
        // The sender lives as long as this does.
        let _ = self.shared.scanned.subscribe().wait_for(|scanned| *scanned).await;
    }

    /// Returns when all that has been asked for by now is done, or has been replaced, and the device knows which
    /// records of bundles have gone. Must be called on a runtime.
    pub async fn flushed(&self) {
        let last = self.shared.state.lock().queue.last();
        while self.shared.state.lock().queue.waits_for(last) {
            tokio::time::sleep(FLUSH_INTERVAL).await;
        }
        let mut marked = std::mem::take(&mut self.shared.state.lock().marked);
        while !marked.is_empty() {
            let shared = self.shared.clone();
            let sync = move || {
                marked.retain(|bundle| !shared.synced(*bundle));
                marked
            };
            let Ok(left) = tokio::task::spawn_blocking(sync).await else { return };
            marked = left;
            if !marked.is_empty() {
                tokio::time::sleep(READ_TIMEOUT).await;
            }
        }
    }

    /// Ends the tier: what waits is written as long as there is time, then the index. Blocks until then.
    /// Whatever is put later is dropped.
    pub fn close(&self, within: Duration) {
        self.shared.close(Closing::By(Instant::now() + within), within + STUCK_TIMEOUT);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.close(Closing::AtOnce, STUCK_TIMEOUT);
    }
}

impl State {
    /// Whether the directory has a record of `key`, as far as is known.
    fn may_hold(&self, key: Key) -> bool {
        !self.scanned || self.index.contains(key)
    }

    /// Why this record is not to be written.
    fn refusal(&self, key: Key, work: &Work, taken: bool) -> Option<&'static str> {
        let Work::Write { head, body } = work else { return None };
        let (front, body) = (HEADER + head.len(), length(body));
        if self.closing.is_some() {
            return Some("stopping");
        }
        let cost = index::file_cost((front + body) as u64);
        if head.len() > MAX_HEAD || body > MAX_BODY || !self.index.could_have_room(cost) {
            return Some("too_large");
        }
        if !taken || !self.writing.is_over(Instant::now()) {
            return Some("failing");
        }
        self.queue.is_full_for(key, work).then_some("queue_full")
    }

    fn remove(&mut self, key: Key) {
        if self.may_hold(key) || self.queue.get(key).is_some() {
            self.queue.push(key, Work::Remove);
        }
    }
}

impl Shared {
    /// The file that has the record of `key` as it should be, if that is long enough to be sent from there.
    fn long(&self, key: Key) -> Option<Spot> {
        let state = self.state.lock();
        let is_settled = state.queue.get(key).is_none() && state.reading.until().is_none();
        let long = |pages| pages > index::pages(in_file::SHORTEST);
        let spot = state.index.spot(key).filter(|_| is_settled);
        spot.filter(|spot| matches!(spot, Spot::File { pages } if long(*pages)))
    }

    fn place(&self, key: Key) -> Place {
        let mut state = self.state.lock();
        let change = match state.queue.get(key) {
            Some(Work::Write { head, body }) => {
                return Place::Waiting(Record { head: head.clone(), body: body.clone() });
            }
            Some(Work::Remove) => return Place::Nowhere,
            Some(Work::Change { old, new }) => Some((old.clone(), new.clone())),
            None => None,
        };
        // When the tier has ended, the directory may be another node's, and what the index says of bundles out of
        // date. A file is found by its name.
        let has_ended = state.ended;
        let spot = state.index.touch(key, unix_time());
        let spot = spot.filter(|spot| !has_ended || spot.bundle().is_none());
        if spot.is_none() && state.scanned || !self.taken.load(Relaxed) {
            return Place::Nowhere;
        }
        if let Some(by) = state.tables_by.filter(|by| Instant::now() < *by) {
            return Place::Soon(by);
        }
        let spot = spot.unwrap_or(Spot::File { pages: 0 });
        let troubled = state.reading.until().is_some();
        if troubled && !state.reading.is_over(Instant::now()) {
            return Place::Nowhere;
        }
        Place::Disk { spot, change, troubled }
    }

    /// Reads a record on another thread, and learns how long that takes.
    async fn read_within(
        self: Arc<Self>,
        limit: Duration,
        key: Key,
        spot: Spot,
        change: Option<HeadChange>,
        troubled: bool,
    ) -> Option<Record> {
        let (shared, begun) = (self.clone(), Instant::now());
        let reading = async {
            let place = shared.reads.clone().acquire_owned().await.ok()?;
            let read = move || {
                // Released by the read itself: one that hangs in the disk keeps its place.
                let _place = place;
                shared.read(key, spot, change, troubled)
            };
            tokio::task::spawn_blocking(read).await.ok()?
        };
        let read = tokio::time::timeout(limit, reading).await;
        self.learn(if read.is_ok() { begun.elapsed() } else { 2 * limit });
        read.unwrap_or_else(|_| {
            self.metrics.misses.inc();
            if limit == READ_TIMEOUT {
                self.read_failed(&self.files.path(key, spot), &io::ErrorKind::TimedOut.into());
            }
            None
        })
    }

    /// Takes in the time of a read.
    fn learn(&self, time: Duration) {
        let Some(slow) = self.speed.took(time) else { return };
        self.metrics.slow.set(i64::from(slow));
        let (path, read) = (self.files.root().display(), self.speed.usual());
        match slow {
            true => {
                tracing::warn!(%path, ?read, "the disk cache is slow: faster origins are asked")
            }
            false => tracing::info!(%path, ?read, "the disk cache is quick again"),
        }
    }

    fn read(
        &self,
        key: Key,
        spot: Spot,
        change: Option<HeadChange>,
        troubled: bool,
    ) -> Option<Record> {
        let read = |spot| {
            let result = self.files.read(key, spot);
            if troubled && !matches!(result, Err(ReadError::Io(_))) {
                self.state.lock().reading.worked();
            }
            result
        };
        match self.readable(key, spot, read) {
            Some(record) => self.found(record, change),
            None => {
                self.metrics.misses.inc();
                None
            }
        }
    }

    /// The bytes of a record at its spot, or at the one that it has been moved to meanwhile.
    fn readable<T>(
        &self,
        key: Key,
        mut spot: Spot,
        read: impl Fn(Spot) -> Result<T, ReadError>,
    ) -> Option<T> {
        loop {
            let error = match read(spot) {
                Ok(read) => return Some(read),
                Err(error) => error,
            };
            let now = self.state.lock().index.spot(key);
            match now.filter(|now| *now != spot) {
                Some(now) => spot = now,
                None => {
                    self.unreadable(key, spot, error);
                    return None;
                }
            }
        }
    }

    /// A record that was read, as it is to be, unless it is to go.
    fn found(&self, mut record: Record, change: Option<HeadChange>) -> Option<Record> {
        if let Some((_, new)) = change.filter(|(old, _)| *old == record.head) {
            let Some(new) = new else {
                self.metrics.misses.inc();
                return None;
            };
            record.head = new;
        }
        self.metrics.hits.inc();
        Some(record)
    }

    /// Handles a record that could not be read.
    fn unreadable(&self, key: Key, spot: Spot, error: ReadError) {
        let path = self.files.path(key, spot);
        match error {
            ReadError::Damaged(damage) => {
                self.damaged(&path, damage);
                self.remove(key);
            }
            ReadError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                let state = self.state.lock();
                // It may just have been evicted. If not, somebody else has removed it.
                let lost = state.index.contains(key) && state.queue.get(key).is_none();
                drop(state);
                if lost {
                    self.trouble("a record is gone", &path, &error);
                    self.remove(key);
                }
            }
            ReadError::Io(error) => {
                self.read_failed(&path, &error);
                if is_bad_medium(&error) {
                    self.remove(key);
                }
            }
        }
    }

    /// Gives the device what a bundle has; one that is gone is as good.
    fn synced(&self, bundle: NonZeroU32) -> bool {
        let path = self.files.bundle(bundle);
        match File::open(&path).and_then(|file| file.sync_data()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.trouble("a bundle of records cannot be synced", &path, &error);
                false
            }
            _ => true,
        }
    }

    fn read_failed(&self, path: &Path, error: &io::Error) {
        self.trouble("a record cannot be read", path, error);
        self.state.lock().reading.failed(Instant::now());
    }

    fn remove(&self, key: Key) {
        let mut state = self.state.lock();
        state.remove(key);
        self.show(&state);
        self.news.notify_one();
    }

    fn close(&self, how: Closing, wait: Duration) {
        let mut state = self.state.lock();
        if state.closing.is_none() || matches!(how, Closing::AtOnce) {
            state.closing = Some(how);
        }
        self.news.notify_one();
        let deadline = Instant::now() + wait;
        while !state.ended {
            if self.end.wait_until(&mut state, deadline).timed_out() {
                tracing::warn!(dir = %self.files.root().display(), "the disk cache hangs: left alone");
                return;
            }
        }
    }

    /// Counts and reports an error of the disk.
    fn trouble(&self, what: &str, path: &Path, error: &io::Error) {
        let kind = Kind::of(error);
        self.metrics.error(kind);
        if let Some(left_out) = self.hushes.lock()[kind as usize].speak(Instant::now()) {
            let (path, kind) = (path.display(), kind.as_str());
            tracing::warn!(%path, %error, kind, left_out, "{what}");
        }
    }

    /// Counts and reports a damaged record.
    fn damaged(&self, path: &Path, damage: Damage) {
        self.metrics.damaged.inc();
        if let Some(left_out) = self.hush_damaged.lock().speak(Instant::now()) {
            let path = path.display();
            tracing::warn!(%path, %damage, left_out, "a damaged record of the disk cache is removed");
        }
    }

    fn show(&self, state: &State) {
        self.metrics.bytes.set(state.index.bytes() as i64);
        self.metrics.entries.set(state.index.len() as i64);
        self.metrics.queue_bytes.set(state.queue.bytes() as i64);
    }
}

/// Takes the directory, at once or when the node that has it gives it back, as it has said it would.
fn take_in_time(files: &Files, lock_timeout: Duration) -> io::Result<File> {
    let deadline = Instant::now() + lock_timeout;
    let mut waits = false;
    loop {
        match files.take() {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && files.is_ending()
                    && Instant::now() < deadline =>
            {
                if !std::mem::replace(&mut waits, true) {
                    let dir = files.root().display();
                    tracing::info!(%dir, timeout = ?lock_timeout, "waiting for the node that still uses the disk cache");
                }
                thread::sleep(LOCK_INTERVAL);
            }
            taken => return taken,
        }
    }
}

/// Reads the bytes of a record's file, for fuzzing.
#[doc(hidden)]
pub fn read_record(key: Key, bytes: &Bytes) -> Option<Record> {
    record::parse(bytes, key).ok()
}

/// The bytes of a record's file, for fuzzing.
#[doc(hidden)]
pub fn write_record(key: Key, head: &[u8], body: &[Bytes]) -> Vec<u8> {
    record::whole(key, head, body).into()
}

/// The records that are undamaged in a bundle of these bytes, for fuzzing.
#[doc(hidden)]
pub fn read_bundle(bytes: &[u8]) -> Vec<(Key, Record)> {
    let listed = bundle::listed_in(NonZeroU32::MIN, bytes).into_iter();
    let record = |listed: bundle::Listed| {
        let record = &bytes[listed.part.at as usize..][..listed.part.length.into()];
        Some((Key(listed.key), record::parse(record, Key(listed.key)).ok()?))
    };
    listed.filter_map(record).collect()
}

/// The bytes of a bundle with these records, for fuzzing.
#[doc(hidden)]
pub fn write_bundle(records: &[(Key, Vec<u8>)]) -> Vec<u8> {
    bundle::bytes_of(records.iter().map(|(key, record)| (*key, &record[..])))
}

/// Whether the medium itself fails to give the bytes back (EIO).
fn is_bad_medium(error: &io::Error) -> bool {
    error.raw_os_error() == Some(5)
}

/// Seconds of Unix time, as stamps have them.
fn unix_time() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
