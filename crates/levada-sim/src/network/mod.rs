//! What lies between clients and servers, in two fidelities behind one interface.
//!
//! The world says what happens at the ends ([`Network::open`], [`Network::ready`]) and is told what
//! arrives ([`Arrival`]). In between a network schedules events of its own in the world's agenda;
//! when one comes up the world hands it back ([`Network::handle`]).
//!
//! ```text
//! client --open--> ....connection, request.... --Request--> server
//! client <--LastByte-- ......segments......... <--ready, ready-- server --Acknowledged--> slot free
//! ```
//!
//! A transfer is known by the number of the world's slot for its request, and its state lies in
//! arrays of the same index: nothing is allocated per request once they have grown.

mod flow;
mod tcp;
mod ways;

use levada_types::Timestamp;
use serde::{Deserialize, Serialize};

use crate::kernel::Agenda;

pub(crate) use flow::Flow;
pub(crate) use tcp::Tcp;

/// How finely the network is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fidelity {
    /// Rounds of TCP and shares of links, an event per transfer while nothing is congested.
    #[default]
    Flow,
    /// Every packet through every queue, with two-way TCP.
    Packet,
}

/// The network of a run.
#[derive(Debug)]
pub(crate) enum Network {
    /// [`Fidelity::Flow`].
    Flow(Flow),
}

/// What reached an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The server has the whole request of this transfer.
    Request(u32),
    /// The client has the last byte of the response.
    LastByte {
        /// Of which transfer.
        transfer: u32,
        /// When it had the first segment.
        first: Timestamp,
        /// When it had the last: now, or a moment ago in networks that tell it together with the
        /// acknowledgement.
        at: Timestamp,
    },
    /// The server has everything acknowledged: the transfer is over, and its number may be used
    /// again.
    Acknowledged(u32),
}

/// An event of the network: what kind, and about which transfer, packet or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkEvent {
    pub(crate) kind: u8,
    pub(crate) about: u32,
}

impl Network {
    /// `client` opens a connection to `server` and sends its request with it. Both are counted as the
    /// topology's clients and servers are.
    pub(crate) fn open<E: Copy + From<NetworkEvent>>(
        &mut self,
        transfer: u32,
        client: u32,
        server: u32,
        now: Timestamp,
        agenda: &mut Agenda<E>,
    ) {
        match self {
            Self::Flow(flow) => flow.open(transfer, client, server, now, agenda),
        }
    }

    /// The server has `bytes` more of a response of `total` bytes ready.
    pub(crate) fn ready<E: Copy + From<NetworkEvent>>(
        &mut self,
        transfer: u32,
        bytes: u64,
        total: u64,
        now: Timestamp,
        agenda: &mut Agenda<E>,
    ) {
        match self {
            Self::Flow(flow) => flow.ready(transfer, bytes, total, now, agenda),
        }
    }

    /// An event of the network's own; what arrived by it is appended to `arrivals`.
    pub(crate) fn handle<E: Copy + From<NetworkEvent>>(
        &mut self,
        event: NetworkEvent,
        now: Timestamp,
        agenda: &mut Agenda<E>,
        arrivals: &mut Vec<Arrival>,
    ) {
        match self {
            Self::Flow(flow) => flow.handle(event, now, agenda, arrivals),
        }
    }

    /// Bytes of responses, with headers, that one direction of a link carried
    /// ([`Hop::index`](crate::topology::Hop::index)).
    pub(crate) fn carried(&self, hop: usize) -> u64 {
        match self {
            Self::Flow(flow) => flow.carried(hop),
        }
    }
}
