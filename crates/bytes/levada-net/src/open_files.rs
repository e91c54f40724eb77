//! The number of files and sockets that this process may have open.

use std::{io, time::Duration};

use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use tokio::time::{Instant, sleep};

/// How long to wait for a free file: connections that give way close within milliseconds, on a busy machine later.
const FREE_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait between two attempts.
const FREE_BACKOFF: Duration = Duration::from_millis(2);

/// Whether an error says that no more files can be opened.
pub fn ran_out(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Opens a socket. Where no more files can be opened, waits for a while: a listener that has accepted the last one
/// has had connections that rest give way ([`crate::incoming`]), and these are closing.
///
/// # Errors
/// The errors of `open`.
pub async fn when_one_is_free<T, F>(open: impl Fn() -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let until = Instant::now() + FREE_TIMEOUT;
    loop {
        match open().await {
            Err(error) if ran_out(&error) && Instant::now() < until => sleep(FREE_BACKOFF).await,
            opened => return opened,
        }
    }
}

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
