//! A destination. Every path is walked from the root, name by name, without following links: so
//! nothing is written outside of the tree, even if another process changes it meanwhile.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, fchmod, futimens, mkdirat,
    openat, renameat, statat, symlinkat, unlinkat,
};

use super::{SyncError, io_error};

/// A directory that is made equal to a manifest.
pub(super) struct Destination {
    root: OwnedFd,
    staging: OwnedFd,
    path: PathBuf,
    /// Locked while this value lives.
    _lock: File,
}

impl Destination {
    /// Opens or creates the destination and its directory for incomplete files.
    pub(super) fn open(path: &Path) -> Result<Self, SyncError> {
        fs::create_dir_all(path).map_err(io_error(path))?;
        let root = rustix::fs::open(path, DIRECTORY & !OFlags::NOFOLLOW, Mode::empty());
        let root = root.map_err(|why| io_error(path)(why.into()))?;
        let staging = path.join(STAGING);
        let refused = |why: rustix::io::Errno| io_error(&staging)(why.into());
        make(&root, STAGING.as_ref(), 0o700).map_err(refused)?;
        let directory = openat(&root, STAGING, DIRECTORY, Mode::empty()).map_err(refused)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&directory, LOCK, flags, Mode::from_raw_mode(0o600)).map_err(refused)?;
        let lock = File::from(lock);
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(SyncError::Busy(path.to_owned())),
            Err(fs::TryLockError::Error(why)) => return Err(io_error(&staging)(why)),
        }
        Ok(Self { root, staging: directory, path: path.to_owned(), _lock: lock })
    }

    /// The path of an incomplete file of this name.
    pub(super) fn staged(&self, name: &str) -> PathBuf {
        self.path.join(STAGING).join(name)
    }

    /// Whether the file system ignores the case of names.
    pub(super) fn ignores_case(&self) -> bool {
        statat(&self.staging, LOCK.to_ascii_uppercase(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// The entry at `path`. A path through a link counts as absent.
    pub(super) fn stat(&self, path: &[u8]) -> Option<Stat> {
        let (parent, name) = self.parent(path, false).ok()?;
        statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    pub(super) fn read_link(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (parent, name) = self.parent(path, false).ok()?;
        Some(rustix::fs::readlinkat(&parent, name, Vec::new()).ok()?.into_bytes())
    }

    /// Opens a file for reading.
    pub(super) fn file(&self, path: &[u8]) -> io::Result<File> {
        let (parent, name) = self.parent(path, false)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&parent, name, flags, Mode::empty())?.into())
    }

    /// Creates an incomplete file.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.staging, name, flags, Mode::from_raw_mode(0o600))?.into())
    }

    /// Checks whether a file or a link can be installed at this path.
    pub(super) fn has_place(&self, path: &[u8]) -> io::Result<()> {
        let (parent, last) = self.parent(path, true)?;
        let there = statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW);
        match there {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => Err(occupied(path)),
            _ => Ok(()),
        }
    }

    /// Moves a complete file to its path, and sets its permissions and time.
    pub(super) fn put(
        &self,
        name: &str,
        path: &[u8],
        mode: u32,
        modified: (i64, u32),
    ) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.staging, name, flags, Mode::empty())?;
        dress(&file, mode, modified)?;
        let (parent, last) = self.parent(path, true)?;
        renameat(&self.staging, name, &parent, last).map_err(|why| odd(path, why))
    }

    /// Sets permissions and time of an existing file.
    pub(super) fn dress(&self, path: &[u8], mode: u32, modified: (i64, u32)) -> io::Result<()> {
        dress(&self.file(path)?.into(), mode, modified)
    }

    /// Creates a link.
    pub(super) fn link(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let _ = unlinkat(&self.staging, LINK, AtFlags::empty());
        symlinkat(target, &self.staging, LINK)?;
        let (parent, last) = self.parent(path, true)?;
        renameat(&self.staging, LINK, &parent, last).map_err(|why| odd(path, why))
    }

    /// Creates a directory; its permissions are set later.
    pub(super) fn directory(&self, path: &[u8]) -> io::Result<()> {
        let (parent, last) = self.parent(path, true)?;
        make(&parent, last, 0o755)?;
        openat(&parent, last, DIRECTORY, Mode::empty()).map(drop).map_err(|why| odd(path, why))
    }

    /// Sets the permissions of a directory.
    pub(super) fn dress_directory(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let (parent, last) = self.parent(path, false)?;
        let directory = openat(&parent, last, DIRECTORY, Mode::empty())?;
        Ok(fchmod(&directory, Mode::from_raw_mode(mode))?)
    }

    /// All existing paths; the entries of a directory before the directory.
    pub(super) fn paths(&self) -> io::Result<Vec<(Vec<u8>, bool)>> {
        let mut paths = Vec::new();
        walk(&self.root, &mut Vec::new(), &mut paths)?;
        Ok(paths)
    }

    pub(super) fn remove(&self, path: &[u8], is_directory: bool) -> io::Result<()> {
        let (parent, last) = self.parent(path, false)?;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        Ok(unlinkat(&parent, last, flags)?)
    }

    /// Removes the incomplete files.
    pub(super) fn clean(self) {
        for entry in Dir::read_from(&self.staging).into_iter().flatten().flatten() {
            let _ = unlinkat(&self.staging, entry.file_name(), AtFlags::empty());
        }
        let _ = unlinkat(&self.root, STAGING, AtFlags::REMOVEDIR);
    }

    /// The parent directory of `path`, and its last part.
    fn parent<'p>(&self, path: &'p [u8], create: bool) -> io::Result<(OwnedFd, &'p OsStr)> {
        let mut directory = self.root.try_clone()?;
        let mut parts = path.split(|&byte| byte == b'/').map(OsStr::from_bytes).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return Ok((directory, part));
            }
            if create {
                make(&directory, part, 0o755)?;
            }
            let next = openat(&directory, part, DIRECTORY, Mode::empty());
            directory = next.map_err(|why| odd(part.as_bytes(), why))?;
        }
        Err(io::ErrorKind::InvalidInput.into())
    }
}

