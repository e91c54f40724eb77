//! The life of a request over regions, top to bottom.
//!
//! ```text
//! send      a client's request comes to a node of its region, each in turn
//! arrive    this node's policy chooses a node, which is asked once; the origin answers
//! lookup    memory, a fill in progress, or a new fill
//! fill      single flight: the shield's node that this node's policy for it chooses, or the origin, is asked
//! answer    the parts of the body, each as soon as it has come, go back to whoever asked
//! ended     the client has everything: the load at the chosen node falls
//! ```
//!
//! A kept connection carries one response at a time and no link is full, so `answer` works out at once when each part
//! comes to the client.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use levada_policy::PickContext;
use levada_topology::{KeptConnection, Part, RegionMap};
use levada_types::{Request, Rng, Timestamp};

use super::{
    Regions,
    node::{Chosen, RegionNode, nodes},
    report::RegionReport,
};
use crate::{
    End, Outcome, Prepared, Problems, Progress, Remark, Time,
    kernel::Agenda,
    server::Place,
    slab::{NONE, Slab},
    workload::{Demand, Document, documents},
};

/// Plays a prepared scenario with regions.
pub(crate) fn run(
    prepared: &Prepared,
    regions: &Regions,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Outcome {
    let map = regions.map(&mut Problems::default()).expect("the scenario has been prepared");
    RegionWorld::new(prepared, regions, &map).run(watch)
}

struct RegionWorld<'a> {
    prepared: &'a Prepared,
    regions: &'a Regions,
    map: &'a RegionMap,
    now: u64,
    /// When the workload begins: all times are in nanoseconds.
    begin: u64,
    agenda: Agenda<Event>,
    demand: Demand,
    documents: Vec<Document>,
    nodes: Vec<RegionNode>,
    /// Kept connections by the place that asks and the one that answers, each with the time at which it is free.
    /// The one used last is the last.
    kept: BTreeMap<(u32, u32), Vec<(u64, KeptConnection)>>,
    exchanges: Slab<Exchange>,
    fills: Slab<Fill>,
    /// Requests of each region so far.
    sent: Vec<u64>,
    report: RegionReport,
    rng: Rng,
    events: u64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next request of the workload.
    Send,
    /// Every region requests this object.
    Fill(u32),
    Arrive(u32),
    Stored(u32),
    Ended(u32),
}

/// A request of one place at another, from its sending to its answer.
struct Exchange {
    document: u32,
    place: u32,
    asker: Asker,
    sent: u64,
    connection: Option<KeptConnection>,
    /// Whether the answer is that nothing has changed.
    renews: bool,
    /// The node that the policy chose, and its load.
    chosen: Option<Chosen>,
}

#[derive(Clone, Copy)]
enum Asker {
    /// A client of this region; `first`: the region's first request for the object.
    Client {
        region: usize,
        first: bool,
    },
    /// The node that an exchange is at passes it on.
    Exchange(u32),
    Fill(u32),
}

/// A fetch into the memory of a node, with the exchanges that wait for it.
struct Fill {
    node: u32,
    document: u32,
    renews: bool,
    begun: u64,
    /// The node of the shield that is asked, and its load.
    chosen: Option<Chosen>,
    /// The answer, and the time at which it becomes stale.
    come: Option<(Vec<Part>, u64)>,
    followers: Vec<u32>,
}

impl<'a> RegionWorld<'a> {
    fn new(prepared: &'a Prepared, regions: &'a Regions, map: &'a RegionMap) -> Self {
        let scenario = &prepared.scenario;
        let documents = documents(&prepared.trace, None);
        let demand = Demand::new(scenario, prepared.trace.clone(), &documents, 1);
        let (all, objects) = (regions.region.len(), documents.len());
        let begin = regions.fill.map_or(0, |interval| objects as u64 * nanoseconds(interval));
        let warm = begin.saturating_add(nanoseconds(scenario.measure.warm_up));
        Self {
            report: RegionReport::new(warm, map, objects),
            nodes: nodes(prepared, regions, map),
            sent: vec![0; all],
            rng: Rng::new(scenario.seed ^ CHANCE),
            agenda: Agenda::default(),
            kept: BTreeMap::new(),
            exchanges: Slab::new(),
            fills: Slab::new(),
            now: 0,
            begin,
            events: 0,
            prepared,
            regions,
            map,
            demand,
            documents,
        }
    }

