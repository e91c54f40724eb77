//! The events of both networks, and their arrivals at the ends.

use levada_types::Timestamp;

/// An arrival at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
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

/// An event of the network: its kind, and its transfer, packet or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkEvent {
    pub(crate) kind: u8,
    pub(crate) about: u32,
}
