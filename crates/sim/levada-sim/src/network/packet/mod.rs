//! The network packet by packet: store and forward, drop-tail queues, two-way TCP.
//!
//! It validates the network in bulk, and shows losses, bursts and queues. A packet costs one event
//! per link. These events are not in the world's agenda: the network has its own queue
//! ([`Calendar`], timers) and advances up to the world's next event, so that one in hundreds of
//! packet events wakes the world.

mod connection;
mod link;
mod paths;
#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BinaryHeap};

use connection::{Connection, ConnectionEvent};
use levada_topology::{
    PlaceIndex, Routes, Topology,
    calendar::{Calendar, NEVER},
    tcp::TcpSettings,
};
use levada_types::Timestamp;
use link::Link;
use paths::{Paths, Step, is_last};

use super::{Arrival, NetworkEvent};
use crate::{
    kernel::Agenda,
    scenario::NetworkModel,
    slab::{NONE, Slab},
};

pub(crate) use levada_topology::tcp::MAX_WINDOW;

/// The packet network: see the module.
#[derive(Debug)]
pub struct PacketNetwork {
    settings: TcpSettings,
    persistent: bool,
    paths: Paths,
    /// Links by [`Hop::index`](levada_topology::Hop::index).
    links: Vec<Link>,
    /// The next delivery of each link.
    calendar: Calendar,
    connections: Slab<Connection>,
    /// The connection of each of the world's transfers.
    of_transfer: Vec<u32>,
    timers: BinaryHeap<Reverse<Timer>>,
    /// The earliest time at which the world's agenda wakes this network; [`NEVER`] for none.
    wakes: u64,
    /// Number of connections so far; it wraps.
    opened: u32,
    /// Events so far.
    events: u64,
}

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

/// A packet under way.
#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    connection: u32,
    /// The segment, or the segment that is expected next.
    number: u32,
    /// Its place on its path: see [`Paths`].
    cursor: u32,
    /// Its size, with headers.
    bytes: u16,
    kind: PacketKind,
}

/// The kind of a packet, which determines its direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PacketKind {
    /// To the server: the connection begins.
    #[default]
    Syn,
    /// To the server: the handshake ends, and the request.
    Request,
    /// To the server: segments have arrived.
    Ack,
    /// To the client: the handshake goes on.
    SynAck,
    /// To the client: the request has arrived.
    RequestAck,
    /// To the client: a segment.
    Data,
}

impl PacketKind {
    const fn to_client(self) -> bool {
        matches!(self, Self::SynAck | Self::RequestAck | Self::Data)
    }
}

/// A connection's timer. The generation distinguishes it from the timer of an earlier connection
/// with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: u64,
    connection: u32,
    generation: u32,
}

impl PacketNetwork {
    /// An idle network. Servers and clients are numbered in the order given.
    pub fn new(
        model: &NetworkModel,
        topology: &Topology,
        routes: &Routes,
        servers: &[PlaceIndex],
        clients: &[PlaceIndex],
    ) -> Self {
        let directions = topology.links.iter().flat_map(|link| [link; 2]);
        let links: Vec<_> = directions
            .map(|link| Link::new(link.latency_ns, link.bits_per_second, link.queue_packets))
            .collect();
        Self {
            settings: model.into(),
            persistent: model.persistent,
            paths: Paths::new(routes, servers, clients),
            calendar: Calendar::new(links.len()),
            links,
            connections: Slab::new(),
            of_transfer: Vec::new(),
            timers: BinaryHeap::new(),
            wakes: NEVER,
            opened: 0,
            events: 0,
        }
    }

    /// `client` opens a connection to `server` and sends its request with it. Both are numbered in the order of
    /// the topology.
    pub fn open<E: Copy + From<NetworkEvent>>(
        &mut self,
        transfer: u32,
        client: u32,
        server: u32,
        now: Timestamp,
        agenda: &mut Agenda<E>,
    ) {
        let way = self.paths.way(client, server);
        self.opened = self.opened.wrapping_add(1);
        let number = self.connections.insert(Connection::new(transfer, self.opened, way));
        let at = transfer as usize;
        if self.of_transfer.len() <= at {
            self.of_transfer.resize(at + 1, NONE);
        }
        self.of_transfer[at] = number;
        self.connections[number].begin(now.0, self.persistent, &self.settings);
        self.after(number, now.0, agenda);
        self.plan(agenda);
    }

