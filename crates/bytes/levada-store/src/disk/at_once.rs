//! Reading what the system has in memory, on the thread that asks.
//!
//! A blocking thread for what is a copy costs two changes of threads, and the copy is in another
//! processor's cache then. Linux can be asked not to wait: for the name (`RESOLVE_CACHED`), and for the
//! bytes (`RWF_NOWAIT`). Whatever it would have to wait for is an error here, and read elsewhere.

use std::{
    fs::{File, Metadata},
    io,
    path::Path,
};

use levada_net::cached::{are_cached, is_cached};
use levada_types::Key;

use super::{
    index::Spot,
    record::{self, Header, ReadError, Record},
};

/// More than this is not read in one go while others wait for the thread.
const MOST: u64 = (1 << 20) + (64 << 10);
/// How far apart it is probed whether the system still has a file: it reads and forgets more than this
/// at once.
const STRIDE: u64 = 128 << 10;

/// The record of `key` in the file at `path`, as far as nothing has to be waited for; `good` learns of
/// what was read. With `rest`, the disk does not learn of it: the system begins to read what it does not have.
pub(super) fn read(
    path: &Path,
    spot: Spot,
    key: Key,
    rest: bool,
    good: impl FnOnce(&Metadata),
) -> Result<Record, ReadError> {
    let (file, found) = open(path)?;
    let (start, length) = spot.extent(&found);
    let is_at_hand = || are_cached(&file, start..start + length).unwrap_or(false);
    if length > MOST || rest && !is_at_hand() {
        return Err(wait());
    }
    let record = record::read(length, key, &mut |bytes, at| read_at(&file, bytes, start + at))?;
    good(&found);
    Ok(record)
}

/// Header and head of the record of `key`, and its file, if that is `good` and the system has all of
/// it.
pub(super) fn front(
    path: &Path,
    key: Key,
    good: impl FnOnce(&Metadata) -> bool,
) -> Result<(Vec<u8>, Header, File), ReadError> {
    let (file, found) = open(path)?;
    if !good(&found) {
        return Err(wait());
    }
    let read_at = &mut |bytes: &mut [u8], at| read_at(&file, bytes, at);
    let (front, header) = record::read_front(found.len(), key, read_at)?;
    match is_cached(&file, found.len()) {
        Ok(true) => {}
        Ok(false) => return Err(wait()),
        Err(_) => probe(found.len(), read_at)?,
    }
    Ok((front, header, file))
}

/// Looks at a byte here and there where the system cannot tell which pages it has.
fn probe(length: u64, read_at: record::ReadAt<'_>) -> Result<(), ReadError> {
    let last = length.saturating_sub(1);
    for at in (0..last).step_by(STRIDE as usize).chain([last]) {
        record::fill(&mut [0], at, read_at)?;
    }
    Ok(())
}

fn wait() -> ReadError {
    io::Error::from(io::ErrorKind::WouldBlock).into()
}

#[cfg(target_os = "linux")]
fn open(path: &Path) -> Result<(File, Metadata), ReadError> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    // A path that is no regular file could make its reader wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED);
    let file = File::from(file.map_err(io::Error::from)?);
    let found = file.metadata()?;
    if found.is_file() { Ok((file, found)) } else { Err(wait()) }
}

#[cfg(target_os = "linux")]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    use rustix::io::{ReadWriteFlags, preadv2};
    let into = &mut [io::IoSliceMut::new(bytes)];
    Ok(preadv2(file, into, at, ReadWriteFlags::NOWAIT)?)
}

/// Elsewhere there is no way to ask so.
#[cfg(not(target_os = "linux"))]
fn open(_: &Path) -> Result<(File, Metadata), ReadError> {
    Err(io::Error::from(io::ErrorKind::Unsupported).into())
}

#[cfg(not(target_os = "linux"))]
fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
