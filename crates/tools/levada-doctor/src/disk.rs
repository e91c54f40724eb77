//! The directory of the cache on disk: whether it can be written, its space and its speed.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use levada_config::DiskCache;
use levada_types::ByteSize;
use rustix::fs::statvfs;

use crate::Finding;

/// The bytes that are written, and the time that this may take.
const WRITTEN: usize = 16 << 20;
/// The time after which a slow disk has been measured well enough.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
const PIECE: usize = 1 << 20;
/// A disk slower than this is behind a link of 100 Mbit/s.
const SLOW: f64 = 12.5e6;
/// Entries of an existing cache that are counted; more are an estimate from below.
const COUNTED: usize = 200_000;

pub(crate) fn check(cache: &DiskCache) -> Finding {
    let check = format!("disk {}", cache.path.display());
    // A node makes the directory if it is missing.
    let Some(directory) = cache.path.ancestors().find(|path| path.is_dir()) else {
        return Finding::fail(check, "there is no such directory, nor any above it");
    };
    let written = match write(directory) {
        Ok(written) => written,
        Err(error) => return unwritable(check, directory, &cache.path, &error),
    };
    match space(directory) {
        Ok(space) => judge(check, cache, &space, held(&cache.path), &written),
        Err(error) => Finding::skip(check, format!("the system does not tell its space: {error}")),
    }
}

fn unwritable(check: String, directory: &Path, path: &Path, error: &io::Error) -> Finding {
    let (meaning, remedy) = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (
            "the node stores nothing on disk until there is room",
            format!("df -h {0}; df -i {0}", directory.display()),
        ),
        io::ErrorKind::ReadOnlyFilesystem => (
            "the node stores nothing on disk",
            format!("mount -o remount,rw {}", directory.display()),
        ),
        _ => (
            "the node does not start, or stores nothing on disk",
            format!("install -d -m 0700 -o levada {}", path.display()),
        ),
    };
    Finding::fail(check, format!("cannot be written: {error}")).meaning(meaning).remedy(remedy)
}

/// The speed of the disk.
struct Written {
    bytes: usize,
    took: Duration,
    /// The time of the last `fdatasync`.
    synced: Duration,
}

/// Writes a temporary file and waits until it is on the disk. The file is removed in any case: it has no name.
fn write(directory: &Path) -> io::Result<Written> {
    let mut file = tempfile::tempfile_in(directory)?;
    let (begun, piece) = (Instant::now(), vec![0x5a; PIECE]);
    let mut bytes = 0;
    let mut synced = Duration::ZERO;
    while bytes < WRITTEN && begun.elapsed() < WRITE_TIMEOUT {
        file.write_all(&piece)?;
        synced = sync(&file)?;
        bytes += PIECE;
    }
    Ok(Written { bytes, took: begun.elapsed(), synced })
}

fn sync(file: &File) -> io::Result<Duration> {
    let begun = Instant::now();
    file.sync_data()?;
    Ok(begun.elapsed())
}

struct Space {
    free: u64,
    total: u64,
    free_files: u64,
    files: u64,
}

fn space(directory: &Path) -> io::Result<Space> {
    let found = statvfs(directory)?;
    Ok(Space {
        free: found.f_bavail.saturating_mul(found.f_frsize),
        total: found.f_blocks.saturating_mul(found.f_frsize),
        free_files: found.f_favail,
        files: found.f_files,
    })
}

/// Bytes that the cache has already. They count as free, since the node uses them again.
fn held(path: &Path) -> u64 {
    let (mut held, mut counted, mut directories) = (0, 0, vec![path.to_owned()]);
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            counted += 1;
            if counted > COUNTED {
                return held;
            }
            let Ok(about) = entry.metadata() else { continue };
            match about.is_dir() {
                true => directories.push(entry.path()),
                false => held += about.len(),
            }
        }
    }
    held
}

fn judge(check: String, cache: &DiskCache, space: &Space, held: u64, written: &Written) -> Finding {
    let rate = written.bytes as f64 / written.took.as_secs_f64().max(1e-6);
    let room = space.free.saturating_add(held);
    let seen = format!(
        "{} free of {}, `size` is {}; writes {}/s, fdatasync takes {:.1} ms",
        ByteSize(space.free),
        ByteSize(space.total),
        ByteSize(cache.size),
        ByteSize(rate as u64),
        written.synced.as_secs_f64() * 1e3,
    );
    if cache.size > room {
        let smaller = ByteSize(room / 10 * 9);
        return Finding::fail(check, seen)
            .meaning(format!(
                "the disk is full before the cache is: {} and the {} that it has already is all there is",
                ByteSize(space.free), ByteSize(held)
            ))
            .remedy(format!("size = \"{smaller}\" in [cache.disk], or a larger disk"));
    }
    // Some file systems have no such limit and say 0.
    if space.files > 0 && space.free_files < cache.size / LARGE_FILE {
        return Finding::warn(check, seen)
            .meaning(format!(
                "the file system has room for {} more files only, and each entry is one",
                space.free_files
            ))
            .remedy(format!("df -i {}, and a file system with more inodes", cache.path.display()));
    }
    if rate < SLOW {
        return Finding::warn(check, seen)
            .meaning("what is fetched faster than the disk writes is kept in memory only")
            .remedy("a faster disk; `levada_cache_disk_dropped_total` counts what is not written");
    }
    Finding::ok(check, seen)
}

/// The largest entries are about so long (`cache.block`): a cache of them needs the fewest files.
const LARGE_FILE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    fn cache(path: &Path, size: u64) -> DiskCache {
        DiskCache { path: path.to_owned(), size }
    }

    #[test]
    fn directory_that_does_not_exist_yet_is_checked_above() {
        let above = tempfile::tempdir().unwrap();
        let finding = check(&cache(&above.path().join("a/b"), 1 << 20));
        assert_ne!(finding.level, Level::Fail, "{finding:?}");
        assert_eq!(fs::read_dir(above.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn size_beyond_the_disk_fails_and_what_the_cache_has_counts() {
        let directory = tempfile::tempdir().unwrap();
        let finding = check(&cache(directory.path(), u64::MAX));
        assert_eq!(finding.level, Level::Fail, "{finding:?}");
        assert!(finding.meaning.unwrap().contains("before the cache is"));
        fs::create_dir(directory.path().join("00")).unwrap();
        fs::write(directory.path().join("00/entry"), [0; 5000]).unwrap();
        assert_eq!(held(directory.path()), 5000);
    }

    #[test]
    fn slow_disk_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let space = Space { free: 1 << 40, total: 1 << 40, free_files: 1 << 30, files: 1 << 30 };
        let took = |seconds| Written {
            bytes: WRITTEN,
            took: Duration::from_secs(seconds),
            synced: Duration::from_millis(100),
        };
        let cache = cache(directory.path(), 1 << 30);
        let level = |seconds| judge("disk".to_owned(), &cache, &space, 0, &took(seconds)).level;
        assert_eq!((level(1), level(2)), (Level::Ok, Level::Warn));
        let few = Space { free_files: 10, ..space };
        assert_eq!(judge("disk".to_owned(), &cache, &few, 0, &took(1)).level, Level::Warn);
    }
}
