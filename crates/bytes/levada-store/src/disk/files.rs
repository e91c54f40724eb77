//! The directory of the tier, and everything that is done in it.
//!
//! ```text
//! lock                      held by the node that uses the directory
//! ending                    the node that uses it is about to give it back
//! index                     the snapshot of the index; `index.clean` after an orderly end
//! 000 .. 3ff                by the first ten bits of the key
//!   0123456789abcdef        a record, named by its key
//!   writing                 a record being written; renamed when it is whole
//! 000
//!   01234567                a bundle of short records, named by its number
//! ```
//!
//! Bundles have no directory of their own: a version that does not know them removes what is no record from
//! these, so that it cannot leave records there that it has replaced.
//!
//! No record is synced: after the machine has failed, a checksum tells what did not reach the disk. Marks of
//! records that have gone are synced before a purge is forgotten.

use std::{
    fs::{self, DirBuilder, File, Metadata, Permissions, TryLockError},
    io::{self, Write},
    num::NonZeroU32,
    ops::Range,
    os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;
pub(super) use levada_cache::disk_room::DIRECTORIES as FANOUT;
use levada_types::Key;

use super::{
    at_once,
    in_file::Verified,
    index::Spot,
    record::{self, HEADER, ReadError, Record},
};

/// The directory that has the bundles.
pub(super) const BUNDLES: u16 = 0;
/// No bundle has this number or a higher one, so that there is always a next one.
const LAST_BUNDLE: u32 = 1 << 31;
/// The name of what is being written.
pub(super) const WRITING: &str = "writing";
/// The name of the mark of a node that ends.
const ENDING: &str = "ending";
/// Pieces up to here are put together before they are written.
const TOGETHER: usize = 64 << 10;

pub(super) struct Files {
    root: PathBuf,
    verified: Verified,
}

impl Files {
    pub(super) fn new(root: PathBuf, seed: u64) -> Self {
        Self { root, verified: Verified::new(seed) }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn snapshot(&self, clean: bool) -> PathBuf {
        self.root.join(if clean { "index.clean" } else { "index" })
    }

    /// The directories of records that there are.
    pub(super) fn parts(&self) -> io::Result<Vec<u16>> {
        let mut parts = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| u16::from_str_radix(name, 16).ok());
            parts.extend(number.filter(|&part| part < FANOUT && self.part(part).ends_with(&name)));
        }
        parts.sort_unstable();
        Ok(parts)
    }

    /// The directory number `part`.
    pub(super) fn part(&self, part: u16) -> PathBuf {
        self.root.join(format!("{part:03x}"))
    }

    /// The file that has the record of `key`.
    pub(super) fn path(&self, key: Key, spot: Spot) -> PathBuf {
        match spot {
            Spot::File { .. } => self.root.join(format!("{:03x}/{:016x}", part_of(key), key.0)),
            Spot::Bundle(part) => self.bundle(part.bundle),
        }
    }

    /// The bundle with this number.
    pub(super) fn bundle(&self, number: NonZeroU32) -> PathBuf {
        self.root.join(format!("{BUNDLES:03x}/{number:08x}"))
    }

    /// Makes the directory if it is missing, and takes it for this node until the file is dropped. A
    /// directory that cannot be written to is taken if a node has been there before.
    pub(super) fn take(&self) -> io::Result<File> {
        create_closed(&self.root)?;
        fs::read_dir(&self.root)?;
        let path = self.root.join("lock");
        // Open for reading only: nothing hinders the file system from becoming read-only.
        let lock = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                File::create(&path)?;
                File::open(&path)?
            }
            opened => opened?,
        };
        match lock.try_lock() {
            Ok(()) => {
                // If this fails, a later node waits a while for nothing.
                let _ = remove(&self.root.join(ENDING));
                Ok(lock)
            }
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Lets other nodes know that this one is about to give the directory back. A failure only makes them
    /// give up at once.
    pub(super) fn is_to_end(&self) {
        let _ = File::create(self.root.join(ENDING));
    }

    /// Whether the node that has the directory is about to give it back.
    pub(super) fn is_ending(&self) -> bool {
        self.root.join(ENDING).exists()
    }

    /// The record of `key`, whole.
    pub(super) fn read(&self, key: Key, spot: Spot) -> Result<Record, ReadError> {
        let file = File::open(self.path(key, spot))?;
        let found = file.metadata()?;
        let (start, length) = spot.extent(&found);
        let record = record::read(length, key, &mut |bytes, at| file.read_at(bytes, start + at))?;
        self.found_good(key, spot, &found);
        Ok(record)
    }

    /// The record of `key`, if it is short enough and all of it is in the system's memory: nothing is
    /// waited for. With `rest`, the disk does not learn of it.
    pub(super) fn read_at_once(
        &self,
        key: Key,
        spot: Spot,
        rest: bool,
    ) -> Result<Record, ReadError> {
        let good = |found: &Metadata| self.found_good(key, spot, found);
        at_once::read(&self.path(key, spot), spot, key, rest, good)
    }

    fn found_good(&self, key: Key, spot: Spot, found: &Metadata) {
        if matches!(spot, Spot::File { .. }) {
            self.verified.remember(key, found);
        }
    }

    /// The head of the record of `key`, the file that has its body, and where in it that begins, if the
    /// whole record was found good of late and all of it is in the system's memory.
    pub(super) fn find_at_once(
        &self,
        key: Key,
        spot: Spot,
    ) -> Result<(Bytes, File, Range<u64>), ReadError> {
        let good = |found: &Metadata| self.verified.holds(key, found);
        let (front, header, file) = at_once::front(&self.path(key, spot), key, good)?;
        let body = header.front() as u64..header.total();
        Ok((Bytes::from(front).slice(HEADER..header.front()), file, body))
    }

    /// The head of the record of `key`. Its body has the length that it should have; more is not known.
    pub(super) fn read_head(&self, key: Key, spot: Spot) -> Result<Bytes, ReadError> {
        let file = File::open(self.path(key, spot))?;
        let (start, length) = spot.extent(&file.metadata()?);
        let (front, header) =
            record::read_front(length, key, &mut |bytes, at| file.read_at(bytes, start + at))?;
        Ok(Bytes::copy_from_slice(&front[HEADER..header.front()]))
    }

    /// Writes a record to a file of its own.
    pub(super) fn write(&self, key: Key, head: &[u8], body: &[Bytes]) -> io::Result<()> {
        let front = record::front(key, head, body);
        let pieces = std::iter::once(&front[..]).chain(body.iter().map(|piece| &piece[..]));
        self.write_file(&self.path(key, Spot::File { pages: 0 }), pieces)
    }

    /// Writes a temporary file and renames it, so that `path` is the old one or the new one, whole.
    pub(super) fn write_file<'a>(
        &self,
        path: &Path,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        // In the same directory: that makes the file system keep directory and records together.
        let writing = path.with_file_name(WRITING);
        let result = create(&writing)
            .and_then(|file| write_pieces(file, pieces))
            .and_then(|()| fs::rename(&writing, path));
        if result.is_err() {
            // A full disk gets its room back. If this fails, the next record is written over it.
            let _ = fs::remove_file(&writing);
        }
        result
    }
}

