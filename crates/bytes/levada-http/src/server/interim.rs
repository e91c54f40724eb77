//! Interim responses (1xx) on their way to a client: over HTTP/1.1, or by a way that another protocol has
//! ([`InterimWay`]).
//!
//! A proxy passes them on (RFC 9110 Sec. 15.2). The request to a server queues them here, and the connection
//! writes them while it waits for the response that they announce. They are hints: one that comes later is
//! dropped.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::encoder;

/// Bytes of interim responses that may wait to be written.
const MOST: usize = 16 << 10;

/// The interim responses of one connection. A request that gets none takes no lock.
#[derive(Debug, Default)]
pub struct Interims {
    /// Whether bytes wait to be written.
    waiting: AtomicBool,
    /// The number of the request that is being answered, odd until its final response has come.
    turn: AtomicU64,
    state: Mutex<InterimState>,
}

#[derive(Debug, Default)]
struct InterimState {
    bytes: Vec<u8>,
    /// The number of the request that they are for.
    of: u64,
    connection: Option<Waker>,
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
    /// Begins a request whose client understands interim responses. The connection alone calls this.
    pub(super) fn begin(&self) {
        self.turn.store((self.turn.load(Ordering::Relaxed) | 1) + 2, Ordering::Release);
    }

    /// Notes that the final response has come.
    pub(super) fn end(&self) {
        self.turn.store((self.turn.load(Ordering::Relaxed) | 1) + 1, Ordering::Release);
    }

    /// The way for interim responses to the request that is being answered; `None` when none may be sent.
    pub fn of_this_request(self: &Arc<Self>) -> Option<Interim> {
        let turn = self.turn.load(Ordering::Acquire);
        (turn % 2 == 1).then(|| Interim(Way::Http1 { all: self.clone(), turn }))
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Takes the bytes that are to be written.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut state = self.state.lock();
        self.waiting.store(false, Ordering::Release);
        let bytes = std::mem::take(&mut state.bytes);
        if state.of == self.turn.load(Ordering::Relaxed) { bytes } else { Vec::new() }
    }

    /// Registers the task to wake when an interim response is queued.
    pub(super) fn notify(&self, connection: &Waker) {
        self.state.lock().connection = Some(connection.clone());
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
        encoder::write_fields(&mut head, headers);
        head.extend_from_slice(b"\r\n");
        let mut state = all.state.lock();
        if all.turn.load(Ordering::Acquire) != turn {
            return;
        }
        if state.of != turn {
            (state.of, state.bytes) = (turn, Vec::new());
        }
        if state.bytes.len() + head.len() > MOST {
            return;
        }
        state.bytes.extend_from_slice(&head);
        all.waiting.store(true, Ordering::Release);
        if let Some(connection) = state.connection.take() {
            connection.wake();
        }
    }
}
