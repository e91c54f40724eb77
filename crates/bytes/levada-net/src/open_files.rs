//! The number of files and sockets that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of open files and sockets; `None` where the system does not say.
pub fn count() -> Option<u64> {
    // The directory itself is open while it is read.
    std::fs::read_dir("/proc/self/fd").ok().map(|files| (files.count() as u64).saturating_sub(1))
}

/// The limit that holds now; `None` if there is none.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the soft limit to the hard one and returns the limit that now holds, `None` if there is none.
///
/// Programs that use `select` cannot have file descriptors above 1023, which is why the soft limit is low on most
/// systems. This process uses `epoll`.
pub fn raise_limit() -> Option<u64> {
    let now = getrlimit(Resource::Nofile);
    // A process may always raise its soft limit; if the system says otherwise, the old limit holds.
    match setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum }) {
        Ok(()) => now.maximum,
        Err(_) => now.current,
    }
}