/// Makes a file, and its directory where that is missing.
pub(super) fn create(path: &Path) -> io::Result<File> {
    match File::create(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir(path.parent().unwrap_or(path))?;
            File::create(path)
        }
        created => created,
    }
}

fn write_pieces<'a>(file: File, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    let mut file = io::BufWriter::with_capacity(TOGETHER, file);
    for piece in pieces {
        file.write_all(piece)?;
    }
    file.flush()
}

/// Removes a file; that there is none is as good.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The number of the directory that holds the record of `key`.
pub(super) fn part_of(key: Key) -> u16 {
    (key.0 >> 54) as u16
}

/// The key that a file in directory `part` is named by.
pub(super) fn key_of(part: u16, name: &std::ffi::OsStr) -> Option<Key> {
    let name = name.to_str().filter(|name| name.len() == 16)?;
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let key = u64::from_str_radix(name, 16).ok().filter(|_| name.bytes().all(lower)).map(Key)?;
    (part_of(key) == part).then_some(key)
}

/// The number of the bundle that a file is named by.
pub(super) fn bundle_of(name: &std::ffi::OsStr) -> Option<NonZeroU32> {
    let number =
        u32::from_str_radix(name.to_str()?, 16).ok().filter(|&number| number < LAST_BUNDLE)?;
    (name.to_str()? == format!("{number:08x}")).then(|| NonZeroU32::new(number))?
}

/// Makes the directory if it is missing. Only this user may enter it: what is stored may be for some clients
/// only.
fn create_closed(root: &Path) -> io::Result<()> {
    if let Some(parent) = root.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(CLOSED).create(root) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let mode = fs::metadata(root)?.permissions().mode();
    if mode & OTHERS != 0
        && let Err(error) = fs::set_permissions(root, Permissions::from_mode(mode & !OTHERS))
    {
        tracing::warn!(directory = %root.display(), %error, "other users can read the cache");
    }
    Ok(())
}

/// The permissions of a directory that only its owner may enter.
const CLOSED: u32 = 0o700;
/// The permissions of all other users.
const OTHERS: u32 = 0o077;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_their_keys() {
        let files = Files::new("/cache".into(), 1);
        let key = Key(0xffc0_0000_0000_00ab);
        let spot = Spot::File { pages: 1 };
        assert_eq!(files.path(key, spot), Path::new("/cache/3ff/ffc00000000000ab"));
        assert_eq!(key_of(0x3ff, "ffc00000000000ab".as_ref()), Some(key));
        assert_eq!(key_of(0x3fe, "ffc00000000000ab".as_ref()), None);
        assert_eq!(key_of(0x3ff, "FFC00000000000AB".as_ref()), None);
        assert_eq!(key_of(0x3ff, "+fc00000000000ab".as_ref()), None);
    }

    #[test]
    fn bundles_are_named_by_their_numbers() {
        let number = NonZeroU32::new(0xab).unwrap();
        assert!(Files::new("/cache".into(), 1).bundle(number).ends_with("000/000000ab"));
        assert_eq!(bundle_of("000000ab".as_ref()), Some(number));
        for name in ["00000000", "000000AB", "+00000ab", "ab", "ffffffff", "00000000000000ab"] {
            assert_eq!(bundle_of(name.as_ref()), None, "{name}");
        }
    }
}
