//! One fetch by all clients: the event loop, the transfers of the network, and what a node does when a
//! piece is asked of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::{Rc, Weak},
    time::Duration,
};

use levada_fetch::{Choice, PieceCounts};
use levada_policy::{NodeIndex, PickContext};
use levada_sim::packets::{Agenda, Arrival, NetworkEvent, PacketNetwork};
use levada_types::{Key, Request, Timestamp};

use crate::{
    Fault, Fetched, Settings, World,
    agent::Agent,
    flight::{Flight, Flights, Name, State},
    wire,
};

/// How often nodes pass on what has come and look at their timers.
const TICK: Duration = Duration::from_millis(2);
/// Clients begin within this time.
const SPREAD: Duration = Duration::from_millis(5);
/// How long a dead node counts as up.
const DETECTION: Duration = Duration::from_secs(1);
/// A fetch that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(1800);

#[derive(Clone, Copy, Debug)]
enum Event {
    Network(NetworkEvent),
    /// This client begins.
    Begin(usize),
    Tick,
    /// The victim dies.
    Death,
    /// All nodes know that it is dead.
    Detected,
    /// The node that asked has learned that this transfer is reset or refused.
    Reset(u32),
}

impl From<NetworkEvent> for Event {
    fn from(event: NetworkEvent) -> Self {
        Self::Network(event)
    }
}

/// What a transfer of the network carries.
#[derive(Clone)]
enum Carried {
    /// The file, from a node to this client.
    File(usize),
    /// A piece, from one node to another.
    Piece(Weak<Flight>),
    /// A piece, from the origin or a node to this node.
    Fill(usize, Name),
    /// It is over.
    Nothing,
}

/// A piece that a node gets from the origin or from another node, and those who wait for it.
struct Fill {
    transfer: u32,
    from: usize,
    /// Transfers to other nodes, which get the bytes as they come, and the bytes that each has got.
    relays: Vec<(u32, u64)>,
    /// The node's own flights.
    own: Vec<Weak<Flight>>,
}

