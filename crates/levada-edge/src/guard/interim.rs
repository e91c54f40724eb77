//! Interim responses (1xx) on their way to an HTTP/1.1 client.
//!
//! A proxy passes them on (RFC 9110 Sec. 15.2), but the HTTP implementation sends final responses only.
//! So they go past it: whoever asks a server leaves them here, and the guard writes them where they
//! belong, after everything of the response before and before anything of the one that they announce.
//! They are hints: one that cannot be written there is let go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

/// Bytes of interim responses that may wait to be written.
const MOST: usize = 16 << 10;

/// The interim responses of one connection.
#[derive(Debug, Default)]
pub(crate) struct Interims {
    /// Whether there is something to be written.
    waiting: AtomicBool,
    state: Mutex<InterimState>,
}

#[derive(Debug, Default)]
struct InterimState {
    /// The number of the request that is being answered.
    turn: u64,
    /// Whether its final response is still to come.
    open: bool,
    bytes: Vec<u8>,
    guard: Option<Waker>,
}

/// Where the interim responses to one request go.
#[derive(Clone, Debug)]
pub(crate) struct Interim {
    all: Arc<Interims>,
    turn: u64,
}

impl Interims {
    /// A request is being answered whose client understands interim responses.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock();
        state.turn += 1;
        state.open = true;
        state.bytes.clear();
        self.waiting.store(false, Ordering::Release);
    }

    /// Its final response is there.
    pub(crate) fn end(&self) {
        self.state.lock().open = false;
    }

    /// For those who ask servers on behalf of the request that is being answered.
    pub(crate) fn of_this_request(self: &Arc<Self>) -> Option<Interim> {
        let state = self.state.lock();
        state.open.then(|| Interim { all: self.clone(), turn: state.turn })
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// What is to be written.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut state = self.state.lock();
        self.waiting.store(false, Ordering::Release);
        std::mem::take(&mut state.bytes)
    }

    /// Whom to wake when there is something, as long as there may be.
    pub(super) fn notify(&self, guard: &Waker) {
        let mut state = self.state.lock();
        if state.open {
            state.guard = Some(guard.clone());
        }
    }
}

impl Interim {
    /// Passes a server's interim response on, without what ends at this node.
    pub(crate) fn pass(&self, status: StatusCode, headers: &HeaderMap) {
        // This node answers expectations itself, and asks nobody for another protocol.
        if matches!(status, StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
            return;
        }
        let mut headers = headers.clone();
        levada_cache::strip_response(&mut headers);
        let reason = status.canonical_reason().unwrap_or_default();
        let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
        for (name, value) in &headers {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
        head.extend_from_slice(b"\r\n");
        let mut state = self.all.state.lock();
        if !state.open || state.turn != self.turn || state.bytes.len() + head.len() > MOST {
            return;
        }
        state.bytes.extend_from_slice(&head);
        self.all.waiting.store(true, Ordering::Release);
        if let Some(guard) = state.guard.take() {
            guard.wake();
        }
    }
}
