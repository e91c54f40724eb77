//! The tier's own thread: the only one that changes the directory.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use bytes::Bytes;
use levada_cache::disk_room::PAGE;
use levada_types::Key;

use super::{
    Closing, Shared,
    bundle::{self, OpenBundle, Part},
    files::{BUNDLES, FANOUT, part_of, remove},
    index::{IndexEntry, Spot, file_cost, pages},
    queue::{Ticket, Work},
    record::{self, HEADER, ReadError, length},
    scan, snapshot, unix_time,
};

/// The interval at which the index is written down. What it lacks is read from the records at the next start.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(300);
/// How many slots are copied at once.
const COPIED: usize = 4096;

/// Takes the directory, scans it, then does what waits until the end.
pub(super) fn run(shared: &Shared, lock: Option<File>) {
    let mut writer = DiskWriter {
        shared,
        lock,
        parts: Box::new([false; FANOUT as usize]),
        open: None,
        next_bundle: NonZeroU32::MIN,
        half_moved: BTreeSet::new(),
        snapshot: 0,
        due: Instant::now() + SNAPSHOT_INTERVAL,
        changed: false,
    };
    if writer.take() && scan::run(&mut writer) && writer.work() {
        writer.written_down(true);
    }
    // A thread that waits for the end may want the directory for itself.
    drop(writer);
    shared.state.lock().ended = true;
    shared.end.notify_all();
}

pub(super) struct DiskWriter<'a> {
    pub(super) shared: &'a Shared,
    /// Held as long as the directory is this node's.
    lock: Option<File>,
    /// Which of the directories of records there are.
    parts: Box<[bool; FANOUT as usize]>,
    /// The bundle that short records are appended to.
    pub(super) open: Option<OpenBundle>,
    /// The number of the next one.
    pub(super) next_bundle: NonZeroU32,
    /// Bundles with records that another one has as well, or that have been evicted. They go before anything else
    /// is done: a record that is removed from the other one must not come back.
    pub(super) half_moved: BTreeSet<NonZeroU32>,
    /// The bytes of the snapshot on the disk, as accounted.
    pub(super) snapshot: u64,
    /// When to write the next one.
    due: Instant,
    /// Whether it would differ.
    changed: bool,
}

enum WriterStep {
    Work(Key, Ticket, Work),
    Snapshot,
    /// With nothing left to do, or with something.
    End {
        done: bool,
    },
}

