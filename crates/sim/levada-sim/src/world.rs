//! The life of a simulated request, top to bottom: the mirror of levada-edge's `pipeline.rs`.
//!
//! ```text
//! send           a client sends a request; its front-end answers it, or the network carries it to the server
//! redirect       the client's redirector chooses the server by its policy
//! serve_locally  the server has capacity, or the request waits in its queue
//! lookup         the CPU has set the connection up: memory, a fill in progress, or a new fill, from the
//!                disk tier or the origin
//! fill           single flight: one request starts the read, block by block
//! serve_from_fill  the request follows the fill and is served as its blocks arrive
//! respond        the CPU hands the next block to the network, if it has been filled
//! finish         everything is acknowledged: loads fall, the CPU takes the connection down
//! closed         the capacity is free for the next request in the queue
//! ```

mod failures;
mod fills;
mod freshness;
mod front_ends;
mod origin;

use std::{collections::VecDeque, ops::ControlFlow};

use levada_policy::{NodeIndex, RequestOutcome};
use levada_topology::{Role, Topology};
use levada_types::{Key, Request as PolicyRequest, ServiceClass, Timestamp};

use self::{
    fills::{Fill, FillKind, FillSource},
    freshness::Freshness,
    front_ends::FrontCache,
    origin::Origin,
};
use crate::{
    End, Outcome, Prepared, Progress, Remark,
    collect::{Collector, Ending, Found, TICK},
    kernel::Agenda,
    network::{Arrival, BYTES_PER_TRANSFER, Network, NetworkEvent},
    redirector::{Counted, Redirectors},
    scenario::{Arrivals, Scenario, Servers},
    server::{Cost, Line, Place, Server, block_bytes, blocks},
    slab::{NONE, Slab},
    workload::{Demand, Document, documents},
};

pub(crate) struct World<'a> {
    now: Timestamp,
    agenda: Agenda<Event>,
    demand: Demand,
    /// The time of the next request. It is kept outside the agenda, where it would cost one more
    /// event per request.
    next_send: Option<Timestamp>,
    documents: Vec<Document>,
    redirectors: Redirectors,
    network: Network,
    servers: Vec<Server>,
    /// The costs of each server.
    costs: Vec<Cost>,
    origin: Option<Origin>,
    /// Where documents expire or are purged.
    freshness: Option<Freshness>,
    front_ends: Vec<FrontEnd>,
    /// The documents of each front-end, where they hold any.
    front_caches: Vec<FrontCache>,
    /// Requests that a front-end may have outstanding in an open loop.
    admitted_limit: u64,
    active_limit: u32,
    queue_limit: u32,
    /// More requests in flight than this exceed the capacity of the servers' queues. The limit ends
    /// a run at an absurd rate before it fills the memory.
    most_in_flight: usize,
    requests: Slab<Request>,
    fills: Slab<Fill>,
    collector: Collector,
    arrivals: Vec<Arrival>,
    events: u64,
    failed: bool,
    /// Whether servers fetch from each other's memory.
    global_memory: bool,
    prepared: &'a Prepared,
    sample: u64,
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The CPU has finished the work of this request's stage.
    Cpu(u32),
    /// A disk, the origin's link or the CPU of another server has a block for this fill.
    Block(u32),
    /// The origin begins to send the body of this fill.
    Answer(u32),
    Network(NetworkEvent),
    /// Takes a checkpoint.
    Tick,
    /// Counts replicas.
    Sample,
    /// Purges the documents that this list names.
    Purge(u32),
    /// The next server of this list of failures fails.
    Fail(u32),
    /// This server is back.
    Return(u32),
    /// Front-ends learn whether this server is up.
    Notice(u32),
    /// Speeds have moved on by so many servers.
    Speeds(u32),
}

impl From<NetworkEvent> for Event {
    fn from(event: NetworkEvent) -> Self {
        Self::Network(event)
    }
}

/// The admission of one front-end: requests outstanding, and those that wait with the times at which
/// their clients sent them.
#[derive(Clone, Default)]
struct FrontEnd {
    admitted: u64,
    waiting: VecDeque<(Timestamp, u32, u32)>,
}

