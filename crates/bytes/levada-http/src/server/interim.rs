//! Interim responses (1xx) on their way to a client: over HTTP/1.1, or by a way that another protocol has
//! ([`InterimWay`]).
//!
//! A proxy passes them on (RFC 9110 Sec. 15.2), but hyper sends final responses only. So they go past
//! hyper: the request to a server queues them here, and the guard writes them behind the previous
//! response and before the response that they announce. They are hints: one that cannot be written there
//! is dropped.

use std::{
    fmt,
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
pub struct Interims {
    /// Whether bytes wait to be written.
    waiting: AtomicBool,
    state: Mutex<InterimState>,
}

#[derive(Debug, Default)]
struct InterimState {
    /// The number of the request that is being answered.
    turn: u64,
    /// Whether the final response to it is still to come.
    open: bool,
    bytes: Vec<u8>,
    guard: Option<Waker>,
}

/// The way of interim responses to the client of one request.
#[derive(Clone, Debug)]
pub struct Interim(Way);

#[derive(Clone, Debug)]
enum Way {
    Http1 { all: Arc<Interims>, turn: u64 },
    Other(Arc<dyn InterimWay>),
}

/// The way of interim responses over another protocol, which an HTTP server has to the client of one request.
pub trait InterimWay: fmt::Debug + Send + Sync {
    /// Sends an interim response, unless the final one has started.
    fn pass(&self, status: StatusCode, headers: HeaderMap);
}

impl Interims {
    /// Begins a request whose client understands interim responses.
    pub fn begin(&self) {
        let mut state = self.state.lock();
        state.turn += 1;
        state.open = true;
        state.bytes.clear();
        self.waiting.store(false, Ordering::Release);
    }

    /// Notes that the final response has come.
    pub fn end(&self) {
        self.state.lock().open = false;
    }

    /// The way for interim responses to the request that is being answered; `None` when none may be sent.
    pub fn of_this_request(self: &Arc<Self>) -> Option<Interim> {
        let state = self.state.lock();
        state.open.then(|| Interim(Way::Http1 { all: self.clone(), turn: state.turn }))
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Takes the bytes that are to be written.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut state = self.state.lock();
        self.waiting.store(false, Ordering::Release);
        std::mem::take(&mut state.bytes)
    }

    /// Registers the task to wake when an interim response is queued.
    pub(super) fn notify(&self, guard: &Waker) {
        let mut state = self.state.lock();
        if state.open {
            state.guard = Some(guard.clone());
        }
    }
}

impl Interim {
    /// The way that a server of another protocol has.
    pub fn by(way: Arc<dyn InterimWay>) -> Self {
        Self(Way::Other(way))
    }

    /// Passes a server's interim response on. `headers` are those that concern the client: fields of the
    /// connection to the server are removed.
    pub fn pass(&self, status: StatusCode, headers: &HeaderMap) {
        // This node answers expectations itself, and never asks for another protocol.
        if matches!(status, StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
            return;
        }
        let (all, turn) = match &self.0 {
            Way::Http1 { all, turn } => (all, *turn),
            Way::Other(way) => return way.pass(status, headers.clone()),
        };
        let reason = status.canonical_reason().unwrap_or_default();
        let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
        for (name, value) in headers {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
        head.extend_from_slice(b"\r\n");
        let mut state = all.state.lock();
        if !state.open || state.turn != turn || state.bytes.len() + head.len() > MOST {
            return;
        }
        state.bytes.extend_from_slice(&head);
        all.waiting.store(true, Ordering::Release);
        if let Some(guard) = state.guard.take() {
            guard.wake();
        }
    }
}