impl DiskWriter<'_> {
    /// Waits until the directory is this node's; false when the end comes first.
    fn take(&mut self) -> bool {
        let shared = self.shared;
        while self.lock.is_none() {
            if !self.paused() {
                return false;
            }
            match shared.files.take() {
                Ok(lock) => self.lock = Some(lock),
                Err(error) => self.failed("the disk cache cannot be used", &error),
            }
        }
        shared.state.lock().writing.worked();
        shared.taken.store(true, std::sync::atomic::Ordering::Relaxed);
        true
    }

    /// Waits until the pause after a failure is over; false when the end comes first.
    pub(super) fn paused(&self) -> bool {
        let mut state = self.shared.state.lock();
        while state.closing.is_none() && !state.writing.is_over(Instant::now()) {
            let until = state.writing.until().unwrap_or_else(Instant::now);
            self.shared.news.wait_until(&mut state, until);
        }
        state.closing.is_none()
    }

    /// Does what waits, until the end; true when nothing is left.
    fn work(&mut self) -> bool {
        loop {
            match self.next() {
                WriterStep::Work(key, ticket, work) => {
                    let again = self.done(key, work);
                    self.changed = true;
                    let mut state = self.shared.state.lock();
                    state.queue.finish(key, ticket, again);
                    self.shared.show(&state);
                }
                WriterStep::Snapshot => self.written_down(false),
                WriterStep::End { done } => return done,
            }
        }
    }

    fn next(&self) -> WriterStep {
        let mut state = self.shared.state.lock();
        loop {
            let now = Instant::now();
            let paused = !state.writing.is_over(now);
            match state.closing {
                Some(Closing::AtOnce) => return WriterStep::End { done: false },
                Some(_) if state.queue.is_empty() => return WriterStep::End { done: true },
                Some(Closing::By(deadline)) if paused || deadline <= now => {
                    return WriterStep::End { done: false };
                }
                _ => {}
            }
            if !paused {
                if self.changed && self.due <= now {
                    return WriterStep::Snapshot;
                }
                if let Some((key, ticket, work)) = state.queue.start() {
                    return WriterStep::Work(key, ticket, work);
                }
            }
            match state.writing.until().filter(|_| paused).or(self.changed.then_some(self.due)) {
                Some(until) => drop(self.shared.news.wait_until(&mut state, until)),
                None => self.shared.news.wait(&mut state),
            }
        }
    }

    /// Does one thing; gives back what is still to be done after a failure.
    fn done(&mut self, key: Key, work: Work) -> Option<Work> {
        let result = self.finish_moves().and_then(|()| match &work {
            Work::Write { head, body } => self.write(key, head, body),
            Work::Change { old, new } => self.change(key, old, new.as_ref()),
            Work::Remove => self.remove(key),
        });
        let Err(error) = result else {
            let mut state = self.shared.state.lock();
            if state.writing.until().is_some() {
                state.writing.worked();
            }
            return None;
        };
        if !matches!(work, Work::Remove | Work::Change { new: None, .. }) {
            self.shared.metrics.dropped("failed");
        }
        self.failed("the disk cache cannot be written", &error);
        // The record that was to be replaced or removed must not come back.
        self.shared.state.lock().index.contains(key).then_some(Work::Remove)
    }

    pub(super) fn failed(&self, what: &str, error: &io::Error) {
        self.shared.trouble(what, self.shared.files.root(), error);
        self.shared.state.lock().writing.failed(Instant::now());
    }

    fn write(&mut self, key: Key, head: &[u8], body: &[Bytes]) -> io::Result<()> {
        let total = (HEADER + head.len() + length(body)) as u64;
        let is_short = total <= self.shared.longest_bundled;
        let part = if is_short { BUNDLES } else { part_of(key) }.into();
        let directory = if self.parts[part] { 0 } else { PAGE };
        let cost = if is_short { total + bundle::ENTRY + bundle::FIXED } else { file_cost(total) };
        if !self.make_room(cost + directory)? {
            self.shared.metrics.dropped("too_large");
            return self.remove(key);
        }
        // A file replaces a file in one step. In all other cases the former record goes first.
        let before = self.shared.state.lock().index.spot(key);
        if let Some(before) = before.filter(|before| is_short || before.bundle().is_some()) {
            self.erase(key, before)?;
        }
        let write = |writer: &mut Self| -> io::Result<Spot> {
            if is_short {
                let record = record::whole(key, head, body);
                return Ok(Spot::Bundle(writer.append(key, unix_time(), &record)?));
            }
            writer.account_for(part);
            writer.shared.files.write(key, head, body)?;
            Ok(Spot::File { pages: pages(total) })
        };
        let spot = match write(self) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.begin_anew()?;
                write(self)?
            }
            Err(error) if is_full(&error) => {
                self.give_way(cost)?;
                write(self)?
            }
            result => result?,
        };
        self.shared.state.lock().index.insert(IndexEntry { key: key.0, spot, stamp: unix_time() });
        self.shared.metrics.writes.inc();
        self.shared.metrics.written_bytes.inc_by(total);
        self.drop_if_empty(before.and_then(Spot::bundle))
    }

    /// Appends a record to the open bundle, or to the next one. The caller inserts it.
    fn append(&mut self, key: Key, stamp: u32, record: &[u8]) -> io::Result<Part> {
        let (length, most) = (record.len() as u64, self.shared.bundle_bytes);
        let files = &self.shared.files;
        let append =
            |open: &mut OpenBundle| open.append(&files.bundle(open.number), key, stamp, record);
        let open = self.open.as_mut().filter(|open| open.has_room(length, most));
        let appended = open.map_or(Err(io::ErrorKind::NotFound.into()), append);
        let part = match appended {
            // It is full, or somebody has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => append(self.next_bundle()?)?,
            appended => appended?,
        };
        self.shared.state.lock().index.grow(part.bundle, length + bundle::ENTRY);
        Ok(part)
    }

    fn next_bundle(&mut self) -> io::Result<&mut OpenBundle> {
        let full = self.open.take().map(|open| open.number);
        self.drop_if_empty(full)?;
        let number = self.next_bundle;
        self.account_for(BUNDLES.into());
        let open = OpenBundle::create(number, &self.shared.files.bundle(number))?;
        self.next_bundle = number.saturating_add(1);
        self.shared.state.lock().index.grow(number, 0);
        Ok(self.open.insert(open))
    }

    /// Counts the directory that a record is to be in.
    pub(super) fn account_for(&mut self, part: usize) {
        if !self.parts[part] {
            self.parts[part] = true;
            self.shared.state.lock().index.beside(PAGE, 0);
        }
    }

    /// Replaces the head of a record that has not changed since it was read, or removes the record.
    fn change(&mut self, key: Key, old: &Bytes, new: Option<&Bytes>) -> io::Result<()> {
        let Some(spot) = self.shared.state.lock().index.spot(key) else { return Ok(()) };
        let Some(new) = new else {
            // Another record has taken its place and stays.
            let other = self.shared.files.read_head(key, spot).is_ok_and(|head| head != old);
            return if other { Ok(()) } else { self.remove(key) };
        };
        match self.shared.files.read(key, spot) {
            Ok(record) if record.head == old => self.write(key, new, &record.body),
            Ok(_) => Ok(()),
            Err(ReadError::Io(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Err(ReadError::Io(_)) => self.remove(key),
            Err(ReadError::Damaged(damage)) => {
                self.shared.damaged(&self.shared.files.path(key, spot), damage);
                self.remove(key)
            }
        }
    }

    pub(super) fn remove(&mut self, key: Key) -> io::Result<()> {
        let spot = self.shared.state.lock().index.spot(key).unwrap_or(Spot::File { pages: 0 });
        self.erase(key, spot)?;
        self.shared.state.lock().index.remove(key);
        self.drop_if_empty(spot.bundle())
    }

    /// Removes a record from the disk; that there is none is as good. In a bundle its bytes stay.
    pub(super) fn erase(&self, key: Key, spot: Spot) -> io::Result<()> {
        let path = self.shared.files.path(key, spot);
        match spot {
            Spot::File { .. } => remove(&path),
            Spot::Bundle(part) => {
                bundle::bury(&path, part)?;
                self.shared.state.lock().marked.insert(part.bundle);
                Ok(())
            }
        }
    }

    /// Removes a bundle that a record has left, if that was the last one.
    pub(super) fn drop_if_empty(&mut self, bundle: Option<NonZeroU32>) -> io::Result<()> {
        let open = self.open.as_ref().map(|open| open.number);
        match bundle.filter(|_| bundle != open) {
            Some(bundle) if self.shared.state.lock().index.is_empty(bundle) => {
                self.drop_bundle(bundle)
            }
            _ => Ok(()),
        }
    }

    fn drop_bundle(&mut self, bundle: NonZeroU32) -> io::Result<()> {
        remove(&self.shared.files.bundle(bundle))?;
        self.open.take_if(|open| open.number == bundle);
        self.half_moved.remove(&bundle);
        let mut state = self.shared.state.lock();
        state.marked.remove(&bundle);
        state.index.remove_bundle(bundle);
        Ok(())
    }

    /// Evicts until so many bytes have room; false when they never will.
    pub(super) fn make_room(&mut self, bytes: u64) -> io::Result<bool> {
        loop {
            let state = self.shared.state.lock();
            if state.index.has_room(bytes) {
                return Ok(true);
            }
            let sparse = state.index.sparse();
            drop(state);
            match sparse {
                Some(bundle) => self.move_records(bundle)?,
                None if !self.evict(false)? => return Ok(false),
                None => {}
            }
        }
    }

    /// Ends what an error or a crash has interrupted.
    pub(super) fn finish_moves(&mut self) -> io::Result<()> {
        while let Some(bundle) = self.half_moved.first() {
            self.move_records(*bundle)?;
        }
        Ok(())
    }

    /// Removes a bundle, and writes the records that it still has to the open one. Until it is gone there are two
    /// of each, and both are the same. Records that have no room go with it.
    fn move_records(&mut self, bundle: NonZeroU32) -> io::Result<()> {
        self.open.take_if(|open| open.number == bundle);
        let path = self.shared.files.bundle(bundle);
        let is_empty = self.shared.state.lock().index.is_empty(bundle);
        let bytes = if is_empty { Ok(Vec::new()) } else { fs::read(&path) };
        let bytes = bytes.unwrap_or_else(|error| {
            self.shared.trouble("a bundle of records cannot be read", &path, &error);
            Vec::new()
        });
        let mut room = self.shared.state.lock().index.room_to_move();
        for bundle::Listed { key, part, stamp } in bundle::listed_in(bundle, &bytes) {
            let key = Key(key);
            if self.shared.state.lock().index.spot(key) != Some(Spot::Bundle(part)) {
                continue;
            }
            let record = &bytes[part.at as usize..][..part.length.into()];
            if let Err(ReadError::Damaged(damage)) = record::parse(record, key) {
                self.shared.damaged(&path, damage);
                self.shared.state.lock().index.remove(key);
                continue;
            }
            let moved = match room.checked_sub(Spot::Bundle(part).cost()) {
                Some(left) => {
                    room = left;
                    self.append(key, stamp, record)
                }
                None => Err(io::ErrorKind::StorageFull.into()),
            };
            match moved {
                Ok(part) => {
                    self.half_moved.insert(bundle);
                    self.shared.state.lock().index.shift(key, Spot::Bundle(part));
                }
                Err(error) if is_full(&error) => {
                    // It is not marked: it has gone when the bundle has.
                    self.half_moved.insert(bundle);
                    self.shared.state.lock().index.remove(key);
                    self.shared.metrics.evictions.inc();
                }
                Err(error) => return Err(error),
            }
        }
        self.drop_bundle(bundle)
    }

    /// The disk is full before the limit is reached: something else fills it, or the limit is too high.
    /// Then the tier gets along with the room it has.
    fn give_way(&mut self, bytes: u64) -> io::Result<()> {
        let taken = || self.shared.state.lock().index.bytes();
        let enough = taken().saturating_sub(bytes);
        while taken() > enough {
            if !self.evict(true)? {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }

    /// Removes a bundle with all records that it has.
    fn drop_with_all(&mut self, bundle: NonZeroU32) -> io::Result<()> {
        // As far as its table can be read. Records that the index keeps are found to be gone.
        let table = fs::read(self.shared.files.bundle(bundle)).unwrap_or_default();
        self.drop_bundle(bundle)?;
        for listed in bundle::listed_in(bundle, &table) {
            let mut state = self.shared.state.lock();
            if state.index.spot(Key(listed.key)) == Some(Spot::Bundle(listed.part)) {
                state.index.remove(Key(listed.key));
                self.shared.metrics.evictions.inc();
            }
        }
        Ok(())
    }

    /// Evicts the record that goes first, from a full disk with all that shares its bundle: nothing can be moved
    /// there. False when there is none.
    fn evict(&mut self, from_full_disk: bool) -> io::Result<bool> {
        let Some(entry) = self.shared.state.lock().index.evict() else { return Ok(false) };
        let bundle = entry.spot.bundle();
        let gone = match bundle.filter(|_| from_full_disk) {
            Some(bundle) => self.drop_with_all(bundle),
            None => self.erase(Key(entry.key), entry.spot),
        };
        if let Err(error) = gone {
            self.shared.state.lock().index.insert(entry);
            return Err(error);
        }
        self.shared.metrics.evictions.inc();
        self.drop_if_empty(bundle)?;
        Ok(true)
    }

    /// The directory is gone: it is made again, and empty.
    fn begin_anew(&mut self) -> io::Result<()> {
        let gone = io::ErrorKind::NotFound.into();
        self.shared.trouble(
            "the disk cache is gone; it begins anew",
            self.shared.files.root(),
            &gone,
        );
        self.lock = Some(self.shared.files.take()?);
        let mut state = self.shared.state.lock();
        state.index.clear();
        state.marked.clear();
        drop(state);
        self.parts.fill(false);
        self.open = None;
        self.half_moved.clear();
        self.snapshot = 0;
        Ok(())
    }

    /// Writes the index down.
    fn written_down(&mut self, clean: bool) {
        self.due = Instant::now() + SNAPSHOT_INTERVAL;
        self.changed = false;
        if let Err(error) = self.write_down(clean) {
            self.failed("the index of the disk cache cannot be written", &error);
        }
    }

    fn write_down(&mut self, clean: bool) -> io::Result<()> {
        let files = &self.shared.files;
        let length = snapshot::length(self.shared.state.lock().index.len());
        self.finish_moves()?;
        if !self.make_room(file_cost(length))? {
            return Ok(());
        }
        let (mut entries, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            next = self.shared.state.lock().index.list(from, COPIED, &mut entries);
        }
        let bytes = snapshot::encode(&mut entries);
        files.write_file(&files.snapshot(clean), std::iter::once(&bytes[..]))?;
        if clean {
            remove(&files.snapshot(false))?;
        }
        let taken = u64::from(pages(bytes.len() as u64)) * PAGE;
        self.shared.state.lock().index.beside(taken, self.snapshot);
        self.snapshot = taken;
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
