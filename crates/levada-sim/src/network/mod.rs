//! What lies between clients and servers, in two fidelities behind one interface.
//!
//! The world says what happens at the ends ([`Network::open`], [`Network::ready`]) and is told what
//! arrives ([`Arrival`]). In between a network schedules events of its own in the world's agenda;
//! when one comes up the world hands it back ([`Network::handle`]).
//!
//! ```text
//! client --open--> ....connection, request.... --RequestArrived--> server
//! client <--LastByte-- ......segments......... <--ready, ready(last)-- server --Acknowledged--> slot free
//! ```
//!
//! A transfer is known by the number of the world's slot for its request, and its state lies in
//! arrays of the same index: nothing is allocated per request once they have grown.

use levada_types::Timestamp;
use serde::{Deserialize, Serialize};

use crate::kernel::Agenda;

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
pub enum Network {
    /// [`Fidelity::Flow`].
    Flow,
    /// [`Fidelity::Packet`].
    Packet,
}

/// What reached an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The server has the whole request of this transfer.
    RequestArrived(u32),
    /// The client has the last byte of the response.
    LastByte(u32),
    /// The server has everything acknowledged: the transfer is over and its number may be used
    /// again.
    Acknowledged(u32),
}

/// An event of the network: what kind, and two numbers that mean what the kind says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkEvent {
    pub(crate) kind: u8,
    pub(crate) a: u32,
    pub(crate) b: u32,
}

impl Network {
    /// `client` opens a connection to `server` and sends its request with it.
    pub(crate) fn open<E: Copy + From<NetworkEvent>>(
        &mut self,
        _transfer: u32,
        _client: u32,
        _server: u32,
        _now: Timestamp,
        _agenda: &mut Agenda<E>,
    ) {
    }

    /// The server has `bytes` more of the response ready; `last` ends it.
    pub(crate) fn ready<E: Copy + From<NetworkEvent>>(
        &mut self,
        _transfer: u32,
        _bytes: u64,
        _last: bool,
        _now: Timestamp,
        _agenda: &mut Agenda<E>,
    ) {
    }

    /// An event of the network's own; what arrived by it is appended to `arrivals`.
    pub(crate) fn handle<E: Copy + From<NetworkEvent>>(
        &mut self,
        _event: NetworkEvent,
        _now: Timestamp,
        _agenda: &mut Agenda<E>,
        _arrivals: &mut Vec<Arrival>,
    ) {
    }
}