fn make(directory: &OwnedFd, name: &OsStr, mode: u32) -> rustix::io::Result<()> {
    match mkdirat(directory, name, Mode::from_raw_mode(mode)) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        result => result,
    }
}

/// Adds to an error how the user can resolve it.
fn odd(path: &[u8], why: rustix::io::Errno) -> io::Error {
    match why {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => io::Error::other(format!(
            "{} is not a directory at the destination: remove it there, or replace a file with --delete",
            super::shown(path)
        )),
        rustix::io::Errno::ISDIR => occupied(path),
        why => why.into(),
    }
}

fn occupied(path: &[u8]) -> io::Error {
    io::Error::other(format!(
        "{} is a directory at the destination: with --delete it is replaced, unless something in it is \
         excluded",
        super::shown(path)
    ))
}

fn dress(file: &OwnedFd, mode: u32, (seconds, nanoseconds): (i64, u32)) -> io::Result<()> {
    fchmod(file, Mode::from_raw_mode(mode))?;
    let modified = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    let times = Timestamps { last_access: modified, last_modification: modified };
    Ok(futimens(file, &times)?)
}

fn walk(
    directory: &OwnedFd,
    path: &mut Vec<u8>,
    paths: &mut Vec<(Vec<u8>, bool)>,
) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." || (path.is_empty() && name == STAGING.as_bytes()) {
            continue;
        }
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let stat = statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        if is_directory {
            let below = openat(directory, entry.file_name(), DIRECTORY, Mode::empty())?;
            walk(&below, path, paths)?;
        }
        paths.push((path.clone(), is_directory));
        path.truncate(length);
    }
    Ok(())
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const STAGING: &str = ".levada-sync";
const LOCK: &str = "lock";
const LINK: &str = "link";
