//! Notices of a peer that a request waits for its turn at the origin (102 Processing, RFC 2518 Sec. 10.1), as the
//! node that sent the request takes them in.
//!
//! A node that would wait elsewhere for the same origin gains nothing when it asks another peer. So the time in
//! which notices come counts for no timeout.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use crate::{UpstreamHead, request::pass_interim};

/// Notices come every second. When three are missing, they have ended.
const RECENT: Duration = Duration::from_secs(3);

/// The notices about one request.
#[derive(Debug, Default)]
pub struct WaitNotices {
    last: Mutex<Option<Instant>>,
    /// Whether one came since the timeout last started.
    fresh: AtomicBool,
}

impl WaitNotices {
    /// Takes one in.
    pub fn note(&self) {
        *self.last.lock() = Some(Instant::now());
        self.fresh.store(true, Relaxed);
    }

    /// Whether the request waits, by the last notice.
    pub fn are_recent(&self) -> bool {
        self.last.lock().is_some_and(|last| last.elapsed() < RECENT)
    }

    /// Whether the timeout for the response starts again.
    pub(crate) fn excuse(&self) -> bool {
        self.fresh.swap(false, Relaxed)
    }
}

/// Takes in an interim response: a notice, or one to pass on to the client.
pub(crate) fn take_interim(head: &UpstreamHead, status: StatusCode, headers: &HeaderMap) {
    match (&head.notices, &head.interim) {
        (Some(notices), _) if status == StatusCode::PROCESSING => notices.note(),
        (None, Some(interim)) => pass_interim(interim, status, headers),
        _ => {}
    }
}
