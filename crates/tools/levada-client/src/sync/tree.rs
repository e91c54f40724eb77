//! A destination. Every path is walked from the root, name by name, without following links: so
//! nothing is written outside of the tree, even if another process changes it meanwhile.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fchmod, fstat, linkat, mkdirat, openat,
    renameat, statat, symlinkat, unlinkat,
};
use tempfile::TempDir;

use super::{
    SyncError,
    attributes::Attributes,
    io_error, sparse,
    state::{InstalledState, STATE},
};

/// A directory that is made equal to a manifest.
pub(super) struct Destination {
    root: OwnedFd,
    staging: OwnedFd,
    /// The path of `staging`.
    staging_path: PathBuf,
    _lock: Option<DestinationLock>,
    /// In the place of `staging`, and of a destination that does not exist, in a dry run.
    scratch: Option<TempDir>,
}

/// The lock of a destination, for as long as this value lives.
struct DestinationLock(File);

impl Drop for DestinationLock {
    /// Closing the file is not enough: a child process may have its descriptor until it runs its program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Destination {
    /// Opens or creates the destination and its directory for incomplete files.
    pub(super) fn open_or_create(path: &Path) -> Result<Self, SyncError> {
        fs::create_dir_all(path).map_err(|why| no_directory(path, why))?;
        let root = rustix::fs::open(path, DIRECTORY & !OFlags::NOFOLLOW, Mode::empty());
        let root = root.map_err(|why| no_directory(path, why.into()))?;
        let staging_path = path.join(STAGING);
        let refused = |why: rustix::io::Errno| io_error(&staging_path)(why.into());
        make(&root, STAGING.as_ref(), 0o700).map_err(refused)?;
        let staging = openat(&root, STAGING, DIRECTORY, Mode::empty()).map_err(refused)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&staging, LOCK, flags, Mode::from_raw_mode(0o600)).map_err(refused)?;
        let lock = File::from(lock);
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(SyncError::Busy(path.to_owned())),
            Err(fs::TryLockError::Error(why)) => return Err(io_error(&staging_path)(why)),
        }
        let lock = Some(DestinationLock(lock));
        Ok(Self { root, staging, staging_path, _lock: lock, scratch: None })
    }

    /// Opens the destination, if it exists, to change nothing in it.
    pub(super) fn look_at(path: &Path) -> Result<Self, SyncError> {
        let temporary = std::env::temp_dir();
        let scratch = TempDir::new().map_err(io_error(&temporary))?;
        let open =
            |path: &Path| rustix::fs::open(path, DIRECTORY & !OFlags::NOFOLLOW, Mode::empty());
        let staging = open(scratch.path()).map_err(|why| io_error(&temporary)(why.into()))?;
        let root = match open(path) {
            Err(rustix::io::Errno::NOENT) => {
                let empty = scratch.path().join(STAGING);
                fs::create_dir(&empty).map_err(io_error(&temporary))?;
                open(&empty)
            }
            result => result,
        };
        let root = root.map_err(|why| no_directory(path, why.into()))?;
        let staging_path = scratch.path().to_owned();
        Ok(Self { root, staging, staging_path, _lock: None, scratch: Some(scratch) })
    }

    /// The knowledge of the files.
    pub(super) fn state(&self) -> io::Result<InstalledState> {
        if self.scratch.is_none() {
            return Ok(InstalledState::load(self.staging.try_clone()?, true));
        }
        let staging = openat(&self.root, STAGING, DIRECTORY, Mode::empty());
        let staging = staging.map_or_else(|_| self.staging.try_clone(), Ok)?;
        Ok(InstalledState::load(staging, false))
    }

    /// The path of an incomplete file of this name.
    pub(super) fn staged(&self, name: &str) -> PathBuf {
        self.staging_path.join(name)
    }

    /// The names of the files in the directory for incomplete ones.
    pub(super) fn staged_names(&self) -> Vec<Vec<u8>> {
        let entries = Dir::read_from(&self.staging).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_bytes().to_vec()).collect()
    }

    /// Opens a file in the directory for incomplete ones.
    pub(super) fn staged_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.staging, name, flags, Mode::empty())?.into())
    }

    /// The paths of incomplete files, which are of any version.
    pub(super) fn staged_files(&self) -> Vec<Vec<u8>> {
        let names = Dir::read_from(&self.staging).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_bytes().to_vec());
        let parts = names.filter(|name| name.ends_with(b".levada-part"));
        parts.map(|name| [STAGING.as_bytes(), b"/", &name].concat()).collect()
    }

    /// Whether the file system ignores the case of names.
    pub(super) fn ignores_case(&self) -> bool {
        statat(&self.root, STAGING.to_ascii_uppercase(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
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

    /// Opens a file or a directory for reading.
    pub(super) fn open(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let (parent, name) = self.parent(path, false)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&parent, name, flags, Mode::empty())?)
    }

    /// Opens a file for reading.
    pub(super) fn file(&self, path: &[u8]) -> io::Result<File> {
        self.open(path).map(File::from)
    }

    /// Creates an incomplete file.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.staging, name, flags, Mode::from_raw_mode(0o600))?.into())
    }

    /// Writes a file in its own directory, where it has no name before it is complete, and gives it the name.
    /// File systems lay out the files of a directory near each other, which those of `staging` are not. `staged` is a
    /// free name in that one, for the moment before the new file replaces an old one.
    ///
    /// # Errors
    /// That of the file system, which may have no files without names, or no /proc to name them.
    pub(super) fn write(
        &self,
        path: &[u8],
        staged: &str,
        bytes: &[u8],
        attributes: &Attributes,
    ) -> io::Result<Stat> {
        let (parent, last) = self.parent(path, true)?;
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = File::from(openat(&parent, ".", flags, Mode::from_raw_mode(0o600))?);
        file.write_all(bytes)?;
        attributes.set(&file)?;
        let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
        let name = |directory: &OwnedFd, name: &OsStr| {
            linkat(CWD, &nameless, directory, name, AtFlags::SYMLINK_FOLLOW)
        };
        match name(&parent, last) {
            Err(rustix::io::Errno::EXIST) => {
                name(&self.staging, staged.as_ref())?;
                renameat(&self.staging, staged, &parent, last)?;
            }
            result => result?,
        }
        // A new name changes the time of the inode's change.
        Ok(fstat(&file)?)
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

    /// Moves a complete file to its path, with its attributes, and returns its state there.
    pub(super) fn put(
        &self,
        name: &str,
        path: &[u8],
        attributes: &Attributes,
        is_sparse: bool,
    ) -> io::Result<Stat> {
        let file = self.staged_file(name)?;
        if is_sparse {
            sparse::punch(&file)?;
        }
        attributes.set(&file)?;
        let (parent, last) = self.parent(path, true)?;
        renameat(&self.staging, name, &parent, last).map_err(|why| odd(path, why))?;
        // A rename changes the time of the inode's change.
        Ok(fstat(&file)?)
    }

    /// Creates a link.
    pub(super) fn link(
        &self,
        path: &[u8],
        target: &[u8],
        attributes: &Attributes,
    ) -> io::Result<()> {
        let _ = unlinkat(&self.staging, LINK, AtFlags::empty());
        symlinkat(target, &self.staging, LINK)?;
        attributes.set_link(&self.staging, LINK.as_ref())?;
        let (parent, last) = self.parent(path, true)?;
        renameat(&self.staging, LINK, &parent, last).map_err(|why| odd(path, why))
    }

    /// Gives the file at `first` another name.
    pub(super) fn add_name(&self, path: &[u8], first: &[u8]) -> io::Result<()> {
        let _ = unlinkat(&self.staging, LINK, AtFlags::empty());
        let (parent, last) = self.parent(first, false)?;
        linkat(&parent, last, &self.staging, LINK, AtFlags::empty())?;
        let (parent, last) = self.parent(path, true)?;
        renameat(&self.staging, LINK, &parent, last).map_err(|why| odd(path, why))
    }

    /// Sets the attributes of an existing link.
    pub(super) fn dress_link(&self, path: &[u8], attributes: &Attributes) -> io::Result<()> {
        let (parent, name) = self.parent(path, false)?;
        attributes.set_link(&parent, name)
    }

    /// Creates a directory that can be written to; its attributes are set later.
    pub(super) fn directory(&self, path: &[u8]) -> io::Result<()> {
        let (parent, last) = self.parent(path, true)?;
        make(&parent, last, 0o755)?;
        let directory =
            openat(&parent, last, DIRECTORY, Mode::empty()).map_err(|why| odd(path, why))?;
        let mode = fstat(&directory)?.st_mode & 0o7777;
        if mode & WRITABLE != WRITABLE {
            fchmod(&directory, Mode::from_raw_mode(mode | WRITABLE))?;
        }
        Ok(())
    }

    /// Sets the attributes of a directory if it does not have them.
    pub(super) fn dress_directory(&self, path: &[u8], attributes: &Attributes) -> io::Result<()> {
        let (parent, last) = self.parent(path, false)?;
        let directory = openat(&parent, last, DIRECTORY, Mode::empty())?;
        if !attributes.fit(&fstat(&directory)?) || !attributes.fit_file(&directory)? {
            attributes.set(&directory)?;
        }
        Ok(())
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
    pub(super) fn clean(&self) {
        for name in self.staged_names() {
            if name != LOCK.as_bytes() && name != STATE.as_bytes() {
                let _ = unlinkat(&self.staging, name.as_slice(), AtFlags::empty());
            }
        }
    }

    /// Writes all bytes to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    /// The parent directory of `path`, and its last part.
    fn parent<'p>(&self, path: &'p [u8], create: bool) -> io::Result<(OwnedFd, &'p OsStr)> {
        let mut directory = self.root.try_clone()?;
        let mut parts = path.split(|&byte| byte == b'/').map(OsStr::from_bytes).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return Ok((directory, part));
            }
            let open = || openat(&directory, part, DIRECTORY, Mode::empty());
            let next = match open() {
                Err(rustix::io::Errno::NOENT) if create => {
                    make(&directory, part, 0o755)?;
                    open()
                }
                result => result,
            };
            directory = next.map_err(|why| odd(part.as_bytes(), why))?;
        }
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// Looks at entries in the order of their paths, so that a directory is opened once for many of them.
pub(super) struct OrderedLook<'a> {
    tree: &'a Destination,
    /// The last directory, and whether there is one.
    directory: Option<(Vec<u8>, Option<OwnedFd>)>,
}

impl<'a> OrderedLook<'a> {
    pub(super) fn new(tree: &'a Destination) -> Self {
        Self { tree, directory: None }
    }

    /// The entry at `path`. A path through a link counts as absent.
    pub(super) fn stat(&mut self, path: &[u8]) -> Option<Stat> {
        let end = path.iter().rposition(|&byte| byte == b'/');
        let (directory, name) = end.map_or((&path[..0], path), |at| (&path[..at], &path[at + 1..]));
        if self.directory.as_ref().is_none_or(|(known, _)| known != directory) {
            let open = self.tree.parent(path, false).ok().map(|(parent, _)| parent);
            self.directory = Some((directory.to_vec(), open));
        }
        let (_, open) = self.directory.as_ref()?;
        statat(open.as_ref()?, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()
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

fn no_directory(path: &Path, why: io::Error) -> SyncError {
    match why.kind() {
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            SyncError::NoDirectory(path.to_owned())
        }
        _ => io_error(path)(why),
    }
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
/// The permissions of the owner that a directory needs while its entries change.
const WRITABLE: u32 = 0o700;
