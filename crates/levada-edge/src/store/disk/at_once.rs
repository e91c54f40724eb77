//! Reading what the system has in memory, on the thread that asks.
//!
//! A blocking thread for what is a copy costs two changes of threads, and the copy is in another
//! processor's cache then. Linux can be asked not to wait: for the name (`RESOLVE_CACHED`), and for the
//! bytes (`RWF_NOWAIT`). Whatever it would have to wait for is an error here, and read elsewhere.

use std::path::Path;

use levada_types::Key;

use super::record::{ReadError, Record};

/// More than this is not read in one go while others wait for the thread.
#[cfg(target_os = "linux")]
const MOST: u64 = (1 << 20) + (64 << 10);

/// The record of `key` in the file at `path`, as far as nothing has to be waited for.
#[cfg(target_os = "linux")]
pub(super) fn read(path: &Path, key: Key) -> Result<Record, ReadError> {
    use std::{
        fs::File,
        io::{self, IoSliceMut},
    };

    use rustix::{
        fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
        io::{ReadWriteFlags, preadv2},
    };

    // What is no file could make its reader wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED);
    let file = File::from(file.map_err(io::Error::from)?);
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MOST {
        return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
    }
    super::record::read(found.len(), key, &mut |bytes, at| {
        let into = &mut [IoSliceMut::new(bytes)];
        Ok(preadv2(&file, into, at, ReadWriteFlags::NOWAIT)?)
    })
}

/// Elsewhere there is no way to ask so.
#[cfg(not(target_os = "linux"))]
pub(super) fn read(_: &Path, _: Key) -> Result<Record, ReadError> {
    Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into())
}
