//! The network between clients and servers, in two fidelities behind one interface.
//!
//! The world reports the actions of the ends ([`Network::open`], [`Network::ready`]) and receives
//! arrivals ([`Arrival`]). In between, a network schedules its own events in the world's agenda, and
//! the world hands them back when they are due ([`Network::handle`]).
//!
//! ```text
//! client --open--> ....connection, request.... --Request--> server
//! client <--LastByte-- ......segments......... <--ready, ready-- server --Acknowledged--> slot free
//! ```
//!
//! A transfer has the number of its request in the world's slab, and its state is in arrays with the
//! same index: nothing is allocated per request once they have grown.

mod alone;
mod event;
mod fidelity;
mod flow;
mod packet;

use levada_topology::{PlaceIndex, Routes, Topology};
use levada_types::Timestamp;

use crate::{kernel::Agenda, scenario::NetworkModel};

pub use alone::{Transfer, Transferred, transfer};
pub use event::{Arrival, NetworkEvent};
pub use fidelity::Fidelity;
pub(crate) use flow::BYTES_PER_TRANSFER;
use flow::Flow;
pub(crate) use packet::MAX_WINDOW;
pub use packet::PacketNetwork;

/// The network of a run.
#[derive(Debug)]
pub(crate) enum Network {
    /// [`Fidelity::Flow`].
    Flow(Flow),
    /// [`Fidelity::Packet`].
    Packet(Box<PacketNetwork>),
}

impl Network {
    /// An idle network of the fidelity in `model`.
    pub(crate) fn new(
        model: &NetworkModel,
        topology: &Topology,
        routes: &Routes,
        servers: &[PlaceIndex],
        clients: &[PlaceIndex],
    ) -> Self {
        match model.fidelity {
            Fidelity::Flow => {
                Self::Flow(Flow::new(model.into(), topology, routes, servers, clients))
            }
            Fidelity::Packet => {
                let packets = PacketNetwork::new(model, topology, routes, servers, clients);
                Self::Packet(Box::new(packets))
            }
        }
    }

    /// `client` opens a connection to `server` and sends its request with it. Both are numbered in
    /// the order of the topology.
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
            Self::Packet(packets) => packets.open(transfer, client, server, now, agenda),
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
            Self::Packet(packets) => packets.ready(transfer, bytes, total, now, agenda),
        }
    }

    /// The server of a transfer is gone. Returns whether the end of a transfer that was ready as a whole is
    /// still reported, as [`Arrival::Acknowledged`].
    pub(crate) fn abort(&mut self, transfer: u32, now: Timestamp) -> bool {
        match self {
            Self::Flow(flow) => {
                flow.abort(transfer, now);
                true
            }
            Self::Packet(packets) => !packets.close(transfer),
        }
    }

    /// Handles an event of the network and appends arrivals to `arrivals`. The caller guarantees that
    /// it opens no transfer and makes no bytes ready before `until`, except for events in the agenda.
    pub(crate) fn handle<E: Copy + From<NetworkEvent>>(
        &mut self,
        event: NetworkEvent,
        now: Timestamp,
        until: Timestamp,
        agenda: &mut Agenda<E>,
        arrivals: &mut Vec<Arrival>,
    ) {
        match self {
            Self::Flow(flow) => flow.handle(event, now, agenda, arrivals),
            Self::Packet(packets) => packets.handle(event, now, until, agenda, arrivals),
        }
    }

    /// Packets dropped at full queues so far; `None` where packets are not simulated.
    pub(crate) fn dropped(&self) -> Option<u64> {
        match self {
            Self::Flow(_) => None,
            Self::Packet(packets) => Some(packets.dropped()),
        }
    }

    /// Connections whose state is kept; 0 where packets are not simulated.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        match self {
            Self::Flow(_) => 0,
            Self::Packet(packets) => packets.connections(),
        }
    }

    /// Number of events of the network that are not in the agenda.
    pub(crate) fn events(&self) -> u64 {
        match self {
            Self::Flow(_) => 0,
            Self::Packet(packets) => packets.events(),
        }
    }

    /// Bytes of responses, with headers, that one direction of a link carried
    /// ([`Hop::index`](levada_topology::Hop::index)).
    pub(crate) fn carried(&self, hop: usize) -> u64 {
        match self {
            Self::Flow(flow) => flow.carried(hop),
            Self::Packet(packets) => packets.carried(hop),
        }
    }
}
