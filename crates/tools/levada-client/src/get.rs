//! `levada get`: fetches one complete file of one version; the file gets its name only when it is
//! complete.

mod flight;
mod head;
mod lane;
mod name;
mod pace;
mod range;
mod report;
mod seed;
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
pub use report::{ConnectionReport, DisconnectReason, GetReport};
pub use target::TargetError;

pub(crate) use pace::RateLimiter;
pub(crate) use range::FileRange;
pub(crate) use seed::seed;
pub(crate) use target::boot;

use crate::connect::ConnectError;

/// The file to fetch, and how to fetch it.
#[derive(Clone, Debug)]
pub struct GetRequest {
    /// The URL of the file.
    pub url: Uri,
    /// The path on disk.
    pub path: PathBuf,
    /// Whether the server may choose the name (`Content-Disposition`), within the directory of
    /// `path`. An existing file of that name is not replaced.
    pub server_names: bool,
    /// Whether an existing file is taken as the beginning of the file.
    pub adopt: bool,
    /// Whether to ignore the state of earlier runs.
    pub restart: bool,
    /// The number of parallel connections.
    pub connections: u32,
    /// Whether more connections may be opened when the route has moved.
    pub spreads: bool,
    /// The number of pieces at the beginning.
    pub pieces: u32,
    /// The least size of a piece.
    pub least_piece: u64,
    /// The expected digest.
    pub digest: Option<Digest>,
    /// The expected length.
    pub length: Option<u64>,
    /// Additional fields of each request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How many outages are waited for.
    pub retries: u32,
    /// The limit of consecutive connections of a lane without notable progress.
    pub hopeless: u32,
    /// How long a body may stall; derived from the transfer if it is not given.
    pub stall: Option<Duration>,
    /// The time limit of the transfer.
    pub max_time: Option<Duration>,
    /// The most redirects that are followed.
    pub redirects: u32,
    /// Whether the file is synced to disk before it gets its name.
    pub fsync: bool,
}

impl GetRequest {
    /// A request for `url` to `path`, with default values otherwise.
    pub fn new(url: Uri, path: PathBuf) -> Self {
        Self {
            url,
            path,
            server_names: false,
            adopt: false,
            restart: false,
            connections: 1,
            spreads: true,
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

/// The progress of a transfer. Can be read at any time, and can stop the transfer.
#[derive(Debug)]
pub struct DownloadProgress {
    total: AtomicU64,
    held: AtomicU64,
    stop: AtomicBool,
    stopped: tokio::sync::Notify,
}

impl Default for DownloadProgress {
    fn default() -> Self {
        Self {
            total: AtomicU64::new(u64::MAX),
            held: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            stopped: tokio::sync::Notify::new(),
        }
    }
}

impl DownloadProgress {
    /// The length of the file, once it is known.
    pub fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|&total| total != u64::MAX)
    }

    /// The bytes on disk.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Stops the transfer and keeps the bytes on disk.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.stopped.notify_waiters();
        self.stopped.notify_one();
    }

    pub(crate) fn set(&self, total: Option<u64>, held: u64) {
        self.total.store(total.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.held.store(held, Ordering::Relaxed);
    }

    pub(crate) async fn until_stopped(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            self.stopped.notified().await;
        }
    }
}

/// The reason why a file was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// A file on disk is in the way.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server is unavailable now.
    #[error("the server answered {status}; --retry waits for it")]
    Unavailable {
        /// The status of the response.
        status: u16,
    },
    /// The resume state machine gave up.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// The time limit was exceeded.
    #[error("not complete within --max-time {} s", .0.as_secs_f64())]
    TooLong(Duration),
    /// A part of a file cannot be fetched without the rest.
    #[error("the server does not serve ranges of files")]
    NoRanges,
    /// The transfer was stopped.
    #[error("interrupted")]
    Stopped,
    /// There were too many redirects.
    #[error("more than {0} redirects; the last one leads to {1}")]
    Redirects(u32, Uri),
    /// A redirect has no valid target.
    #[error("the server redirects from {0} to a URL that is not valid")]
    Nowhere(Uri),
    /// A redirect leads from https to http.
    #[error("the server redirects from https to {0}: use --checksum to verify the file")]
    Insecure(Uri),
}