/// A request in flight.
#[derive(Debug)]
struct Request {
    sent: Timestamp,
    document: u32,
    client: u32,
    server: u32,
    stage: Stage,
    /// Earlier tries, which found another server down.
    tries: u8,
    /// The next block to transmit.
    block: u32,
    /// The fill that it follows; [`NONE`] when the whole file is in memory.
    fill: u32,
    /// The next request in the same list: a server's queue, or a fill's followers.
    next: u32,
    counted: Option<Counted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// On its way.
    Arriving,
    /// In the server's queue.
    Waiting,
    /// The CPU sets the connection up.
    Connecting,
    /// The CPU hands a block to the network.
    Transmitting,
    /// The next block has not been filled yet.
    Filling,
    /// The network has everything.
    Sending,
    /// The CPU takes the connection down.
    Closing,
    /// Its server has failed; an event for it is still to come.
    Lost,
    /// Removed.
    Gone,
}

/// Bytes of memory per request in flight on the network in bulk: its own state, the state of its
/// transfer over a path of twelve links, and an event.
pub const BYTES_PER_REQUEST: usize =
    size_of::<Request>() + BYTES_PER_TRANSFER + 12 * 4 + Agenda::<Event>::BYTES_PER_EVENT;

impl<'a> World<'a> {
    pub(crate) fn new(prepared: &'a Prepared) -> Self {
        let Prepared { scenario, topology, routes, trace, .. } = prepared;
        let mut documents = documents(trace, scenario.workload.flash.as_ref());
        let mut servers_at = topology.places_of(Role::Server).collect::<Vec<_>>();
        servers_at.truncate(scenario.servers.count);
        let clients_at = topology.places_of(Role::Client).collect::<Vec<_>>();
        let redirectors_at = topology.places_of(Role::Redirector).collect::<Vec<_>>();
        let servers: Vec<_> = servers_at.iter().map(|_| Server::new(scenario)).collect();
        let front_caches = FrontCache::of(scenario, redirectors_at.len());
        let answering = if front_caches.is_empty() { &[][..] } else { &redirectors_at };
        let answering = [&servers_at, answering].concat();
        let network = Network::new(&scenario.network, topology, routes, &answering, &clients_at);
        let demand = Demand::new(scenario, trace.clone(), &documents, clients_at.len() as u32);
        documents.push(REFUSAL);
        Self {
            now: Timestamp::ZERO,
            agenda: Agenda::default(),
            demand,
            next_send: None,
            redirectors: Redirectors::new(
                scenario,
                topology,
                routes,
                &redirectors_at,
                &servers_at,
                &clients_at,
            ),
            network,
            collector: Collector::new(prepared, documents.len(), servers.len()),
            freshness: Freshness::new(&scenario.freshness, &documents, scenario.seed),
            documents,
            costs: (0..servers.len()).map(|n| Cost::new(&scenario.servers, n, 0)).collect(),
            origin: (scenario.origin.as_ref())
                .map(|origin| Origin::new(origin, Timestamp::ZERO + scenario.measure.warm_up.0)),
            front_ends: vec![FrontEnd::default(); redirectors_at.len()],
            front_caches,
            admitted_limit: admitted_limit(scenario, redirectors_at.len()),
            active_limit: scenario.servers.active,
            queue_limit: scenario.servers.queue,
            servers,
            most_in_flight: most_in_flight(&scenario.servers),
            requests: Slab::new(),
            fills: Slab::new(),
            arrivals: Vec::new(),
            events: 0,
            failed: false,
            global_memory: scenario.has_global_memory(),
            prepared,
            sample: scenario.measure.sample.0.as_nanos() as u64,
        }
    }

