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
//! Sequence numbers count segments: the response is segmented in the same way however often it is
//! sent, because a segment waits until the server has all of it (Nagle's rule). Each side of the
//! connection is a file: [`Sender`] is the server with its windows, [`Receiver`] the client. Both are
//! given the time and return the segments to send; the network moves the packets.
//!
//! Deliberately absent: the server's acknowledgement of the client's FIN, on which nothing depends;
//! segments from the client beyond its request; options (timestamps, SACK, window scaling), which
//! NS-2's full TCP does not use by default.

mod receiver;
mod sender;
mod timeout;

pub(super) use receiver::{Receiver, Reply};
pub(super) use sender::Sender;
pub(super) use timeout::Timeout;

use crate::scenario::NetworkModel;

/// Bytes of the headers of IP and TCP without options.
pub(super) const HEADER: u32 = 40;

/// The parameters of all connections of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpSettings {
    /// Payload of a full segment, in bytes.
    pub(super) segment: u32,
    /// Initial congestion window, in segments.
    pub(super) initial_window: u32,
    /// The receiver's window, in segments; at most [`MAX_WINDOW`].
    pub(super) window: u32,
    /// Segments in order that the client acknowledges at a time.
    pub(super) segments_per_ack: u32,
    /// Time that the client waits for them, in ns.
    pub(super) ack_delay: u64,
    /// The retransmission timeout before the first round trip is measured, in ns.
    pub(super) first_timeout: u64,
    /// The minimum retransmission timeout, in ns.
    pub(super) least_timeout: u64,
    /// Payload of a request, in bytes.
    pub(super) request: u32,
}

/// The segments that a receiver can hold while one before them is missing.
pub(crate) const MAX_WINDOW: u32 = 64;

impl From<&NetworkModel> for TcpSettings {
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
