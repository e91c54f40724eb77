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

mod idle;
mod receiver;
mod sender;
mod timeout;

pub use idle::{IdleTcp, IdleTiming};
pub use receiver::{Receiver, Reply};
pub use sender::Sender;
pub use timeout::Timeout;

/// Bytes of the headers of IP and TCP without options.
pub const HEADER: u32 = 40;

/// The parameters of all connections of a run.
#[derive(Clone, Copy, Debug)]
pub struct TcpSettings {
    /// Payload of a full segment, in bytes.
    pub segment: u32,
    /// Initial congestion window, in segments.
    pub initial_window: u32,
    /// The receiver's window, in segments; at most [`MAX_WINDOW`].
    pub window: u32,
    /// Segments in order that the client acknowledges at a time.
    pub segments_per_ack: u32,
    /// Time that the client waits for them, in ns.
    pub ack_delay: u64,
    /// The retransmission timeout before the first round trip is measured, in ns.
    pub first_timeout: u64,
    /// The minimum retransmission timeout, in ns.
    pub least_timeout: u64,
    /// Payload of a request, in bytes.
    pub request: u32,
}

/// The segments that a receiver can hold while one before them is missing.
pub const MAX_WINDOW: u32 = 64;
