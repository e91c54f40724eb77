//! `levada get`: one file, whole, of one version, under its name only when it is.

mod head;
mod lane;
mod name;
mod pace;
mod report;
mod target;
mod transfer;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Uri};
use levada_fetch::{Digest, resume::Trouble};

pub use name::{content_disposition, name_from_url};
pub use report::{Connection, Ended, GetReport};
pub use target::TargetError;

pub(crate) use name::percent_decode;
pub(crate) use pace::Pace;

use crate::connect::ConnectError;

/// What to fetch, and how.
#[derive(Clone, Debug)]
pub struct GetRequest {
    /// Where it is.
    pub url: Uri,
    /// Where it shall be.
    pub path: PathBuf,
    /// The server may name the file (`Content-Disposition`), within the directory of `path`. A file of
    /// that name is not replaced.
    pub server_names: bool,
    /// A file that is already there is the beginning of it.
    pub adopt: bool,
    /// Nothing that an earlier run has left is used.
    pub restart: bool,
    /// Connections at once.
    pub connections: u32,
    /// Pieces that it is divided into at first.
    pub pieces: u32,
    /// No piece is smaller.
    pub least_piece: u64,
    /// The digest that it must have.
    pub digest: Option<Digest>,
    /// The length that it must have.
    pub length: Option<u64>,
    /// Further fields of each request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How often an outage is waited for.
    pub retries: u32,
    /// How many connections in a row may bring nothing to speak of.
    pub hopeless: u32,
    /// How long a body may keep silent; learnt from the transfer where it is not given.
    pub stall: Option<Duration>,
    /// How long the transfer may take.
    pub max_time: Option<Duration>,
    /// How many redirects are followed.
    pub redirects: u32,
    /// The file is on the disk itself before it gets its name.
    pub fsync: bool,
}

impl GetRequest {
    /// `url` to `path`, otherwise as by default.
    pub fn new(url: Uri, path: PathBuf) -> Self {
        Self {
            url,
            path,
            server_names: false,
            adopt: false,
            restart: false,
            connections: 1,
            pieces: 1,
            least_piece: 1 << 20,
            digest: None,
            length: None,
            headers: Vec::new(),
            retries: 0,
            hopeless: 10,
            stall: None,
            max_time: None,
            redirects: 20,
            fsync: false,
        }
    }
}

/// How far a transfer is; may be read at any time, and stops it.
#[derive(Debug)]
pub struct Progress {
    total: AtomicU64,
    held: AtomicU64,
    stop: AtomicBool,
    stopped: tokio::sync::Notify,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            total: AtomicU64::new(u64::MAX),
            held: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            stopped: tokio::sync::Notify::new(),
        }
    }
}

impl Progress {
    /// The length of the file, once it is known.
    pub fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|&total| total != u64::MAX)
    }

    /// Bytes that are here.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Ends the transfer, what is here being kept.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.stopped.notify_waiters();
        self.stopped.notify_one();
    }

    fn set(&self, total: Option<u64>, held: u64) {
        self.total.store(total.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.held.store(held, Ordering::Relaxed);
    }

    async fn until_stopped(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            self.stopped.notified().await;
        }
    }
}

/// Why a file was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// What is on disk stands in the way.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server cannot serve now.
    #[error("the server answered {status}; --retry waits for it")]
    Unavailable {
        /// What it answered.
        status: u16,
    },
    /// The state machine has given up.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// It took longer than it may.
    #[error("not complete within --max-time {} s", .0.as_secs_f64())]
    TooLong(Duration),
    /// It was stopped.
    #[error("interrupted")]
    Stopped,
    /// More redirects than are followed.
    #[error("more than {0} redirects; the last one leads to {1}")]
    Redirects(u32, Uri),
    /// A redirect that leads nowhere.
    #[error("the server redirects from {0}, but not to a place that can be asked")]
    Nowhere(Uri),
    /// A redirect that leaves https.
    #[error(
        "the server redirects from https to {0}: --checksum would show whether that is the file"
    )]
    Insecure(Uri),
}