    /// Plays the run to its end.
    fn run(mut self, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Outcome {
        let limits = &self.prepared.scenario.measure;
        let (begin, every) = (self.begin, self.regions.fill.map_or(0, nanoseconds));
        let last = limits.duration.map_or(u64::MAX, |time| begin.saturating_add(nanoseconds(time)));
        for object in 0..self.regions.fill.map_or(0, |_| self.documents.len() as u64) {
            self.agenda.schedule(Timestamp(object * every), Event::Fill(object as u32));
        }
        self.schedule_send(begin);
        let mut end = End::Done;
        while let Some((at, event)) = self.agenda.next() {
            if at.0 > last {
                self.now = last;
                break;
            }
            (self.now, self.events) = (at.0, self.events + 1);
            if self.events.is_multiple_of(WATCHED_EVERY) && watch(self.progress()).is_break() {
                end = End::Stopped;
                break;
            }
            self.handle(event);
        }
        let is_early = limits.duration.is_some() && self.now < last
            || limits.requests.is_some_and(|most| self.demand.played() < most);
        let has_ended = end == End::Done && self.demand.is_at_its_end() && is_early;
        let after = Timestamp(self.now).as_secs_f64();
        let ended = has_ended.then_some(Remark::TraceEnded { after });
        let mut remarks: Vec<_> = ended.into_iter().collect();
        if end == End::Done && self.report.measured_nothing() {
            remarks.push(Remark::NothingMeasured);
        }
        Outcome { end, remarks, ..self.report.conclude(self.now, self.events) }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Send => {
                let (_, document) = self.demand.next(Timestamp(self.now - self.begin));
                let region = self.region_in_turn();
                self.send(region, document);
                self.schedule_send(self.now);
            }
            Event::Fill(document) => {
                (0..self.sent.len()).for_each(|region| self.send(region, document));
            }
            Event::Arrive(exchange) => self.arrive(exchange),
            Event::Stored(fill) => self.stored(fill),
            Event::Ended(exchange) => self.ended(exchange),
        }
    }

    /// The workload begins when the fill is over.
    fn schedule_send(&mut self, now: u64) {
        if self.demand.played() < self.prepared.most_requests()
            && let Some(at) = self.demand.next_time(Timestamp(now - self.begin))
        {
            self.agenda.schedule(Timestamp(self.begin + at.0), Event::Send);
        }
    }

    /// The region that has had least of its part so far.
    fn region_in_turn(&self) -> usize {
        let behind = |at: &usize| self.sent[*at] as f64 / self.regions.region[*at].clients;
        let with_clients = (0..self.sent.len()).filter(|at| self.regions.region[*at].clients > 0.0);
        with_clients.min_by(|a, b| behind(a).total_cmp(&behind(b))).unwrap_or(0)
    }

    /// A client sends a request to a node of its region.
    fn send(&mut self, region: usize, document: u32) {
        let before: usize = self.regions.region[..region].iter().map(|region| region.nodes).sum();
        let in_turn = self.sent[region] as usize % self.regions.region[region].nodes;
        self.sent[region] += 1;
        let first = self.report.sent(self.now, region, document);
        let place = (before + in_turn) as u32;
        self.ask(None, place, document, false, Asker::Client { region, first });
    }

    /// Sends a request to a place, from another one over a kept connection.
    fn ask(&mut self, from: Option<u32>, place: u32, document: u32, renews: bool, asker: Asker) {
        let (mut arrives, mut connection) = (self.now + self.time_of(place), None);
        if from.is_none() {
            arrives += nanoseconds(self.regions.client_time);
        }
        if let Some(from) = from {
            let trip = self.map.trip(self.region_of(from), self.region_of(place));
            let (ready, kept) = self.connection(from, place, trip);
            (arrives, connection) = (arrives + ready + trip / 2, Some(kept));
        }
        let (sent, chosen) = (self.now, None);
        let exchange = Exchange { document, place, asker, sent, connection, renews, chosen };
        let exchange = self.exchanges.insert(exchange);
        self.agenda.schedule(Timestamp(arrives), Event::Arrive(exchange));
    }

    /// The free connection that was used last, or a new one; and the time until it takes a request.
    fn connection(&mut self, from: u32, to: u32, trip: u64) -> (u64, KeptConnection) {
        let kept = self.kept.entry((from, to)).or_default();
        let last = kept.iter().rposition(|(free, _)| *free <= self.now);
        match last.map(|at| kept.remove(at)) {
            Some((_, connection)) => (0, connection),
            None => {
                let window = u64::from(self.prepared.scenario.network.initial_window);
                (trip, KeptConnection::open(self.now + trip, trip, window))
            }
        }
    }

