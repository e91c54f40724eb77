//! The network in bulk: a transfer is one event as long as its path is not congested.
//!
//! On an idle path, [`IdleTcp`] computes the end of a transfer as soon as the server has the last byte
//! ready. Until then the transfer demands a rate of every link on its path: its bytes divided by its
//! time. While the sum of the demands on a link is no more than its capacity, there are no further
//! events.
//!
//! If the demands exceed the capacity, the link gives all transfers the same part of their demand. A
//! link counts the time that its transfers have lost so far. At its computed end, a transfer looks at
//! the link of its path that lost the most time since the transfer began. If that is more than was
//! allowed for, the transfer continues for the difference. So full links carry exactly their
//! capacity, and a transfer costs a further event or two while one of its links is full.
//!
//! Not simulated: the bytes that clients send, short queues at links that are not full, and the cost
//! of single losses. The packet network simulates these.

use levada_topology::{IdlePaths, PlaceIndex, Routes, Topology, tcp::IdleTcp};
use levada_types::Timestamp;

use super::{Arrival, NetworkEvent};
use crate::{kernel::Agenda, scenario::NetworkModel};

impl From<&NetworkModel> for IdleTcp {
    fn from(model: &NetworkModel) -> Self {
        let NetworkModel { segment, initial_window, window, persistent, .. } = *model;
        Self { segment, initial_window, window, persistent }
    }
}

/// The network in bulk: see the module.
#[derive(Debug)]
pub(crate) struct Flow {
    tcp: IdleTcp,
    paths: IdlePaths,
    /// Links by direction: [`Hop::index`](levada_topology::Hop::index).
    links: Vec<LinkLoad>,
    transfers: Vec<FlowTransfer>,
    /// For each transfer, the lost time of each link of its path when it began.
    lost_before: Vec<u32>,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
struct LinkLoad {
    /// Capacity, in bytes per second.
    capacity: u64,
    /// The demand of its transfers, in bytes per second.
    asked: u64,
    /// Time that its transfers have lost so far, in nanoseconds.
    lost: u64,
    changed: Timestamp,
    /// Bytes of finished transfers.
    carried: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowTransfer {
    server: u32,
    client: u32,
    /// Its demand on its links, in bytes per second; 0 before it begins.
    asks: u64,
    /// The time at which the first segment was sent, or would have been sent if the server had
    /// never paused.
    base: Timestamp,
    /// The time at which the first segment reaches the client.
    first: Timestamp,
    /// The time from `base` to the last acknowledgement on an idle path.
    takes: u64,
    /// Bytes that the server had ready so far.
    ready: u64,
}

/// Bytes of memory per transfer, in addition to 4 for each link of the longest path.
pub(crate) const BYTES_PER_TRANSFER: usize = size_of::<FlowTransfer>();

impl Flow {
    pub(crate) fn new(
        tcp: IdleTcp,
        topology: &Topology,
        routes: &Routes,
        servers: &[PlaceIndex],
        clients: &[PlaceIndex],
    ) -> Self {
        let load = |bits: u64| LinkLoad {
            capacity: (bits / 8).max(1),
            asked: 0,
            lost: 0,
            changed: Timestamp::ZERO,
            carried: 0,
        };
        let both_ways = topology.links.iter().flat_map(|link| [link.bits_per_second; 2]);
        Self {
            tcp,
            paths: IdlePaths::new(tcp.segment, topology, routes, servers, clients),
            links: both_ways.map(load).collect(),
            transfers: Vec::new(),
            lost_before: Vec::new(),
        }
    }

    pub(crate) fn open<E: Copy + From<NetworkEvent>>(
        &mut self,
        transfer: u32,
        client: u32,
        server: u32,
        now: Timestamp,
        agenda: &mut Agenda<E>,
    ) {
        let at = transfer as usize;
        if self.transfers.len() <= at {
            self.transfers.resize(at + 1, FlowTransfer::default());
            self.lost_before.resize((at + 1) * self.paths.longest(), 0);
        }
        self.transfers[at] = FlowTransfer { server, client, ..FlowTransfer::default() };
        let arrives = now.0 + self.tcp.request(self.paths.timing(server, client));
        agenda.schedule(Timestamp(arrives), NetworkEvent::Request(transfer).into());
    }

    pub(crate) fn ready<E: Copy + From<NetworkEvent>>(
        &mut self,
        transfer: u32,
        bytes: u64,
        total: u64,
        now: Timestamp,
        agenda: &mut Agenda<E>,
    ) {
        let mut state = self.transfers[transfer as usize];
        let timing = self.paths.timing(state.server, state.client);
        if state.asks == 0 {
            state.takes = self.tcp.received_offset(self.tcp.segments(total), timing) + timing.back;
            state.base = now;
            state.first = Timestamp(now.0 + timing.narrowest + timing.onward);
            state.asks = rate(self.tcp.on_the_wire(total), state.takes);
            self.ask(transfer, &state, now);
        } else {
            // The next segment could have been sent at this time; if the server had it later, the
            // whole transfer is later.
            let due = self.tcp.send_offset(state.ready / u64::from(self.tcp.segment), timing);
            let (lost, _) = self.lost_since_begin(transfer, &state, now);
            state.base.0 += now.0.saturating_sub(state.base.0 + lost + due);
        }
        state.ready += bytes;
        if state.ready >= total {
            let end = Timestamp((state.base.0 + state.takes).max(now.0));
            agenda.schedule(end, NetworkEvent::Acknowledged(transfer).into());
        }
        self.transfers[transfer as usize] = state;
    }

