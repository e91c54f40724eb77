//! Opening files below a directory: no link leads out of it, and no file that is not regular is waited for.

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2},
    io::Errno,
};

/// Whether a call may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// It fails with [`Errno::AGAIN`] where it would have to.
    Refused,
    Allowed,
}

/// An open directory below which files are opened.
pub(crate) struct Root {
    directory: OwnedFd,
    outside_links: bool,
    blocking: Blocking,
}

/// A regular file.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: Arc<File>,
    pub(crate) state: FileState,
    /// Its number and the time of its last change of any kind, which tell versions apart whose times of
    /// modification were made equal.
    pub(crate) inode: (u64, i64, u32),
}

/// Changes whenever the bytes of a file do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) size: u64,
    /// The time of the last modification: seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
}

/// The end of a path.
pub(crate) enum Opened {
    File(OpenFile),
    Directory,
    /// A device, a pipe or a socket.
    Other,
}

/// The most times that a lookup is tried again after others have renamed directories.
const TRIES: u32 = 8;

impl Root {
    /// Opens the directory, wherever its path leads to now.
    pub(crate) fn open(
        path: &Path,
        outside_links: bool,
        blocking: Blocking,
    ) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match lookup(CWD, path, flags, (false, blocking)) {
            Err(Errno::NOSYS | Errno::PERM) => openat(CWD, path, flags, Mode::empty())?,
            opened => opened?,
        };
        Ok(Self { directory, outside_links, blocking })
    }

    /// Opens a path of names, none of which is `..`.
    pub(crate) fn look(&self, path: &str) -> Result<Opened, Errno> {
        let is_bound = !self.outside_links;
        let opened = match lookup(&self.directory, path.as_ref(), READ, (is_bound, self.blocking)) {
            // Without the system call, or in a sandbox that does not know it.
            Err(Errno::NOSYS | Errno::PERM) => self.walk(path),
            opened => opened,
        };
        let file = File::from(opened?);
        let found = fstat(&file)?;
        Ok(match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Opened::File(OpenFile {
                state: FileState::of(&found),
                inode: (found.st_ino, found.st_ctime, found.st_ctime_nsec as u32),
                file: Arc::new(file),
            }),
            FileType::Directory => Opened::Directory,
            _ => Opened::Other,
        })
    }

    /// Opens a directory, by names none of which is `..`; the root itself by an empty path.
    pub(crate) fn directory(&self, path: &str) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { "." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match lookup(&self.directory, path.as_ref(), flags, (!self.outside_links, self.blocking)) {
            Err(Errno::NOSYS | Errno::PERM) => self.walk(path),
            opened => opened,
        }
    }

    /// Opens a path name by name, and follows no links.
    fn walk(&self, path: &str) -> Result<OwnedFd, Errno> {
        if self.outside_links {
            return openat(&self.directory, path, READ, Mode::empty());
        }
        let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut at = None;
        for name in directories.split('/').filter(|name| !name.is_empty()) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let from = at.as_ref().unwrap_or(&self.directory);
            at = Some(openat(from, name, flags, Mode::empty())?);
        }
        let from = at.as_ref().unwrap_or(&self.directory);
        openat(from, name, READ | OFlags::NOFOLLOW, Mode::empty())
    }
}

/// A pipe without a writer would be waited for, and a terminal would become this process's own.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

fn lookup(
    from: impl AsFd,
    path: &Path,
    flags: OFlags,
    (is_bound, blocking): (bool, Blocking),
) -> Result<OwnedFd, Errno> {
    let mut how = ResolveFlags::NO_MAGICLINKS;
    how.set(ResolveFlags::BENEATH, is_bound);
    how.set(ResolveFlags::CACHED, blocking == Blocking::Refused);
    let mut tries = TRIES;
    loop {
        match openat2(&from, path, flags, Mode::empty(), how) {
            Err(Errno::AGAIN) if blocking == Blocking::Allowed && tries > 0 => tries -= 1,
            // An old kernel, whose way may have to wait.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) if blocking == Blocking::Refused => {
                return Err(Errno::AGAIN);
            }
            opened => return opened,
        }
    }
}

impl FileState {
    fn of(found: &rustix::fs::Stat) -> Self {
        let modified = (found.st_mtime, found.st_mtime_nsec as u32);
        Self { size: u64::try_from(found.st_size).unwrap_or_default(), modified }
    }
}

impl OpenFile {
    /// Whether the file is still what it was when it was opened.
    pub(crate) fn is_unchanged(&self) -> bool {
        fstat(&self.file).is_ok_and(|found| FileState::of(&found) == self.state)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn world() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "inside").unwrap();
        fs::write(directory.path().join("secret"), "outside").unwrap();
        symlink("a/b/file", root.join("inner")).unwrap();
        symlink("../secret", root.join("outer")).unwrap();
        symlink(directory.path(), root.join("up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let root = Root::open(&root, false, Blocking::Allowed).unwrap();
        (directory, root)
    }

    #[test]
    fn links_are_followed_below_the_root_only() {
        let (_directory, root) = world();
        assert!(matches!(root.look("a/b/file"), Ok(Opened::File(_))));
        assert!(matches!(root.look("a/b"), Ok(Opened::Directory)));
        assert!(matches!(root.look("inner"), Ok(Opened::File(_))));
        for path in ["outer", "up", "up/secret", "up/root/a/b/file", "loop"] {
            assert!(root.look(path).is_err(), "{path}");
        }
        let root = Root { outside_links: true, ..root };
        for path in ["outer", "up/secret"] {
            assert!(matches!(root.look(path), Ok(Opened::File(_))), "{path}");
        }
    }

    #[test]
    fn walk_without_the_system_call_follows_no_link() {
        let (_directory, root) = world();
        assert!(root.walk("a/b/file").is_ok());
        for path in ["inner", "outer", "up/secret", "loop", "a/nothing", "a/b/file/x"] {
            assert!(root.walk(path).is_err(), "{path}");
        }
    }
}