    /// The request has come to a place. A node that a client asks asks the one that its policy chooses.
    fn arrive(&mut self, exchange: u32) {
        let Exchange { document, place, asker, .. } = self.exchanges[exchange];
        if place as usize == self.nodes.len() {
            self.report.asked_origin(document);
            let fresh = self.regions.fresh.map_or(u64::MAX, nanoseconds);
            let whole = self.whole(exchange);
            return self.answer(exchange, &[whole], self.now.saturating_add(fresh));
        }
        if !matches!(asker, Asker::Client { .. }) {
            return self.lookup(exchange);
        }
        let request = self.request(document);
        let mut context = PickContext { now: Timestamp(self.now), rng: &mut self.rng };
        let (to, chosen) = self.nodes[place as usize].serving.of(&request, &mut context);
        self.exchanges[exchange].chosen = Some(chosen);
        if to == place {
            return self.lookup(exchange);
        }
        self.ask(Some(place), to, document, false, Asker::Exchange(exchange));
    }

    /// The object is in the node's memory, a fill of it is in progress, or a new one begins.
    fn lookup(&mut self, exchange: u32) {
        let Exchange { document, place, asker, .. } = self.exchanges[exchange];
        let found = self.nodes[place as usize].memory.find(document);
        let stale = self.nodes[place as usize].stale.get(&document).copied();
        let (expires, renewal) = stale.unwrap_or((u64::MAX, NONE));
        let is_hit = matches!(found, Some(Place::Memory(_))) && self.now < expires;
        if !matches!(asker, Asker::Fill(_)) {
            self.report.looked_up(self.now, self.region_of(place), is_hit);
        }
        match found {
            Some(Place::Memory(_)) if is_hit => {
                let whole = self.whole(exchange);
                self.answer(exchange, &[whole], expires);
            }
            Some(Place::Memory(_)) if renewal == NONE => self.fill(exchange, true),
            Some(Place::Memory(_)) => self.follow(exchange, renewal),
            Some(Place::Fill(fill)) => self.follow(exchange, fill),
            // There are no disk tiers here.
            None | Some(Place::Disk) => self.fill(exchange, false),
        }
    }

    /// Begins a fill: the node that the shield's policy chooses is asked, or the origin.
    fn fill(&mut self, exchange: u32, renews: bool) {
        let Exchange { document, place: node, asker, .. } = self.exchanges[exchange];
        let (upstream, chosen) = self.upstream(node, document, asker);
        let (begun, followers) = (self.now, vec![exchange]);
        let fill = Fill { node, document, renews, begun, chosen, come: None, followers };
        let fill = self.fills.insert(fill);
        let own = &mut self.nodes[node as usize];
        match renews {
            true => drop(own.stale.entry(document).and_modify(|(_, renewal)| *renewal = fill)),
            false => own.memory.begin_fill(document, fill),
        }
        self.ask(Some(node), upstream, document, renews, Asker::Fill(fill));
    }

    /// The place that a node asks for an object. It asks the origin if it was asked by another one's fill, or is the
    /// chosen node itself.
    fn upstream(&mut self, node: u32, document: u32, asker: Asker) -> (u32, Option<Chosen>) {
        let (origin, request) = (self.nodes.len() as u32, self.request(document));
        let shield = self.nodes[node as usize].shield.as_mut();
        let Some(shield) = shield.filter(|_| !matches!(asker, Asker::Fill(_))) else {
            return (origin, None);
        };
        let mut context = PickContext { now: Timestamp(self.now), rng: &mut self.rng };
        let (chosen, load) = shield.of(&request, &mut context);
        if chosen == node { (origin, None) } else { (chosen, Some(load)) }
    }

    /// A request for an object, as policies see it.
    fn request(&self, document: u32) -> Request {
        let Document { key, size } = self.documents[document as usize];
        Request { size: Some(size), ..Request::new(key) }
    }

    /// The exchange waits for a fill, of which a part may have come.
    fn follow(&mut self, exchange: u32, fill: u32) {
        let Exchange { document, place, asker, renews, .. } = self.exchanges[exchange];
        // Two nodes that ask each other do not wait for each other.
        let is_asked_elsewhere =
            self.fills[fill].chosen.is_some() && self.fills[fill].come.is_none();
        if matches!(asker, Asker::Fill(_)) && is_asked_elsewhere {
            let origin = self.nodes.len() as u32;
            return self.ask(Some(place), origin, document, renews, Asker::Exchange(exchange));
        }
        match self.fills[fill].come.clone() {
            Some((parts, expires)) => self.answer_by(exchange, fill, &parts, expires),
            None => self.fills[fill].followers.push(exchange),
        }
    }

    fn answer_by(&mut self, exchange: u32, fill: u32, parts: &[Part], expires: u64) {
        let after = parts.iter().filter(|part| part.at > self.now).copied();
        let before = parts.iter().rev().find(|part| part.at <= self.now);
        let before = before.map(|part| Part { at: self.now, ..*part });
        let parts: Vec<_> = before.into_iter().chain(after).collect();
        match (self.fills[fill].renews, parts.last()) {
            // What is stored is answered with.
            (true, Some(last)) => {
                let whole = Part { at: last.at, ..self.whole(exchange) };
                self.answer(exchange, &[whole], expires);
            }
            _ => self.answer(exchange, &parts, expires),
        }
    }

