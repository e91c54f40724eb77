//! TCP between a client and a server, as in NS-2's full TCP: a connection for one request.
//!
//! ```text
//! client            server
//!   | --- SYN ------> |
//!   | <-- SYN, ACK -- |
//!   | -- ACK, request |  the first packet with the acknowledgement carries the request
//!   | <-- ACK ------- |
//!   | <-- data ------ |  segments 0, 1, 2 ... as the window allows and the server has them ready
//!   | --- ACK ------> |  of the next segment that is missing
//!   | <-- data, FIN - |
//!   | --- ACK, FIN -> |  the connection is over
//! ```
//!
//! Sequence numbers count segments, for the response is cut the same way however often it is sent:
//! a segment waits until the server has all of it (as Nagle's rule makes it). Each side of the
//! connection is a file: [`Sender`] is the server with its windows, [`Receiver`] the client. Both are
//! told the time and say what to send; the packets are the network's.
//!
//! Deliberately absent: the server's acknowledgement of the client's FIN, after which nothing
//! depends on anything; segments from the client beyond its request; options (timestamps, SACK,
//! window scaling), which NS-2's full TCP does not use unless told to.

mod receiver;
mod sender;
mod timeout;

pub(super) use receiver::{Receiver, Reply};
pub(super) use sender::Sender;
pub(super) use timeout::Timeout;

use crate::scenario::NetworkModel;

/// Bytes of the headers of IP and TCP without options.
pub(super) const HEADER: u32 = 40;

/// What all connections of a run have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Payload of a full segment, in bytes.
    pub(super) segment: u32,
    /// In segments.
    pub(super) initial_window: u32,
    /// The receiver's window, in segments; at most [`MAX_WINDOW`].
    pub(super) window: u32,
    /// How many segments in order the client acknowledges at a time.
    pub(super) segments_per_ack: u32,
    /// How long it waits for them, in ns.
    pub(super) ack_delay: u64,
    /// The retransmission timeout before any round trip is known, in ns.
    pub(super) first_timeout: u64,
    /// The least retransmission timeout, in ns.
    pub(super) least_timeout: u64,
    /// Payload of a request, in bytes.
    pub(super) request: u32,
}

/// The segments that a receiver can hold while one before them is missing.
pub(crate) const MAX_WINDOW: u32 = 64;

impl From<&NetworkModel> for Settings {
    fn from(model: &NetworkModel) -> Self {
        Self {
            segment: model.segment,
            initial_window: model.initial_window,
            window: model.window,
            segments_per_ack: model.segments_per_ack,
            ack_delay: model.ack_delay.0.as_nanos() as u64,
            first_timeout: model.first_timeout.0.as_nanos() as u64,
            least_timeout: model.least_timeout.0.as_nanos() as u64,
            request: model.request.0 as u32,
        }
    }
}