    /// The server has `bytes` more of a response of `total` bytes ready.
    pub fn ready<E: Copy + From<NetworkEvent>>(
        &mut self,
        transfer: u32,
        bytes: u64,
        total: u64,
        now: Timestamp,
        agenda: &mut Agenda<E>,
    ) {
        let number = self.of_transfer[transfer as usize];
        self.connections[number].ready(bytes, total, &self.settings);
        self.after(number, now.0, agenda);
        self.plan(agenda);
    }

    /// How many bytes of the response the client has in order. The transfer is not over yet.
    pub fn received(&self, transfer: u32) -> u64 {
        let connection = &self.connections[self.of_transfer[transfer as usize]];
        if connection.transfer == transfer { connection.received(&self.settings) } else { 0 }
    }

    /// Both ends drop the connection: nothing more is sent or reported. Packets under way still occupy
    /// the links. Returns false if the connection was over before.
    pub fn close(&mut self, transfer: u32) -> bool {
        let number = self.of_transfer[transfer as usize];
        let connection = &mut self.connections[number];
        let is_open = connection.transfer == transfer && !connection.is_over();
        if is_open {
            connection.abort();
            self.release(number);
        }
        is_open
    }

    /// Handles an event of the network and appends arrivals to `arrivals`. The caller guarantees that it opens no
    /// transfer and makes no bytes ready before `until`, except for events in the agenda.
    pub fn handle<E: Copy + From<NetworkEvent>>(
        &mut self,
        event: NetworkEvent,
        now: Timestamp,
        until: Timestamp,
        agenda: &mut Agenda<E>,
        arrivals: &mut Vec<Arrival>,
    ) {
        match event {
            NetworkEvent::Request(transfer) => arrivals.push(Arrival::Request(transfer)),
            NetworkEvent::LastByte(transfer) => {
                let number = self.of_transfer[transfer as usize];
                let first = Timestamp(self.connections[number].first_byte_at);
                arrivals.push(Arrival::LastByte { transfer, first, at: now });
            }
            NetworkEvent::Acknowledged(transfer) => {
                arrivals.push(Arrival::Acknowledged(transfer));
            }
            NetworkEvent::Wake => {
                if self.wakes == now.0 {
                    self.wakes = NEVER;
                }
                self.go_ahead(now, until, agenda);
            }
        }
    }

    /// Handles all events of now, and then further ones up to the world's next event.
    fn go_ahead<E: Copy + From<NetworkEvent>>(
        &mut self,
        now: Timestamp,
        until: Timestamp,
        agenda: &mut Agenda<E>,
    ) {
        loop {
            let next = self.next();
            let mut free = || next < until.0 && agenda.next_time(Timestamp(next)).is_none();
            // Arrivals due now are reported before others of the same time, which might depend on
            // them.
            if next == NEVER || next > now.0 && !free() {
                break;
            }
            self.step(agenda);
        }
        self.plan(agenda);
    }

    /// Schedules the next wake-up in the world's agenda.
    fn plan<E: Copy + From<NetworkEvent>>(&mut self, agenda: &mut Agenda<E>) {
        let next = self.next();
        if next < self.wakes {
            self.wakes = next;
            agenda.schedule(Timestamp(next), NetworkEvent::Wake.into());
        }
    }

    /// The time of the next event.
    #[inline]
    fn next(&self) -> u64 {
        self.calendar.next().min(self.timers.peek().map_or(NEVER, |timer| timer.0.at))
    }