    pub(crate) fn handle<E: Copy + From<NetworkEvent>>(
        &mut self,
        event: NetworkEvent,
        now: Timestamp,
        agenda: &mut Agenda<E>,
        arrivals: &mut Vec<Arrival>,
    ) {
        let transfer = match event {
            NetworkEvent::Request(transfer) => return arrivals.push(Arrival::Request(transfer)),
            NetworkEvent::Acknowledged(transfer) => transfer,
            NetworkEvent::Wake | NetworkEvent::LastByte(_) => return,
        };
        let state = self.transfers[transfer as usize];
        if state.asks == 0 {
            return arrivals.push(Arrival::Acknowledged(transfer));
        }
        let (lost, part) = self.lost_since_begin(transfer, &state, now);
        let missing = (state.base.0 + state.takes + lost).saturating_sub(now.0);
        let elapsed = now.0 - state.base.0;
        if missing > TOLERANCE.max(elapsed / 1000) {
            // The transfer continues at the path's current slowdown. The path may recover, so the
            // step is not much longer than the transfer's time so far.
            let longer = (missing as f64 / part) as u64;
            let longer = longer.min((2 * missing).max(elapsed / 2));
            agenda.schedule(Timestamp(now.0 + longer), event.into());
            return;
        }
        self.release(&state, now);
        let back = self.paths.timing(state.server, state.client).back;
        let at = Timestamp(now.0 - back);
        arrivals.push(Arrival::LastByte { transfer, first: state.first, at });
        arrivals.push(Arrival::Acknowledged(transfer));
    }

    /// The server is gone: the transfer asks for nothing more. An end that was scheduled is reported as
    /// [`Arrival::Acknowledged`] alone.
    pub(crate) fn abort(&mut self, transfer: u32, now: Timestamp) {
        let state = self.transfers[transfer as usize];
        if state.asks > 0 {
            self.release(&state, now);
            self.transfers[transfer as usize].asks = 0;
        }
    }

    /// A transfer begins its demand on its links.
    fn ask(&mut self, transfer: u32, state: &FlowTransfer, now: Timestamp) {
        let before = &mut self.lost_before[transfer as usize * self.paths.longest()..];
        for (before, hop) in before.iter_mut().zip(self.paths.path(state.server, state.client)) {
            let link = &mut self.links[hop];
            link.advance(now);
            link.asked += state.asks;
            *before = coarse(link.lost);
        }
    }

    /// A transfer is over.
    fn release(&mut self, state: &FlowTransfer, now: Timestamp) {
        let weight = self.tcp.on_the_wire(state.ready);
        for hop in self.paths.path(state.server, state.client) {
            let link = &mut self.links[hop];
            link.advance(now);
            link.asked -= state.asks;
            link.carried += weight;
        }
    }

    /// The time lost since the transfer began, at the link of the path that lost most, and the part
    /// of its demand that the transfer gets now.
    fn lost_since_begin(&self, transfer: u32, state: &FlowTransfer, now: Timestamp) -> (u64, f64) {
        let before = &self.lost_before[transfer as usize * self.paths.longest()..];
        let (mut most, mut part) = (0, 1.0_f64);
        for (before, hop) in before.iter().zip(self.paths.path(state.server, state.client)) {
            let link = &self.links[hop];
            let since = coarse(link.lost + link.losing(now)).wrapping_sub(*before);
            most = most.max(u64::from(since) << COARSE);
            part = part.min(link.part());
        }
        (most, part)
    }

    /// Bytes that a direction of a link has carried for finished transfers.
    pub(crate) fn carried(&self, hop: usize) -> u64 {
        self.links[hop].carried
    }
}

impl LinkLoad {
    /// The part of their demand that transfers get.
    fn part(&self) -> f64 {
        if self.asked <= self.capacity { 1.0 } else { self.capacity as f64 / self.asked as f64 }
    }

    /// Time lost since the last change.
    fn losing(&self, now: Timestamp) -> u64 {
        if self.asked <= self.capacity {
            return 0;
        }
        ((now.0 - self.changed.0) as f64 * (1.0 - self.part())) as u64
    }

    #[inline]
    fn advance(&mut self, now: Timestamp) {
        if self.asked > self.capacity {
            self.lost += self.losing(now);
        }
        self.changed = now;
    }
}

/// Bytes per second; never zero, so that zero means no demand.
fn rate(bytes: u64, nanoseconds: u64) -> u64 {
    ((bytes as f64 * 1e9 / nanoseconds.max(1) as f64) as u64).max(1)
}

/// Lost time in units of 1024 ns: 32 bits count more than an hour, longer than any transfer.
const fn coarse(nanoseconds: u64) -> u32 {
    (nanoseconds >> COARSE) as u32
}

const COARSE: u32 = 10;

/// Missing time below this, in nanoseconds, or below a thousandth of the transfer's time is
/// ignored. This ends the series of further events.
const TOLERANCE: u64 = 100_000;

#[cfg(test)]
mod tests;