    /// Plays the run to its end.
    pub(crate) fn run(mut self, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Outcome {
        self.begin();
        let limits = &self.prepared.scenario.measure;
        let last = limits.duration.map_or(Timestamp(u64::MAX), |time| Timestamp::ZERO + time.0);
        let most = self.prepared.most_requests();
        let end = loop {
            if self.failed {
                break End::Overload;
            }
            if self.events & WATCH == WATCH && watch(self.progress()).is_break() {
                break End::Stopped;
            }
            // All requests were sent: wait for the last ones to finish.
            if self.demand.played() >= most || self.demand.is_at_its_end() {
                self.next_send = None;
                if self.requests.len() == 0 {
                    break End::Done;
                }
            }
            if self.next_time() > last {
                self.now = last;
                break End::Done;
            }
            self.next();
        };
        self.conclude(end)
    }

    /// The time of the next event.
    fn next_time(&mut self) -> Timestamp {
        let send = self.next_send.unwrap_or(Timestamp(u64::MAX));
        self.agenda.next_time(send).unwrap_or(send)
    }

    fn begin(&mut self) {
        self.fill_memories();
        self.agenda.schedule(self.now, Event::Tick);
        self.agenda.schedule(Timestamp(self.sample), Event::Sample);
        self.begin_failures();
        self.set_speeds(0);
        self.begin_purges();
        self.next_send = self.demand.next_time(self.now);
        if self.demand.is_closed() {
            for _ in 0..self.prepared.outstanding() {
                self.send();
            }
        }
    }

    /// Plays the requests that fill the memories: each is over at once.
    fn fill_memories(&mut self) {
        let all = self.prepared.scenario.cache.warm_requests;
        for number in 0..all {
            let (client, document) = self.demand.before(number);
            if !self.front_caches.is_empty() && self.warms_front_end(client, document) {
                continue;
            }
            let Some((server, _)) = self.redirect(client, document, None) else { return };
            if !self.is_kept(document) {
                continue;
            }
            let source = match self.find(server, document) {
                None => FillSource::Origin,
                Some(Place::Disk) => FillSource::Tier,
                Some(_) => FillSource::Memory(server),
            };
            if !matches!(source, FillSource::Memory(_)) {
                self.servers[server as usize].memory.begin_fill(document, NONE);
                self.keep(server, document, source, None);
            }
            if self.freshness.is_some() {
                let rate = self.prepared.scenario.workload.rate;
                let then = self.demand.time_before(number, all, rate);
                self.filled(server, document, then, source == FillSource::Origin);
            }
        }
    }

    /// Handles the next event.
    fn next(&mut self) {
        self.events += 1;
        self.now = self.next_time();
        if self.next_send == Some(self.now) {
            self.send();
            self.next_send = self.demand.next_time(self.now);
            return;
        }
        let Some((_, event)) = self.agenda.next() else { return };
        match event {
            Event::Cpu(request) => match self.requests[request].stage {
                Stage::Connecting => self.lookup(request),
                Stage::Transmitting => self.transmitted(request),
                Stage::Lost => self.remove(request),
                _ => self.closed(request),
            },
            Event::Block(fill) => self.block_fetched(fill),
            Event::Answer(fill) => self.answered(fill),
            Event::Network(event) => self.arrived(event),
            Event::Tick => {
                let offered = self.demand.rate(self.now).unwrap_or(0.0);
                self.collector.checkpoint(self.now, &self.servers, offered);
                self.agenda.schedule(Timestamp(self.now.0 + TICK), Event::Tick);
            }
            Event::Sample => {
                self.collector.sample(self.now, &self.servers);
                self.agenda.schedule(Timestamp(self.now.0 + self.sample), Event::Sample);
            }
            Event::Purge(list) => self.purge(list),
            Event::Speeds(moves) => self.set_speeds(moves),
            Event::Fail(list) => self.fail_next(list),
            Event::Return(server) => self.come_back(server),
            Event::Notice(server) => self.notice(server),
        }
    }

    /// A client sends a request. It waits at the front-end if that has as many outstanding as it may.
    fn send(&mut self) {
        let (client, document) = self.demand.next(self.now);
        if !self.front_caches.is_empty() && self.is_answered_in_front(client, document) {
            return;
        }
        let front_end = &mut self.front_ends[self.redirectors.of(client)];
        if front_end.admitted >= self.admitted_limit {
            front_end.waiting.push_back((self.now, client, document));
            self.failed |= front_end.waiting.len() > self.most_in_flight;
            return;
        }
        front_end.admitted += 1;
        if !self.forward(self.now, client, document) {
            self.leave(client);
        }
    }

    /// The network carries a request, which was sent at `sent`, to the chosen server. Returns false if
    /// no server is up: the request is lost.
    fn forward(&mut self, sent: Timestamp, client: u32, document: u32) -> bool {
        let Some((server, counted)) = self.redirect(client, document, None) else {
            self.collector.lost(self.now);
            self.lost_in_front(client, document);
            return false;
        };
        self.collector.sent(self.now, document, server);
        self.open(sent, client, document, server, Some(counted), 0);
        true
    }

    fn open(
        &mut self,
        sent: Timestamp,
        client: u32,
        document: u32,
        server: u32,
        counted: Option<Counted>,
        tries: u8,
    ) {
        let request = self.requests.insert(Request {
            sent,
            document,
            client,
            server,
            stage: Stage::Arriving,
            tries,
            block: 0,
            fill: NONE,
            next: NONE,
            counted,
        });
        self.network.open(request, client, server, self.now, &mut self.agenda);
        self.failed |= self.requests.len() > self.most_in_flight;
    }

    /// The client's redirector chooses the server, other than one that was `tried`. This takes no time,
    /// because the redirector is where the client's network begins.
    fn redirect(
        &mut self,
        client: u32,
        document: u32,
        tried: Option<NodeIndex>,
    ) -> Option<(u32, Counted)> {
        let Document { key, size } = self.documents[document as usize];
        let request = PolicyRequest { key, class: ServiceClass::Normal, size: Some(size) };
        let (node, counted) = self.redirectors.pick(&request, client, tried, self.now)?;
        Some((node.0, counted))
    }

    /// Handles an event of the network, which may report arrivals.
    fn arrived(&mut self, event: NetworkEvent) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let until = self.next_send.unwrap_or(Timestamp(u64::MAX));
        self.network.handle(event, self.now, until, &mut self.agenda, &mut arrivals);
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Request(request) => self.serve_locally(request),
                Arrival::LastByte { transfer, first, at } => self.received(transfer, first, at),
                Arrival::Acknowledged(request) => self.finish(request),
            }
        }
        self.arrivals = arrivals;
    }

    /// The server has received the request: it is served, or waits for capacity. A server with too long
    /// a queue has failed (OSDI'02 Sec. 4.3). A front-end has all of its answer at once.
    fn serve_locally(&mut self, request: u32) {
        let Some(server) = self.servers.get_mut(self.requests[request].server as usize) else {
            self.requests[request].stage = Stage::Sending;
            let document = self.requests[request].document;
            let total = self.documents[document as usize].size + self.head();
            return self.network.ready(request, total, total, self.now, &mut self.agenda);
        };
        if !server.is_up {
            self.refused(request);
            return;
        }
        if server.active < self.active_limit {
            server.active += 1;
            self.connect(request);
            return;
        }
        self.requests[request].stage = Stage::Waiting;
        server.waiting.push(request, &mut self.requests);
        self.failed |= server.waiting.length > self.queue_limit;
    }

    fn connect(&mut self, request: u32) {
        self.requests[request].stage = Stage::Connecting;
        self.cpu(request, self.cost_at(request).connection);
    }

    /// Sets the speeds of all servers, until they move on again.
    fn set_speeds(&mut self, moves: u32) {
        let servers = &self.prepared.scenario.servers;
        for (number, cost) in self.costs.iter_mut().enumerate() {
            *cost = Cost::new(servers, number, moves as usize);
        }
        if let Some(time) = servers.speeds_for {
            self.agenda.schedule(self.now + time.0, Event::Speeds(moves.wrapping_add(1)));
        }
    }

    fn cost_at(&self, request: u32) -> Cost {
        self.costs[self.requests[request].server as usize]
    }

    /// Gives the CPU of the request's server work for it.
    fn cpu(&mut self, request: u32, nanoseconds: u64) {
        let server = &mut self.servers[self.requests[request].server as usize];
        let done = server.cpu.take(self.now, nanoseconds);
        self.agenda.schedule(done, Event::Cpu(request));
    }

    /// Whether servers keep a document at all: it exists, and may be stored.
    fn is_kept(&self, document: u32) -> bool {
        let exists = (document as usize) < self.prepared.trace.objects().len();
        exists && self.freshness.as_ref().is_none_or(|freshness| freshness.is_kept(document))
    }

    /// Where the server has a document. Finding it counts as a hit there.
    fn find(&mut self, server: u32, document: u32) -> Option<Place> {
        let server = &mut self.servers[server as usize];
        server.memory.find(document).or_else(|| {
            let key = || self.documents[document as usize].key;
            server.tier.as_mut()?.find(key()).then_some(Place::Disk)
        })
    }

    /// The connection is established: the file is in memory or on disk, a fill of it is in progress, or a new
    /// fill begins.
    fn lookup(&mut self, request: u32) {
        let Request { document, server: at, .. } = self.requests[request];
        if !self.is_kept(document) {
            self.collector.looked_up(self.now, Found::Missing);
            return self.fill(request, FillSource::Origin, FillKind::Passing);
        }
        let place = self.find(at, document);
        if self.freshness.is_some()
            && matches!(place, Some(Place::Memory(_) | Place::Disk))
            && self.waits_for_renewal(request, at, document)
        {
            return;
        }
        let source = match place {
            Some(Place::Memory(_)) => None,
            Some(Place::Disk) => Some(FillSource::Tier),
            Some(Place::Fill(fill)) => Some(self.fills[fill].source),
            None => Some(self.holder(document, at).map_or(FillSource::Origin, FillSource::Memory)),
        };
        let found = match source {
            None | Some(FillSource::Memory(_)) => Found::Fresh,
            Some(FillSource::Tier) => Found::OnDisk,
            Some(FillSource::Origin) => Found::Missing,
        };
        self.servers[at as usize].hits += u64::from(found == Found::Fresh);
        self.collector.looked_up(self.now, found);
        match (place, source) {
            (Some(Place::Fill(fill)), _) => self.serve_from_fill(request, fill),
            (_, Some(source)) => self.fill(request, source, FillKind::Kept),
            (_, None) => self.transmit(request),
        }
    }

    /// The CPU transmits the next block if it has been read; otherwise the request waits for it.
    fn respond(&mut self, request: u32) {
        let Request { fill, block, .. } = self.requests[request];
        if fill == NONE || block < self.fills[fill].done {
            self.transmit(request);
        } else {
            self.requests[request].stage = Stage::Filling;
        }
    }

    fn transmit(&mut self, request: u32) {
        let Request { document, block, .. } = self.requests[request];
        self.requests[request].stage = Stage::Transmitting;
        let bytes = block_bytes(self.documents[document as usize].size, block);
        self.cpu(request, self.cost_at(request).transmit(bytes));
    }

    /// The CPU has handed a block to the network.
    fn transmitted(&mut self, request: u32) {
        let Request { document, block, .. } = self.requests[request];
        let size = self.documents[document as usize].size;
        self.requests[request].block = block + 1;
        let last = block + 1 == blocks(size);
        if last {
            self.requests[request].stage = Stage::Sending;
        }
        let head = self.head();
        let bytes = block_bytes(size, block) + if block == 0 { head } else { 0 };
        self.network.ready(request, bytes, size + head, self.now, &mut self.agenda);
        if !last {
            self.respond(request);
        }
    }

    /// Bytes of the head of a response.
    fn head(&self) -> u64 {
        self.prepared.scenario.network.response_head.0
    }

    fn is_front_end(&self, number: u32) -> bool {
        number as usize >= self.servers.len()
    }

    /// The client has the last byte.
    fn received(&mut self, request: u32, first: Timestamp, at: Timestamp) {
        let Request { sent, client, server, document, .. } = self.requests[request];
        self.collector.last_byte(sent, at);
        if self.is_front_end(server) {
            return;
        }
        if !self.front_caches.is_empty() {
            self.came_to_front(client, document);
        }
        if self.redirectors.observes() {
            let outcome = RequestOutcome {
                node: NodeIndex(server),
                latency: first - sent,
                service_time: at - sent,
                ok: true,
            };
            self.redirectors.observe(client, &outcome, self.now);
        }
    }

    /// Everything is acknowledged: the load falls, and the connection is taken down.
    fn finish(&mut self, request: u32) {
        if self.requests[request].stage == Stage::Lost {
            self.remove(request);
            return;
        }
        self.requests[request].counted = None;
        self.requests[request].stage = Stage::Closing;
        let Request { client, server, .. } = self.requests[request];
        if self.is_front_end(server) {
            self.collector.finished(self.now);
            self.remove(request);
        } else {
            self.collector.over(self.now, server);
            self.cpu(request, self.cost_at(request).connection);
            self.leave(client);
        }
        let more = self.demand.played() < self.prepared.most_requests();
        if self.demand.is_closed() && more && !self.demand.is_at_its_end() {
            self.send();
        }
    }

    /// A request of `client` is over: its front-end admits the next that waits.
    fn leave(&mut self, client: u32) {
        let at = self.redirectors.of(client);
        loop {
            let front_end = &mut self.front_ends[at];
            front_end.admitted -= 1;
            let Some((sent, client, document)) = front_end.waiting.pop_front() else { return };
            front_end.admitted += 1;
            if self.forward(sent, client, document) {
                return;
            }
        }
    }

    fn remove(&mut self, request: u32) {
        self.requests[request].stage = Stage::Gone;
        self.requests.remove(request);
    }

    /// The connection is down: the next in the queue is served.
    fn closed(&mut self, request: u32) {
        let server = &mut self.servers[self.requests[request].server as usize];
        server.finished += 1;
        self.remove(request);
        let server = &mut self.servers[self.requests[request].server as usize];
        match server.waiting.pop(&self.requests) {
            Some(next) => self.connect(next),
            None => server.active -= 1,
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            now: self.now,
            finished: self.demand.played().saturating_sub(self.requests.len() as u64),
            in_flight: self.requests.len() as u64,
            rate: self.demand.rate(self.now).unwrap_or(0.0),
            events: self.events + self.network.events(),
        }
    }

    fn conclude(self, end: End) -> Outcome {
        let topology: &Topology = &self.prepared.topology;
        let scenario = &self.prepared.scenario;
        let remarks = self.remarks(end);
        let look_back = Timestamp(self.now.0.saturating_sub(30_000_000_000));
        let ramp = scenario.workload.arrivals == Arrivals::Ramp && end == End::Overload;
        let capacity = self.demand.rate(look_back).filter(|_| ramp);
        let capacity = capacity.filter(|_| !remarks.contains(&Remark::StartAboveCapacity));
        let servers = topology.places.iter().filter(|place| place.role == Role::Server);
        let ending = Ending {
            end,
            now: self.now,
            events: self.events + self.network.events(),
            capacity,
            servers: &self.servers,
            names: servers.map(|place| place.name.to_string()).collect(),
            topology,
            network: &self.network,
            egress: self.origin.as_ref().map(Origin::egress),
        };
        Outcome { remarks, ..self.collector.conclude(&ending) }
    }

    /// The limits to the meaning of the results.
    fn remarks(&self, end: End) -> Vec<Remark> {
        let Scenario { workload, measure, .. } = &self.prepared.scenario;
        let after = self.now.as_secs_f64();
        let mut remarks = Vec::new();
        let ramp = workload.arrivals == Arrivals::Ramp;
        if end == End::Overload && !ramp {
            remarks.push(Remark::Overloaded { after });
        }
        if end == End::Overload && ramp && after < 30.0 + workload.step.0.as_secs_f64() {
            remarks.push(Remark::StartAboveCapacity);
        }
        if end == End::Done && ramp {
            remarks.push(Remark::CapacityNotReached);
        }
        let early = measure.duration.is_some_and(|wanted| self.now < Timestamp::ZERO + wanted.0)
            || measure.requests.is_some_and(|wanted| self.demand.played() < wanted);
        if end == End::Done && self.demand.is_at_its_end() && early {
            remarks.push(Remark::TraceEnded { after });
        }
        if end != End::Stopped && self.collector.measured_nothing() {
            remarks.push(Remark::NothingMeasured);
        }
        remarks.extend(self.prepared.scenario.unreachable_threshold(self.front_ends.len() as u64));
        remarks
    }
}