    /// Handles the next event.
    fn step<E: Copy + From<NetworkEvent>>(&mut self, agenda: &mut Agenda<E>) {
        self.events += 1;
        if self.timers.peek().is_some_and(|timer| timer.0.at < self.calendar.next()) {
            self.time_out(agenda);
            return;
        }
        let Some((link, now)) = self.calendar.take() else { return };
        let (packet, next) = self.links[link].receive();
        if next != NEVER {
            self.calendar.put(link, next);
        }
        if !is_last(packet.cursor) {
            let to_client = packet.kind.to_client();
            let step = self.paths.onward(packet.cursor, to_client).unwrap_or_else(|| {
                self.paths.last(&self.connections[packet.connection].way, to_client)
            });
            if step != Step::Arrived {
                if !self.forward(packet, step, now) {
                    self.connections[packet.connection].packets -= 1;
                    self.release(packet.connection);
                }
                return;
            }
        }
        let connection = &mut self.connections[packet.connection];
        connection.packets -= 1;
        connection.receive(packet, now, &self.settings);
        self.after(packet.connection, now, agenda);
    }

    /// A connection's timer has expired. It may have been moved to a later time, or its connection
    /// may be gone.
    fn time_out<E: Copy + From<NetworkEvent>>(&mut self, agenda: &mut Agenda<E>) {
        let Some(Reverse(timer)) = self.timers.pop() else { return };
        let connection = &mut self.connections[timer.connection];
        let same = connection.generation == timer.generation && connection.timer_at == timer.at;
        if !same || connection.is_over() {
            return;
        }
        connection.timer_at = NEVER;
        connection.time_out(timer.at, &self.settings);
        self.after(timer.connection, timer.at, agenda);
    }

    /// Polls a connection after an event: sends its packets, reports its events to the world, sets
    /// its timer, and frees its number at its end.
    fn after<E: Copy + From<NetworkEvent>>(
        &mut self,
        number: u32,
        now: u64,
        agenda: &mut Agenda<E>,
    ) {
        while let Some((kind, value, bytes)) = self.connections[number].poll(now, &self.settings) {
            let packet = Packet { connection: number, number: value, cursor: 0, bytes, kind };
            let step = self.paths.first(&self.connections[number].way, kind.to_client());
            if self.forward(packet, step, now) {
                self.connections[number].packets += 1;
            }
        }
        let connection = &mut self.connections[number];
        if let Some(reported) = connection.poll_event() {
            let transfer = connection.transfer;
            let event = match reported {
                ConnectionEvent::Request => NetworkEvent::Request(transfer),
                ConnectionEvent::LastByte => NetworkEvent::LastByte(transfer),
                ConnectionEvent::Acknowledged => NetworkEvent::Acknowledged(transfer),
            };
            agenda.schedule(Timestamp(now), event.into());
        }
        let deadline = connection.deadline();
        if deadline < connection.timer_at {
            connection.timer_at = deadline;
            let generation = connection.generation;
            self.timers.push(Reverse(Timer { at: deadline, connection: number, generation }));
        }
        self.release(number);
    }

    /// Frees the number of a connection that is over and has no packets under way.
    fn release(&mut self, number: u32) {
        let connection = &self.connections[number];
        if connection.is_over() && connection.packets == 0 {
            self.connections.remove(number);
        }
    }

    /// Puts a packet on the next link of its path; false when the queue there is full.
    fn forward(&mut self, mut packet: Packet, step: Step, now: u64) -> bool {
        // Every path has at least one link: a client is no server.
        let Step::Link(link, cursor) = step else { return false };
        packet.cursor = cursor;
        let only = self.links[link].send(packet, now);
        if only == Ok(true) {
            self.calendar.put(link, self.links[link].next());
        }
        only.is_ok()
    }

    /// Connections whose state is kept.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Bytes carried by a direction of a link.
    pub fn carried(&self, hop: usize) -> u64 {
        self.links[hop].carried
    }

    /// Packets dropped at full queues, over all links.
    pub fn dropped(&self) -> u64 {
        self.links.iter().map(|link| link.dropped).sum()
    }

    /// Number of events: packets at the end of a link, and timers.
    pub fn events(&self) -> u64 {
        self.events
    }
}
