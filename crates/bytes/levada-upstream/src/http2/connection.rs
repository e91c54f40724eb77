//! A connection over HTTP/2, and the places for requests on it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use levada_http::{DeadlineTimer, Io};
use parking_lot::Mutex;

use super::driver::{CONNECTION_WINDOW, FIRST_WINDOW, drive};
use crate::ServerFailure;

/// Requests that share a connection at most; a server may set a lower limit.
const STREAMS: usize = 100;
/// Bytes of the head of a response, and of its trailers, as HPACK counts them.
const HEAD: u32 = 256 << 10;
/// Streams that this end has reset and whose late frames are ignored for a second.
const RESET_STREAMS: usize = 200;

/// A connection that takes requests.
#[derive(Clone)]
pub(crate) struct Http2Connection {
    pub(super) sender: SendRequest<Bytes>,
    pub(super) state: Arc<ConnectionState>,
}

/// The state that all requests of a connection share with its driver.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// Requests under way.
    pub(super) streams: AtomicUsize,
    /// Whether it takes no further request.
    closing: AtomicBool,
    /// Whether a response has come.
    pub(super) answered: AtomicBool,
    /// Whether anything has come that the driver does not see.
    pub(super) heard: AtomicBool,
    /// Whether it is over TLS.
    pub(super) secure: bool,
    /// Header fields that a response may have.
    pub(super) fields: usize,
    /// Timers of requests that have ended, for the next ones: a timer costs more than to leave it running.
    pub(super) timers: Mutex<Vec<DeadlineTimer>>,
}

impl ConnectionState {
    /// Lets no further request in.
    pub(super) fn close(&self) {
        self.closing.store(true, Relaxed);
    }

    /// Notes that the server has sent a part of a response. What all requests write is written once.
    pub(super) fn hear(&self) {
        if !self.heard.load(Relaxed) {
            self.heard.store(true, Relaxed);
        }
    }
}

/// The place of a request on a connection.
#[derive(Debug)]
pub(super) struct StreamPlace(pub(super) Arc<ConnectionState>);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Relaxed);
    }
}

impl Http2Connection {
    /// Begins to speak HTTP/2. Responses may have so many `fields`.
    pub(super) async fn open(io: Io, fields: usize) -> Result<Self, ServerFailure> {
        let secure = matches!(io, Io::Tls(_));
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(FIRST_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // Until the server has stated its own; RFC 9113 Sec. 6.5.2 recommends no less than 100.
            .initial_max_send_streams(STREAMS)
            .max_header_list_size(HEAD)
            .max_concurrent_reset_streams(RESET_STREAMS)
            .handshake(io)
            .await
            .map_err(|_| ServerFailure::NoResponse)?;
        let state = Arc::new(ConnectionState { secure, fields, ..ConnectionState::default() });
        tokio::spawn(drive(connection, state.clone()));
        Ok(Self { sender, state })
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.closing.load(Relaxed)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state.streams.load(Relaxed) == 0
    }

    /// A place for one more request, if there is one.
    pub(super) fn place(&self) -> Option<StreamPlace> {
        let limit = STREAMS.min(self.sender.current_max_send_streams());
        let taken = self
            .state
            .streams
            .fetch_update(Relaxed, Relaxed, |streams| (streams < limit).then_some(streams + 1));
        taken.is_ok().then(|| StreamPlace(self.state.clone()))
    }

    /// The place of the request for which the connection was opened.
    pub(super) fn first_place(&self) -> StreamPlace {
        self.state.streams.fetch_add(1, Relaxed);
        StreamPlace(self.state.clone())
    }
}