/// The requests that each front-end may have outstanding. A closed loop limits itself.
fn admitted_limit(scenario: &Scenario, front_ends: usize) -> u64 {
    match scenario.workload.outstanding {
        Some(limit) if scenario.workload.arrivals != Arrivals::Closed => {
            (u64::from(limit) / front_ends.max(1) as u64).max(1)
        }
        _ => u64::MAX,
    }
}

/// Four times the capacity of all servers together.
fn most_in_flight(servers: &Servers) -> usize {
    let held = u64::from(servers.active) + u64::from(servers.queue);
    usize::try_from(4 * held * servers.count as u64).unwrap_or(usize::MAX)
}

impl Line {
    fn push(&mut self, request: u32, requests: &mut Slab<Request>) {
        requests[request].next = NONE;
        match self.last {
            NONE => self.first = request,
            last => requests[last].next = request,
        }
        self.last = request;
        self.length += 1;
    }

    fn pop(&mut self, requests: &Slab<Request>) -> Option<u32> {
        let first = self.first;
        if first == NONE {
            return None;
        }
        self.first = requests[first].next;
        if self.first == NONE {
            self.last = NONE;
        }
        self.length -= 1;
        Some(first)
    }
}

/// Progress is reported each time this many events have passed.
const WATCH: u64 = (1 << 18) - 1;

/// The answer of a server that refuses a request; the last of the documents.
const REFUSAL: Document = Document { key: Key(0), size: 512 };

#[cfg(test)]
mod tests;
