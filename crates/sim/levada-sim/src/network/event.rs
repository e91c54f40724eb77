//! The events of both networks, and their arrivals at the ends.

use levada_types::Timestamp;

/// An arrival at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The server has the whole request of this transfer.
    Request(u32),
    /// The client has the last byte of the response.
    LastByte {
        /// The transfer.
        transfer: u32,
        /// When the client received the first segment.
        first: Timestamp,
        /// When the client received the last segment: now, or a moment ago in a network that
        /// reports it together with the acknowledgement.
        at: Timestamp,
    },
    /// The server has all acknowledgements: the transfer is over, and its number may be used again.
    Acknowledged(u32),
}

/// An event of the network, with its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkEvent {
    /// It is time for the next events of the network's own queue.
    Wake,
    /// The server has received the request.
    Request(u32),
    /// The client has received everything.
    LastByte(u32),
    /// Everything is acknowledged; in bulk, if no time was lost.
    Acknowledged(u32),
}