/// See the module.
pub(super) struct Run<'a> {
    pub(super) world: &'a mut World,
    fault: Fault,
    victim: usize,
    network: PacketNetwork,
    agenda: Agenda<Event>,
    transfers: Vec<Carried>,
    fills: Vec<BTreeMap<Name, Fill>>,
    flights: Vec<Flights>,
    pub(super) agents: Vec<Agent>,
    dead: bool,
    detected: bool,
    origin_bytes: u64,
    pub(super) left_out: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(world: &'a mut World, fault: Fault) -> Self {
        let settings = world.settings;
        let victim = settings.nodes / 2 + 1;
        let victim = victim.min(settings.nodes - 1);
        let mut agenda = Agenda::default();
        let mut agents = Vec::new();
        let askable: Vec<_> = (0..settings.nodes).filter(|node| *node != victim).collect();
        for client in 0..settings.clients {
            let begun = world.now + SPREAD.mul_f64(world.rng.unit());
            agenda.schedule(begun, Event::Begin(client));
            let node = match fault {
                Fault::None => client % settings.nodes,
                _ => askable[client % askable.len()],
            };
            agents.push(Agent::new(node, &settings, begun));
        }
        if let Fault::Killed(after) = fault {
            agenda.schedule(world.now + after, Event::Death);
            agenda.schedule(world.now + after + DETECTION, Event::Detected);
        }
        agenda.schedule(world.now, Event::Tick);
        Self {
            network: wire::network(&settings, victim, fault),
            fault,
            victim,
            agenda,
            transfers: Vec::new(),
            fills: (0..settings.nodes).map(|_| BTreeMap::new()).collect(),
            flights: (0..settings.nodes).map(|_| Flights::default()).collect(),
            agents,
            dead: false,
            detected: false,
            origin_bytes: 0,
            left_out: 0,
            world,
        }
    }

    /// Until every client has the file or has failed. Returns the time of the end as well.
    pub(super) fn play(mut self) -> (Fetched, Timestamp) {
        let begun = self.world.now;
        let mut arrivals = Vec::new();
        let mut now = begun;
        while let Some((at, event)) = self.agenda.next() {
            now = at;
            match event {
                Event::Network(event) => {
                    let until = Timestamp(u64::MAX);
                    self.network.handle(event, now, until, &mut self.agenda, &mut arrivals);
                    for arrival in arrivals.drain(..) {
                        self.arrived(arrival, now);
                    }
                }
                Event::Begin(client) => {
                    let node = self.agents[client].node;
                    let host = self.world.settings.nodes;
                    let transfer = self.open(Carried::File(client), host, node, now);
                    self.agents[client].delivery = Some(transfer);
                }
                Event::Tick => {
                    self.tick(now);
                    self.agenda.schedule(now + TICK, Event::Tick);
                }
                Event::Death => self.die(now),
                Event::Detected => self.detected = true,
                Event::Reset(transfer) => self.reset(transfer, now),
            }
            if self.agents.iter().all(|agent| agent.ended.is_some()) || now - begun > LIMIT {
                break;
            }
        }
        (self.conclude(), now)
    }

    fn conclude(&self) -> Fetched {
        let Settings { file, .. } = self.world.settings;
        let rate = |agent: &Agent| match agent.ended {
            Some(at) if !agent.failed => file as f64 * 8e-6 / (at - agent.begun).as_secs_f64(),
            _ => 0.0,
        };
        let mut counts = PieceCounts::default();
        for agent in &self.agents {
            let of = agent.pieces.counts();
            counts.pieces += of.pieces;
            counts.retries += of.retries;
            counts.late += of.late;
            counts.hedges += of.hedges;
            counts.stalls += of.stalls;
        }
        let ends = self.agents.iter().filter_map(|agent| agent.ended);
        Fetched {
            rates: self.agents.iter().map(rate).collect(),
            took: ends.max().unwrap_or_default() - self.world.now,
            origin_bytes: self.origin_bytes,
            counts,
            left_out: self.left_out,
        }
    }

    fn open(&mut self, carried: Carried, to: usize, from: usize, now: Timestamp) -> u32 {
        let transfer = self.transfers.len() as u32;
        self.transfers.push(carried);
        self.network.open(transfer, to as u32, from as u32, now, &mut self.agenda);
        transfer
    }

    fn arrived(&mut self, arrival: Arrival, now: Timestamp) {
        match arrival {
            Arrival::Request(transfer) => self.requested(transfer, now),
            Arrival::LastByte { transfer, at, .. } => self.delivered(transfer, at),
            Arrival::Acknowledged(_) => {}
        }
    }

    /// The server's end has the request.
    fn requested(&mut self, transfer: u32, now: Timestamp) {
        match self.transfers[transfer as usize].clone() {
            Carried::File(client) => {
                self.send(transfer, 0, self.world.settings.file, now);
                self.agents[client].pieces.set_width(usize::MAX);
                self.agents[client].serves = true;
                self.drive(client, now);
            }
            Carried::Piece(flight) => {
                let Some(flight) = flight.upgrade() else { return };
                let from = self.filled_from(&flight, now);
                self.asked(transfer, flight.name, flight.source, from, now);
            }
            Carried::Fill(node, name) => {
                let source = self.fills[node].get(&name).map_or(self.origin(), |fill| fill.from);
                self.asked(transfer, name, source, self.origin(), now);
            }
            Carried::Nothing => {}
        }
    }

    /// Sends a piece out of the store of `source`, or as it comes `from` elsewhere. The origin has all.
    fn asked(&mut self, transfer: u32, name: Name, source: usize, from: usize, now: Timestamp) {
        let length = self.length(name);
        let has = |stored: &BTreeSet<Name>| stored.contains(&name);
        if self.world.stored.get(source).is_none_or(has) {
            self.send(transfer, length, length, now);
        } else {
            self.send(transfer, 0, length, now);
            self.fill(source, name, from, now).relays.push((transfer, 0));
        }
    }

    /// Where a node gets a piece that it lacks: from the node that the policy chooses, if it may relay it and knows
    /// that one as quick, otherwise from the origin.
    fn filled_from(&mut self, flight: &Flight, now: Timestamp) -> usize {
        let holder = self.choose(flight.name, &[], now);
        let vouches = self.world.sources[flight.source].vouches(holder, now);
        // The connection to a node that has died is refused.
        let is_other = holder != flight.source && !(self.dead && holder == self.victim);
        let relays = flight.may_relay && is_other && vouches;
        if relays { holder } else { self.origin() }
    }

    fn origin(&self) -> usize {
        self.world.settings.nodes
    }

    fn send(&mut self, transfer: u32, bytes: u64, total: u64, now: Timestamp) {
        self.network.ready(transfer, bytes, total, now, &mut self.agenda);
    }

    /// The client's end has the last byte.
    fn delivered(&mut self, transfer: u32, at: Timestamp) {
        match std::mem::replace(&mut self.transfers[transfer as usize], Carried::Nothing) {
            Carried::File(client) => self.agents[client].ended = Some(at),
            Carried::Piece(flight) => {
                if let Some(flight) = flight.upgrade() {
                    self.land(&flight, State::Came { at_hand: false }, at);
                }
            }
            Carried::Fill(node, name) => self.filled(node, name, at),
            Carried::Nothing => {}
        }
    }

    /// The fill of a piece at a node: the one under way, or one that begins now.
    fn fill(&mut self, node: usize, name: Name, from: usize, now: Timestamp) -> &mut Fill {
        if !self.fills[node].contains_key(&name) {
            let transfer = self.open(Carried::Fill(node, name), node, from, now);
            self.origin_bytes += if from == self.origin() { self.length(name) } else { 0 };
            let fill = Fill { transfer, from, relays: Vec::new(), own: Vec::new() };
            self.fills[node].insert(name, fill);
        }
        self.fills[node].get_mut(&name).expect("it is under way")
    }

    /// Passes on what has come of a fill.
    fn relay(&mut self, fill: &mut Fill, came: u64, length: u64, now: Timestamp) {
        for (transfer, sent) in &mut fill.relays {
            let is_open = !matches!(self.transfers[*transfer as usize], Carried::Nothing);
            if is_open && came > *sent {
                let more = came - *sent;
                *sent = came;
                self.send(*transfer, more, length, now);
            }
        }
    }

    fn filled(&mut self, node: usize, name: Name, now: Timestamp) {
        let Some(mut fill) = self.fills[node].remove(&name) else { return };
        let length = self.length(name);
        self.relay(&mut fill, length, length, now);
        self.world.stored[node].insert(name);
        for flight in fill.own.iter().filter_map(Weak::upgrade) {
            self.land(&flight, State::Came { at_hand: false }, now);
        }
    }

    /// A flight has ended: the transfers that wait for it are woken.
    fn land(&mut self, flight: &Rc<Flight>, state: State, now: Timestamp) {
        flight.state.set(state);
        for (client, id) in flight.waiting.take() {
            self.ended(client, id, now);
            self.drive(client, now);
        }
    }

    fn tick(&mut self, now: Timestamp) {
        for node in 0..self.fills.len() {
            let mut fills = std::mem::take(&mut self.fills[node]);
            for (name, fill) in &mut fills {
                let came = self.network.received(fill.transfer);
                self.relay(fill, came, self.length(*name), now);
            }
            self.fills[node] = fills;
        }
        for client in 0..self.agents.len() {
            self.deliver(client, now);
            self.drive(client, now);
        }
    }

    /// What the socket of a client's connection takes at a time.
    const SEND_BUFFER: u64 = 256 << 10;

    /// Gives the client's connection what it has room for.
    fn deliver(&mut self, client: usize, now: Timestamp) {
        let agent = &mut self.agents[client];
        let Some(transfer) = agent.delivery.filter(|_| agent.serves && agent.ended.is_none())
        else {
            return;
        };
        let taken = self.network.received(transfer);
        while agent.sent < taken + Self::SEND_BUFFER {
            match agent.pieces.poll_chunk(now) {
                levada_fetch::Next::Piece(_, part) => {
                    let (bytes, total) = (part.end - part.start, self.world.settings.file);
                    agent.sent += bytes;
                    self.network.ready(transfer, bytes, total, now, &mut self.agenda);
                }
                levada_fetch::Next::Failed => {
                    (agent.ended, agent.failed) = (Some(now), true);
                    self.network.close(transfer);
                    return;
                }
                levada_fetch::Next::Wait | levada_fetch::Next::Done => return,
            }
        }
    }

    /// A flight for a transfer of `node`, and whether it is another's.
    pub(super) fn board(
        &mut self,
        node: usize,
        name: Name,
        choice: &Choice,
        now: Timestamp,
    ) -> (Rc<Flight>, bool) {
        if let Some(flight) = self.flights[node].join(name, &choice.tried) {
            return (flight, true);
        }
        let avoided = [&*choice.tried, &choice.behind].concat();
        let may_relay = choice.may_relay && !avoided.is_empty();
        let source = self.choose(name, &avoided, now);
        let flight = Rc::new(Flight { name, source, may_relay, begun: now, ..Flight::default() });
        self.flights[node].0.insert(name, Rc::downgrade(&flight));
        let source = flight.source;
        if source != node {
            let carried = Carried::Piece(Rc::downgrade(&flight));
            if self.dead && source == self.victim {
                let transfer = self.transfers.len() as u32;
                self.transfers.push(carried);
                self.agenda
                    .schedule(now + 4 * self.world.settings.node.delay, Event::Reset(transfer));
            } else {
                flight.transfer.set(Some(self.open(carried, node, source, now)));
            }
        } else if self.world.stored[node].contains(&name) {
            flight.state.set(State::Came { at_hand: true });
        } else {
            let (own, origin) = (Rc::downgrade(&flight), self.origin());
            self.fill(node, name, origin, now).own.push(own);
        }
        (flight, false)
    }

    /// A transfer does not want its flight any more.
    pub(super) fn leave(&mut self, flight: &Rc<Flight>) {
        let is_last = Rc::strong_count(flight) == 1;
        if let Some(transfer) = flight.transfer.get().filter(|_| is_last) {
            self.transfers[transfer as usize] = Carried::Nothing;
            self.network.close(transfer);
        }
    }

    /// The node that the policy chooses, without the avoided ones if that leaves any.
    fn choose(&mut self, name: Name, avoided: &[usize], now: Timestamp) -> usize {
        let World { policy, cluster, rng, settings, .. } = &mut *self.world;
        let down = (self.detected && self.dead).then_some(self.victim);
        let index = |node: usize| NodeIndex(node as u32);
        let down: Vec<_> = down.into_iter().map(index).collect();
        let avoided: Vec<_> = avoided.iter().copied().map(index).chain(down.clone()).collect();
        let key = Key::of(format!("file {} {} {}", settings.seed, name.0, name.1).as_bytes());
        let mut pick = |without: &[NodeIndex]| {
            let mut context = PickContext { now, rng };
            policy.pick(&Request::new(key), &cluster.without(without), &mut context)
        };
        pick(&avoided).or_else(|| pick(&down)).map_or(0, |pick| pick.node.get())
    }

    pub(super) fn length(&self, name: Name) -> u64 {
        let Settings { file, plan, .. } = self.world.settings;
        plan.chunk.min(file.saturating_sub(name.0 * plan.chunk))
    }

    /// Bytes of a piece that have come from another node. A real node sees its own pieces only when they
    /// are whole.
    pub(super) fn received(&self, flight: &Flight) -> u64 {
        flight.transfer.get().map_or(0, |transfer| self.network.received(transfer))
    }

    pub(super) fn nodes_up(&self) -> usize {
        self.world.settings.nodes - usize::from(self.detected && self.dead)
    }

    /// The victim is gone: its fills end, and those who wait for its pieces learn it a moment later.
    fn die(&mut self, now: Timestamp) {
        debug_assert!(matches!(self.fault, Fault::Killed(_)));
        self.dead = true;
        for transfer in 0..self.transfers.len() {
            match &self.transfers[transfer] {
                Carried::Piece(flight) => {
                    let source = flight.upgrade().map(|flight| flight.source);
                    if source == Some(self.victim) {
                        self.network.close(transfer as u32);
                        let at = now + 2 * self.world.settings.node.delay;
                        self.agenda.schedule(at, Event::Reset(transfer as u32));
                    }
                }
                Carried::Fill(node, _) if *node == self.victim => {
                    self.network.close(transfer as u32);
                    self.transfers[transfer] = Carried::Nothing;
                }
                _ => {}
            }
        }
        self.fills[self.victim].clear();
        self.world.stored[self.victim].clear();
        // Nodes that relay pieces from it get them from the origin.
        for node in 0..self.fills.len() {
            let (cut, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
                std::mem::take(&mut self.fills[node])
                    .into_iter()
                    .partition(|(_, fill)| fill.from == self.victim);
            self.fills[node] = kept;
            for (name, Fill { transfer, relays, own, .. }) in cut {
                self.network.close(transfer);
                self.transfers[transfer as usize] = Carried::Nothing;
                let again = self.fill(node, name, self.origin(), now);
                (again.relays, again.own) = (relays, own);
            }
        }
    }

    fn reset(&mut self, transfer: u32, now: Timestamp) {
        let carried = std::mem::replace(&mut self.transfers[transfer as usize], Carried::Nothing);
        if let Carried::Piece(flight) = carried
            && let Some(flight) = flight.upgrade()
        {
            self.land(&flight, State::Failed, now);
        }
    }
}
