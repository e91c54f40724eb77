//! Finding out what is on the disk: the snapshot gives hints, the directory the truth.
//!
//! The tables of bundles come first: they are short, and a record in a bundle can only be found by them.

use std::{
    collections::HashSet,
    fs::{self, DirEntry, File},
    io::{
        self,
        ErrorKind::{NotADirectory, NotFound},
    },
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use levada_cache::disk_room::PAGE;
use levada_types::Key;

use super::{
    bundle::{self, Listed, OpenBundle},
    files::{BUNDLES, WRITING, bundle_of, key_of, remove},
    index::{IndexEntry, Spot, pages},
    queue::Work,
    record::ReadError,
    snapshot,
    writer::DiskWriter,
};

/// How many entries are put in at once.
const BATCH: usize = 4096;
/// A snapshot that is longer is none.
const LONGEST_SNAPSHOT: u64 = 4 << 30;

/// Scans the directory; false when the end comes first.
pub(super) fn run(writer: &mut DiskWriter<'_>) -> bool {
    let files = &writer.shared.files;
    if let Err(error) = remove(&files.root().join(WRITING)) {
        writer.failed("the disk cache cannot be written", &error);
    }
    let Some(mut found) = read_bundles(writer) else { return false };
    let hints = Hints::read(writer);
    for entry in &mut found {
        let Some(hint) = hints.of(Key(entry.key)) else { continue };
        entry.stamp = if hints.clean { hint.stamp } else { hint.stamp.max(entry.stamp) };
    }
    let parts = files.parts().unwrap_or_else(|error| {
        writer.shared.trouble("the disk cache cannot be scanned", files.root(), &error);
        Vec::new()
    });
    let mut removed = HashSet::new();
    for part in parts {
        if writer.shared.state.lock().closing.is_some() {
            return false;
        }
        match scan_part(writer, part, &hints, &mut found) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                writer.shared.trouble("records cannot be listed", &files.part(part), &error);
            }
            Ok(()) => writer.account_for(usize::from(part)),
        }
        writer.remove_what_waits(&mut removed);
    }
    drop(hints);
    found.retain(|entry| !removed.contains(&entry.key));
    fill(writer, found);
    true
}

/// Reads the tables of all bundles, and makes their records known; `None` when the end comes first.
fn read_bundles(writer: &mut DiskWriter<'_>) -> Option<Vec<IndexEntry>> {
    let files = &writer.shared.files;
    let listed = loop {
        match fs::read_dir(files.part(BUNDLES)).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(listed) => break listed,
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => break Vec::new(),
            // Without the numbers of all bundles, a new one could pass for an older one.
            Err(error) => writer.failed("bundles of records cannot be listed", &error),
        }
        if !writer.paused() {
            return None;
        }
    };
    let mut bundles: Vec<_> = listed
        .iter()
        .filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|file| bundle_of(&file.file_name()))
        .collect();
    bundles.sort_unstable();
    let mut found = Vec::new();
    for &number in &bundles {
        let path = files.bundle(number);
        let read = |file: File| {
            bundle::table(number, file.metadata()?.len(), |bytes, at| file.read_at(bytes, at))
        };
        match File::open(&path).map_err(ReadError::from).and_then(read) {
            Ok(table) => {
                writer.shared.state.lock().index.grow(number, table.bytes);
                writer.open = OpenBundle::resume(number, &table);
                found.extend(table.live);
            }
            Err(ReadError::Io(error)) => {
                // If it could be read again, records would come back that have been removed meanwhile.
                writer.half_moved.insert(number);
                writer.open = None;
                writer.shared.trouble("a bundle of records cannot be read", &path, &error);
            }
            Err(ReadError::Damaged(damage)) => {
                writer.shared.damaged(&path, damage);
                if let Err(error) = remove(&path) {
                    writer.failed("the disk cache cannot be written", &error);
                }
            }
        }
    }
    writer.next_bundle = bundles.last().map_or(writer.next_bundle, |last| last.saturating_add(1));
    found.sort_unstable_by_key(|listed| listed.key);
    let mut entries: Vec<IndexEntry> = Vec::with_capacity(found.len());
    for Listed { key, mut part, stamp } in found {
        // Of two records of one key, the former one was being moved.
        if let Some(Spot::Bundle(other)) =
            entries.pop_if(|last| last.key == key).map(|last| last.spot)
        {
            let order = |part: bundle::Part| (part.bundle, part.slot);
            writer.half_moved.insert(part.bundle.min(other.bundle));
            part = std::cmp::max_by_key(part, other, |part| order(*part));
        }
        entries.push(IndexEntry { key, spot: Spot::Bundle(part), stamp });
    }
    let mut state = writer.shared.state.lock();
    state.index.know(entries.clone());
    state.tables_by = None;
    drop(state);
    writer.shared.tables_read.send_replace(true);
    Some(entries)
}

/// Puts into the index what has been found, so that what was asked for last goes last.
fn fill(writer: &mut DiskWriter<'_>, mut found: Vec<IndexEntry>) {
    found.sort_unstable_by_key(|entry| (entry.stamp, entry.key));
    writer.shared.state.lock().index.reserve(found.len());
    for batch in found.chunks(BATCH) {
        let mut state = writer.shared.state.lock();
        batch.iter().for_each(|entry| state.index.insert(*entry));
    }
    writer.shared.state.lock().index.know(Vec::new());
    // Where there is no room, as after the limit was lowered, the oldest make it.
    let empty = writer.shared.state.lock().index.empty_bundles();
    let mut room = empty.into_iter().try_for_each(|bundle| writer.drop_if_empty(Some(bundle)));
    room = room.and_then(|()| writer.finish_moves()).and_then(|()| writer.make_room(0).map(drop));
    if let Err(error) = room {
        writer.failed("the disk cache cannot be written", &error);
    }
    let shared = writer.shared;
    let mut state = shared.state.lock();
    state.scanned = true;
    shared.show(&state);
    let (entries, bytes) = (state.index.len(), state.index.bytes());
    drop(state);
    shared.metrics.scanned.set(1);
    shared.scanned.send_replace(true);
    tracing::info!(dir = %shared.files.root().display(), entries, bytes, "the disk cache is scanned");
}