    /// The whole answer to an exchange, at once.
    fn whole(&self, exchange: u32) -> Part {
        let Exchange { document, renews, .. } = self.exchanges[exchange];
        let body = if renews { 0 } else { self.documents[document as usize].size };
        let segment = u64::from(self.prepared.scenario.network.segment);
        Part { at: self.now, segments: (body + self.regions.head.0).div_ceil(segment).max(1) }
    }

    /// An answer begins to go back. Its parts come to the place of the exchange at these times.
    fn answer(&mut self, exchange: u32, parts: &[Part], expires: u64) {
        let Exchange { place, asker, sent, .. } = self.exchanges[exchange];
        if let Asker::Client { region, first } = asker {
            let last = parts.last().map_or(self.now, |part| part.at);
            self.report.answered(sent, region, first, last - sent);
            return self.agenda.schedule(Timestamp(last), Event::Ended(exchange));
        }
        let connection = self.exchanges[exchange].connection.take();
        self.exchanges.remove(exchange);
        let from = match asker {
            Asker::Fill(fill) => self.fills[fill].node,
            Asker::Exchange(asking) => self.exchanges[asking].place,
            Asker::Client { .. } => place,
        };
        let mut connection = connection.expect("places ask over connections");
        let parts = connection.carry(parts);
        let last = parts.last().map_or(self.now, |part| part.at);
        let segments = parts.last().map_or(0, |part| part.segments);
        let [a, b] = [place, from].map(|place| self.region_of(place));
        self.report.carried(a, b, segments * u64::from(self.prepared.scenario.network.segment));
        self.kept.entry((from, place)).or_default().push((last, connection));
        match asker {
            Asker::Fill(fill) => {
                self.fills[fill].come = Some((parts.clone(), expires));
                for follower in std::mem::take(&mut self.fills[fill].followers) {
                    self.answer_by(follower, fill, &parts, expires);
                }
                self.agenda.schedule(Timestamp(last), Event::Stored(fill));
            }
            Asker::Exchange(asking) => self.answer(asking, &parts, expires),
            Asker::Client { .. } => {}
        }
    }

    /// A fill is over.
    fn stored(&mut self, fill: u32) {
        let Fill { node, document, renews, begun, .. } = self.fills[fill];
        let come = self.fills[fill].come.take();
        let expires = come.map_or(u64::MAX, |(_, expires)| expires);
        if let Some(chosen) = self.fills[fill].chosen.take()
            && let Some(shield) = &mut self.nodes[node as usize].shield
        {
            let mut context = PickContext { now: Timestamp(self.now), rng: &mut self.rng };
            shield.ended(chosen, Duration::from_nanos(self.now - begun), &mut context);
        }
        self.fills.remove(fill);
        let Document { key, size } = self.documents[document as usize];
        let node = &mut self.nodes[node as usize];
        if !renews {
            node.memory.end_fill(document, key, size);
        }
        if expires < u64::MAX {
            node.stale.insert(document, (expires, NONE));
        }
    }

    /// The client has everything: the load falls, and the policy learns how long it took.
    fn ended(&mut self, exchange: u32) {
        let Exchange { place, sent, .. } = self.exchanges[exchange];
        let chosen = self.exchanges[exchange].chosen.take();
        self.exchanges.remove(exchange);
        if let Some(chosen) = chosen {
            let mut context = PickContext { now: Timestamp(self.now), rng: &mut self.rng };
            let latency = Duration::from_nanos(self.now - sent);
            self.nodes[place as usize].serving.ended(chosen, latency, &mut context);
        }
    }

    fn region_of(&self, place: u32) -> usize {
        let origin = || self.map.find(&self.regions.origin).unwrap_or(0);
        self.nodes.get(place as usize).map_or_else(origin, |node| node.region)
    }

    /// Time that a place takes.
    fn time_of(&self, place: u32) -> u64 {
        let is_node = (place as usize) < self.nodes.len();
        let time = if is_node { self.regions.node_time } else { self.regions.origin_time };
        nanoseconds(time)
    }

    fn progress(&self) -> Progress {
        Progress {
            now: Timestamp(self.now),
            finished: self.demand.played(),
            in_flight: self.exchanges.len() as u64,
            rate: self.demand.rate(Timestamp(self.now)).unwrap_or(0.0),
            events: self.events,
        }
    }
}

fn nanoseconds(time: Time) -> u64 {
    u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX)
}

/// Seeds the policies' random numbers apart from others.
const CHANCE: u64 = 0x0072_6567_696f_6e73;
/// Progress is reported each time this many events have passed.
const WATCHED_EVERY: u64 = 1 << 16;
