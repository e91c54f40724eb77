//! One client's transfer at a node: drives `levada_fetch::Chunked` in the way that a real node does
//! (`levada_edge::large::transfer`).

use std::{collections::BTreeMap, rc::Rc};

use levada_fetch::{Chunked, Progress, Request, RequestId};
use levada_types::Timestamp;

use crate::{
    Settings,
    flight::{Flight, State},
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
        let Agent { pieces, node, .. } = &mut self.agents[client];
        if pieces.poll_timeout().is_some_and(|at| at <= now) {
            pieces.handle_timeout(now, &mut self.world.sources[*node], || true);
        }
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
        let progress = agent.under_way.iter().map(|(id, Awaited { flight, .. })| {
            let came = self.received(flight);
            (*id, Progress { came, fresh: flight.fresh(came), waits: false })
        });
        let progress: BTreeMap<_, _> = progress.collect();
        let agent = &mut self.agents[client];
        let sources = &mut self.world.sources[agent.node];
        let slow = agent.pieces.look(now, sources, |id| progress.get(&id.0).copied());
        self.left_out += slow.len() as u64;
    }

    fn cancel(&mut self, client: usize, id: RequestId) {
        let Some(awaited) = self.agents[client].under_way.remove(&id.0) else { return };
        awaited.flight.waiting.borrow_mut().retain(|waiting| *waiting != (client, id));
        self.leave(&awaited.flight);
    }

    fn request(&mut self, client: usize, request: &Request, now: Timestamp) {
        let agent = &self.agents[client];
        let sources = &self.world.sources[agent.node];
        let choice = agent.pieces.choice(request.id, sources, self.nodes_up(), now);
        let number = request.range.start / self.world.settings.plan.chunk;
        let name = (number, choice.retries);
        let (flight, joined) = self.board(agent.node, name, &choice, now);
        let pieces = &mut self.agents[client].pieces;
        if joined {
            pieces.joined(request.id, flight.begun);
        }
        pieces.asked_of(request.id, flight.source);
        let is_over = flight.state.get() != State::UnderWay;
        let awaited = Awaited { flight: flight.clone(), at_hand: is_over };
        self.agents[client].under_way.insert(request.id.0, awaited);
        if is_over {
            self.ended(client, request.id, now);
        } else {
            flight.waiting.borrow_mut().push((client, request.id));
        }
    }

    /// A request has ended by itself.
    pub(super) fn ended(&mut self, client: usize, id: RequestId, now: Timestamp) {
        let agent = &mut self.agents[client];
        let Some(Awaited { flight, at_hand }) = agent.under_way.remove(&id.0) else { return };
        let source = flight.source;
        match flight.state.get() {
            State::Came { at_hand: stored } if stored || at_hand => {
                agent.pieces.on_chunk_at_hand(id, flight);
            }
            State::Came { .. } => {
                let is_news = flight.is_news();
                let fresh = flight.fresh(self.length(flight.name));
                let agent = &mut self.agents[client];
                let took = agent.pieces.on_chunk(now, id, flight);
                if let Some(took) = took.filter(|_| is_news) {
                    let sources = &mut self.world.sources[agent.node];
                    sources.came(source, took);
                    sources.received(source, fresh, 1, now);
                }
            }
            _ => agent.pieces.on_failure(now, id, &mut self.world.sources[agent.node]),
        }
    }
}