/// The entries of a snapshot, by key.
struct Hints {
    entries: Vec<IndexEntry>,
    /// Nothing was written after it.
    clean: bool,
}

impl Hints {
    fn read(writer: &mut DiskWriter<'_>) -> Self {
        let files = &writer.shared.files;
        let path = files.snapshot(false);
        // From now on it is out of date.
        let clean = fs::rename(files.snapshot(true), &path).is_ok();
        let mut entries = match read_snapshot(&path) {
            Ok((entries, length)) => {
                writer.snapshot = u64::from(pages(length)) * PAGE;
                writer.shared.state.lock().index.beside(writer.snapshot, 0);
                entries
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                writer.shared.trouble("the index of the disk cache cannot be read", &path, &error);
                Vec::new()
            }
        };
        entries.sort_unstable_by_key(|entry| entry.key);
        Self { entries, clean }
    }

    fn of(&self, key: Key) -> Option<&IndexEntry> {
        let at = self.entries.binary_search_by_key(&key.0, |entry| entry.key).ok()?;
        self.entries.get(at)
    }
}

fn read_snapshot(path: &Path) -> io::Result<(Vec<IndexEntry>, u64)> {
    let length = fs::metadata(path)?.len();
    if length > LONGEST_SNAPSHOT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let entries = snapshot::parse(&fs::read(path)?).ok_or(io::ErrorKind::InvalidData)?;
    Ok((entries, length))
}

fn scan_part(
    writer: &DiskWriter<'_>,
    part: u16,
    hints: &Hints,
    found: &mut Vec<IndexEntry>,
) -> io::Result<()> {
    for file in fs::read_dir(writer.shared.files.part(part))? {
        let file = file?;
        if !file.file_type()?.is_file() {
            foreign(writer, &file);
            continue;
        }
        match key_of(part, &file.file_name()) {
            Some(key) => found.extend(entry(writer, key, &file, hints)),
            None if part == BUNDLES && bundle_of(&file.file_name()).is_some() => {}
            None => foreign(writer, &file),
        }
    }
    Ok(())
}

/// Judges a file that has a record's name.
fn entry(writer: &DiskWriter<'_>, key: Key, file: &DirEntry, hints: &Hints) -> Option<IndexEntry> {
    let (shared, spot) = (writer.shared, Spot::File { pages: 0 });
    let mut state = shared.state.lock();
    if let Some(other) = state.index.spot(key) {
        // A machine that failed has lost the removal of one of the two. Which one is not known: both go. The file
        // is the last: a start that finds one of them takes it for good.
        if !matches!(state.queue.get(key), Some(Work::Write { .. })) {
            state.queue.push(key, Work::Remove);
        }
        drop(state);
        if let Err(error) = writer.erase(key, other) {
            writer.failed("the disk cache cannot be written", &error);
        }
        foreign(writer, file);
        return None;
    }
    drop(state);
    let hint = hints.of(key);
    if let Some(hint) = hint.filter(|hint| hints.clean && hint.spot != spot) {
        return Some(*hint);
    }
    let looked = match hint {
        Some(_) => Ok(()),
        None => shared.files.read_head(key, spot).map(drop),
    };
    match looked.and_then(|()| Ok(file.metadata()?)) {
        Ok(metadata) => {
            let written = u32::try_from(metadata.mtime()).unwrap_or_default();
            let stamp = hint.map_or(written, |hint| hint.stamp.max(written));
            Some(IndexEntry {
                key: key.0,
                spot: Spot::File { pages: pages(metadata.len()) },
                stamp,
            })
        }
        Err(error) => {
            match error {
                ReadError::Io(error) if error.kind() == io::ErrorKind::NotFound => {}
                error => shared.unreadable(key, spot, error),
            }
            None
        }
    }
}

/// A file that nobody could have put here on purpose. Directories are left alone.
fn foreign(writer: &DiskWriter<'_>, file: &DirEntry) {
    if file.file_type().is_ok_and(|kind| kind.is_dir()) {
        return;
    }
    match remove(&file.path()) {
        // An interruption by the end of the tier.
        Ok(()) if file.file_name() == WRITING => {}
        Ok(()) => writer.shared.metrics.foreign.inc(),
        Err(error) => writer.shared.trouble(
            "a file that is no record cannot be removed",
            &file.path(),
            &error,
        ),
    }
}

impl DiskWriter<'_> {
    /// Does the removals that wait, and notes their keys. Nothing is written yet: how much room there is
    /// is not known.
    fn remove_what_waits(&mut self, removed: &mut HashSet<u64>) {
        let state = self.shared.state.lock();
        let mut removals = state.queue.removals();
        // A record in a bundle waits for the end of the scan.
        removals.retain(|(key, _)| state.index.spot(*key).is_none());
        drop(state);
        if removals.is_empty() {
            return;
        }
        removed.extend(removals.iter().map(|(key, _)| key.0));
        for (at, (key, _)) in removals.iter().enumerate() {
            if let Err(error) = self.remove(*key) {
                self.failed("the disk cache cannot be written", &error);
                return self.shared.state.lock().queue.withdraw(&removals[..at]);
            }
        }
        self.shared.state.lock().queue.withdraw(&removals);
    }
}
