//! The tier's own thread: the only one that changes the directory.

use std::{
    fs::File,
    io,
    time::{Duration, Instant},
};

use bytes::Bytes;
use levada_types::Key;

use super::{
    Closing, Shared,
    files::{FANOUT, part_of, remove},
    index::{IndexEntry, PAGE, pages},
    queue::{Ticket, Work},
    record::{HEADER, ReadError, length},
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
            let mut state = shared.state.lock();
            while state.closing.is_none() && !state.writing.is_over(Instant::now()) {
                let until = state.writing.until().unwrap_or_else(Instant::now);
                shared.news.wait_until(&mut state, until);
            }
            if state.closing.is_some() {
                return false;
            }
            drop(state);
            match shared.files.take() {
                Ok(lock) => self.lock = Some(lock),
                Err(error) => self.failed("the disk cache cannot be used", &error),
            }
        }
        shared.state.lock().writing.worked();
        shared.taken.store(true, std::sync::atomic::Ordering::Relaxed);
        true
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
        let result = match &work {
            Work::Write { head, body } => self.write(key, head, body),
            Work::Change { old, new } => self.change(key, old, new.as_ref()),
            Work::Remove => self.remove(key),
        };
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
        let part = usize::from(part_of(key));
        if !self.make_room(pages(total) + u32::from(!self.parts[part]))? {
            self.shared.metrics.dropped("too_large");
            return self.remove(key);
        }
        self.account_for(part);
        match self.shared.files.write(key, head, body) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.begin_anew()?;
                self.account_for(part);
                self.shared.files.write(key, head, body)?
            }
            Err(error) if is_full(&error) => {
                self.give_way(pages(total))?;
                self.shared.files.write(key, head, body)?
            }
            result => result?,
        }
        let mut state = self.shared.state.lock();
        state.index.insert(IndexEntry { key: key.0, pages: pages(total), stamp: unix_time() });
        self.shared.metrics.writes.inc();
        self.shared.metrics.written_bytes.inc_by(total);
        Ok(())
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
        let Some(new) = new else {
            // Another record has taken its place and stays.
            let other = self.shared.files.read_head(key).is_ok_and(|head| head != old);
            return if other { Ok(()) } else { self.remove(key) };
        };
        match self.shared.files.read(key) {
            Ok(record) if record.head == old => self.write(key, new, &record.body),
            Ok(_) => Ok(()),
            Err(ReadError::Io(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Err(ReadError::Io(_)) => self.remove(key),
            Err(ReadError::Damaged(damage)) => {
                self.shared.damaged(&self.shared.files.path(key), damage);
                self.remove(key)
            }
        }
    }

    fn remove(&self, key: Key) -> io::Result<()> {
        self.shared.files.remove(key)?;
        self.shared.state.lock().index.remove(key);
        Ok(())
    }

    /// Evicts until a file of so many pages has room; false when it never will.
    pub(super) fn make_room(&self, pages: u32) -> io::Result<bool> {
        while !self.shared.state.lock().index.has_room(pages) {
            if self.evict()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The disk is full before the limit is reached: something else fills it, or the limit is too high.
    /// Then the tier gets along with the room it has.
    fn give_way(&self, pages: u32) -> io::Result<()> {
        let mut given = 0;
        while given < pages {
            match self.evict()? {
                Some(entry) => given += entry.pages,
                None => return Err(io::ErrorKind::StorageFull.into()),
            }
        }
        Ok(())
    }

    fn evict(&self) -> io::Result<Option<IndexEntry>> {
        let Some(entry) = self.shared.state.lock().index.evict() else { return Ok(None) };
        if let Err(error) = self.shared.files.remove(Key(entry.key)) {
            self.shared.state.lock().index.insert(entry);
            return Err(error);
        }
        self.shared.metrics.evictions.inc();
        Ok(Some(entry))
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
        self.shared.state.lock().index.clear();
        self.parts.fill(false);
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
        if !self.make_room(pages(length))? {
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
