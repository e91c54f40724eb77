//! Whether a file is in the page cache.

use std::{io, os::fd::AsFd};

/// Whether all pages of the first `length` bytes of `file` are in the page cache, so that reading
/// or sending them does not wait for a disk. Takes one system call for any length (`cachestat`,
/// Linux 6.5).
///
/// # Errors
/// When the system is older, or the file is not ours.
pub fn is_cached(file: &impl AsFd, length: u64) -> io::Result<bool> {
    are_cached(file, 0..length)
}

/// The same for these bytes of `file`.
///
/// # Errors
/// When the system is older, or the file is not ours.
#[cfg(target_os = "linux")]
pub fn are_cached(file: &impl AsFd, bytes: std::ops::Range<u64>) -> io::Result<bool> {
    use std::os::fd::AsRawFd as _;

    #[repr(C)]
    struct Range {
        from: u64,
        length: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Pages {
        cached: u64,
        dirty: u64,
        written_back: u64,
        evicted: u64,
        lately_evicted: u64,
    }
    let range = Range { from: bytes.start, length: bytes.end.saturating_sub(bytes.start) };
    let mut pages = Pages::default();
    // SAFETY: the kernel reads `range` and writes `pages`, which have its layout
    // (uapi/linux/mman.h); the descriptor is open while it is borrowed.
    #[expect(unsafe_code)]
    let status = unsafe {
        libc::syscall(CACHESTAT, file.as_fd().as_raw_fd(), &raw const range, &raw mut pages, 0)
    };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    let page = rustix::param::page_size() as u64;
    Ok(pages.cached >= bytes.end.div_ceil(page).saturating_sub(bytes.start / page))
}

/// The number of the system call, the same on every architecture.
#[cfg(target_os = "linux")]
const CACHESTAT: libc::c_long = 451;

/// Whether these bytes of `file` are in memory.
///
/// # Errors
/// Always: this system does not provide it.
#[cfg(not(target_os = "linux"))]
pub fn are_cached(_file: &impl AsFd, _bytes: std::ops::Range<u64>) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{io::Write as _, os::unix::fs::FileExt as _};

    use super::*;

    #[test]
    fn what_was_just_written_is_in_memory_and_what_was_let_go_is_not() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let length = 1_000_001;
        file.write_all(&vec![7; length]).unwrap();
        file.sync_all().unwrap();
        match is_cached(&file, length as u64) {
            Ok(all) => assert!(all),
            Err(error) => {
                return levada_skip::skipped(format_args!("this system does not tell: {error}"));
            }
        }
        let all = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(&file, 0, None, all).unwrap();
        assert!(!is_cached(&file, length as u64).unwrap());
        file.read_exact_at(&mut [0], 8 * 4096 + 1).unwrap();
        assert!(are_cached(&file, 8 * 4096 + 1..8 * 4096 + 2).unwrap());
    }
}
