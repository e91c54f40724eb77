//! One client's transfer at a node: drives `levada_fetch::Chunked` in the way that a real node does
//! (`levada_edge::large::transfer`).

use std::{collections::BTreeMap, rc::Rc};

use levada_fetch::{Chunked, MAX_RETRIES, Request, RequestId, Sources};
use levada_types::Timestamp;

use super::{
    Settings,
    flight::{Flight, Name, State},
    run::Run,
};

/// See the module.
pub(super) struct Agent {
    pub(super) node: usize,
    pub(super) begun: Timestamp,
    pub(super) ended: Option<Timestamp>,
    pub(super) failed: bool,
    /// The network's transfer to the client, and how much of the file it was given.
    pub(super) delivery: Option<u32>,
    pub(super) sent: u64,
    /// The request has come.
    pub(super) serves: bool,
    pub(super) pieces: Chunked<Rc<Flight>>,
    under_way: BTreeMap<u64, Awaited>,
    /// The nodes that failed or were late with each piece.
    tried: BTreeMap<u64, Vec<usize>>,
}

struct Awaited {
    flight: Rc<Flight>,
    /// It was here before it was asked for.
    at_hand: bool,
}

impl Agent {
    pub(super) fn new(node: usize, settings: &Settings, begun: Timestamp) -> Self {
        Self {
            node,
            begun,
            ended: None,
            failed: false,
            delivery: None,
            sent: 0,
            serves: false,
            pieces: Chunked::new(settings.plan, settings.file, 0..settings.file),
            under_way: BTreeMap::new(),
            tried: BTreeMap::new(),
        }
    }
}

impl Run<'_> {
    /// Asks for what is due, until nothing is.
    pub(super) fn drive(&mut self, client: usize, now: Timestamp) {
        let agent = &self.agents[client];
        if !agent.serves || agent.ended.is_some() {
            return;
        }
        self.look(client, now);
        self.time_out(client, now);
        while let Some(id) = self.agents[client].pieces.poll_cancel() {
            self.cancel(client, id);
        }
        while let Some(request) = self.agents[client].pieces.poll_request(now) {
            self.request(client, &request, now);
        }
    }

    fn look(&mut self, client: usize, now: Timestamp) {
        let agent = &self.agents[client];
        if agent.pieces.poll_look().is_none_or(|at| now < at) {
            return;
        }
        let alone = agent.under_way.iter().filter(|(_, awaited)| !awaited.flight.shared.get());
        let so_far =
            alone.map(|(id, Awaited { flight, .. })| (*id, (flight.source, self.received(flight))));
        let so_far: BTreeMap<_, _> = so_far.collect();
        self.agents[client].pieces.look(now, |id| so_far.get(&id.0).copied());
    }

    fn time_out(&mut self, client: usize, now: Timestamp) {
        let agent = &self.agents[client];
        if agent.pieces.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        for id in agent.pieces.late(now).collect::<Vec<_>>() {
            let Some(awaited) = self.agents[client].under_way.get(&id.0) else { continue };
            let flight = awaited.flight.clone();
            if flight.is_news() {
                self.judge(flight.node, |all| all.late(flight.source, now));
            }
            let tried = self.agents[client].tried.entry(flight.name.0).or_default();
            tried.push(flight.source);
        }
        self.agents[client].pieces.handle_timeout(now, || true);
    }

    fn cancel(&mut self, client: usize, id: RequestId) {
        let Some(awaited) = self.agents[client].under_way.remove(&id.0) else { return };
        awaited.flight.waiting.borrow_mut().retain(|waiting| *waiting != (client, id));
        self.leave(&awaited.flight);
    }

    fn request(&mut self, client: usize, request: &Request, now: Timestamp) {
        let node = self.agents[client].node;
        let (name, avoided) = self.name(client, request, now);
        let (flight, joined) = self.board(node, name, &avoided, now);
        if joined {
            self.agents[client].pieces.joined(request.id, flight.begun);
        }
        let is_over = flight.state.get() != State::UnderWay;
        let awaited = Awaited { flight: flight.clone(), at_hand: is_over };
        self.agents[client].under_way.insert(request.id.0, awaited);
        if is_over {
            self.ended(client, request.id, now);
        } else {
            flight.waiting.borrow_mut().push((client, request.id));
        }
    }

    /// The name under which a piece is asked for, and the nodes that are avoided.
    fn name(&self, client: usize, request: &Request, now: Timestamp) -> (Name, Vec<usize>) {
        let agent = &self.agents[client];
        let plan = self.world.settings.plan;
        let number = request.range.start / plan.chunk;
        let tried = agent.tried.get(&number).into_iter().flatten().copied();
        let busy = agent.under_way.values().filter(|awaited| awaited.flight.name.0 == number);
        let mut avoided: Vec<_> = tried.chain(busy.map(|awaited| awaited.flight.source)).collect();
        let nodes = self.nodes_up();
        let rounds = u8::try_from(avoided.len() / nodes).unwrap_or(MAX_RETRIES).min(MAX_RETRIES);
        let sources = &self.world.sources[agent.node];
        avoided.extend(sources.left_out(now));
        avoided.extend((0..nodes).filter(|node| {
            let from = agent.under_way.values().filter(|a| a.flight.source == *node);
            sources.is_behind(*node, from.count())
        }));
        ((number, if plan.salted { request.retries } else { rounds }), avoided)
    }

    /// A request has ended by itself.
    pub(super) fn ended(&mut self, client: usize, id: RequestId, now: Timestamp) {
        let Some(awaited) = self.agents[client].under_way.remove(&id.0) else { return };
        let flight = awaited.flight;
        let is_news = flight.is_news();
        if let State::Came { at_hand } = flight.state.get() {
            if at_hand || awaited.at_hand {
                self.agents[client].pieces.on_chunk_at_hand(id, flight);
            } else {
                self.came(client, id, &flight, is_news, now);
            }
        } else {
            self.agents[client].pieces.on_failure(now, id);
            if is_news {
                self.judge(flight.node, |all| all.late(flight.source, now));
            }
            self.agents[client].tried.entry(flight.name.0).or_default().push(flight.source);
        }
    }

    fn came(
        &mut self,
        client: usize,
        id: RequestId,
        flight: &Rc<Flight>,
        is_news: bool,
        now: Timestamp,
    ) {
        let Some(took) = self.agents[client].pieces.on_chunk(now, id, flight.clone()) else {
            return;
        };
        let source = flight.source;
        if is_news && self.judge(flight.node, |all| all.came(source, took, now)) {
            let Agent { under_way, pieces, .. } = &mut self.agents[client];
            let beside = under_way.iter().filter(|(_, other)| other.flight.source == source);
            beside.for_each(|(id, _)| pieces.doubt(RequestId(*id)));
        }
        // A hedge that wins says the same of the first request as a timeout would.
        let earlier = self.agents[client].under_way.range(..id.0);
        let earlier: Vec<_> = earlier
            .filter(|(_, other)| other.flight.name.0 == flight.name.0)
            .map(|(_, other)| other.flight.clone())
            .collect();
        for other in earlier.into_iter().filter(|other| other.is_news()) {
            self.judge(other.node, |all| all.late(other.source, now));
        }
        self.agents[client].tried.remove(&flight.name.0);
    }

    /// Takes in what a node has learned of a source. Returns whether it stops asking it.
    fn judge(&mut self, node: usize, take_in: impl FnOnce(&mut Sources) -> bool) -> bool {
        let is_left_out = take_in(&mut self.world.sources[node]);
        self.left_out += u64::from(is_left_out);
        is_left_out
    }
}
