//! The cluster at work: [`SessionWorld::handle`] is the life of a request in WWW10's system, top to bottom.
//!
//! A client asks for one object at a time, so a session is also the job that queues: the switch sends
//! it to a server, where it passes CPU, memory or disk or database, the CPU again if the page is
//! secure, and the network card.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use levada_cache::eviction::EvictionEntry;
use levada_outcome::{Outcome, Progress, kernel::Agenda};
use levada_policy::{Cluster, LoadTable, Node, NodeIndex, PickContext, Policy};
use levada_types::{Request, Rng, Timestamp};

use super::documents::Tree;
use super::report::Report;
use super::resource::SliceEnd;
use super::server::{Part, WebServer, transfer};
use super::session::{ContentSource, ObjectStage, Session};
use super::settings::{Database, Dispatch, LoadMeasure, Settings};

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
enum SessionEvent {
    /// A client arrives at the site.
    Enter,
    /// A client has read its page and requests the next one.
    Page { session: u32 },
    /// A request reaches the server that the switch chose.
    Arrive { session: u32 },
    /// A part of a server has finished a slice of work.
    SliceEnd { server: u32, part: Part },
    /// The servers report their utilisation to the switch.
    Gather,
}

/// A cluster, its switch and its clients.
pub(super) struct SessionWorld<'a> {
    settings: &'a Settings,
    agenda: Agenda<SessionEvent>,
    tree: Tree,
    servers: Vec<WebServer>,
    policy: Box<dyn Policy>,
    cluster: Cluster,
    /// The policy's own random numbers.
    chance: Rng,
    /// The arrivals and the behaviour of clients.
    arrivals: Rng,
    sessions: Vec<Session>,
    /// Free places in `sessions`.
    free: Vec<u32>,
    /// The next replica of a shared database.
    next_database: usize,
    /// Working times of each part at the servers' last report.
    reported: Vec<[u64; Part::COUNT]>,
    report: Report,
    events: u64,
}

impl<'a> SessionWorld<'a> {
    /// An idle cluster of `servers` with empty caches.
    pub(super) fn new(
        settings: &'a Settings,
        servers: usize,
        policy: Box<dyn Policy>,
        eviction: &EvictionEntry,
        seed: u64,
    ) -> Self {
        let tree = Tree::new(&settings.documents, &mut Rng::new(seed));
        let cache_bytes = (tree.total_bytes() as f64 * settings.documents.cached.0) as u64;
        let nodes = (0..servers).map(|server| Node::new(&format!("server-{server}"))).collect();
        Self {
            settings,
            agenda: Agenda::default(),
            tree,
            servers: (0..servers)
                .map(|_| WebServer::new(&settings.hardware, eviction, cache_bytes))
                .collect(),
            policy,
            cluster: Cluster::new(nodes, LoadTable::new(servers)),
            chance: Rng::new(!seed),
            arrivals: Rng::new(seed.rotate_left(32) ^ 1),
            sessions: Vec::new(),
            free: Vec::new(),
            next_database: 0,
            reported: vec![[0; Part::COUNT]; servers],
            report: Report::new(&settings.window, servers),
            events: 0,
        }
    }

    /// Runs until all measured pages are finished or their time is over.
    pub(super) fn run(mut self, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Outcome {
        let end = self.report.end();
        self.agenda.schedule(Timestamp::ZERO, SessionEvent::Enter);
        if self.settings.switch.load != LoadMeasure::Outstanding {
            self.agenda
                .schedule(Timestamp::ZERO + self.settings.switch.gather.0, SessionEvent::Gather);
        }
        let mut now = Timestamp::ZERO;
        while let Some((time, event)) = self.agenda.next() {
            if time >= end || self.report.is_complete(time) {
                break;
            }
            now = time;
            self.report.watch_servers(now, &self.servers);
            self.handle(event, now);
            self.events += 1;
            if self.events.is_multiple_of(WATCHED_EVERY) && watch(self.progress(now)).is_break() {
                self.report.stop();
                break;
            }
        }
        let open = self.sessions.iter().filter(|session| session.page_open);
        self.report.finish(now, open.map(|session| session.page_began), &self.servers);
        self.report.outcome(self.events)
    }

    fn handle(&mut self, event: SessionEvent, now: Timestamp) {
        match event {
            SessionEvent::Enter => {
                let session = self.enter();
                self.begin_page(session, now);
                let mean = 1.0 / self.settings.clients_per_second;
                let gap = mean * self.arrivals.exponential();
                self.agenda.schedule(now + Duration::from_secs_f64(gap), SessionEvent::Enter);
            }
            SessionEvent::Page { session } => self.begin_page(session, now),
            SessionEvent::Arrive { session } => self.parse(session, now),
            SessionEvent::SliceEnd { server, part } => {
                let SliceEnd { done, next } = self.servers[server as usize].slice_ended(part, now);
                if let Some(end) = next {
                    self.agenda.schedule(end, SessionEvent::SliceEnd { server, part });
                }
                match done.map(|session| (session, self.sessions[session as usize].stage)) {
                    Some((session, ObjectStage::Parse)) => self.read(session, now),
                    Some((session, ObjectStage::Read { store })) => {
                        self.have_read(session, store, now)
                    }
                    Some((session, ObjectStage::Encrypt)) => self.send(session, now),
                    Some((session, ObjectStage::Send)) => self.sent(session, now),
                    None => {}
                }
            }
            SessionEvent::Gather => {
                self.gather(now);
                self.agenda.schedule(now + self.settings.switch.gather.0, SessionEvent::Gather);
            }
        }
    }

    /// A client arrives and gets a place for its session.
    fn enter(&mut self) -> u32 {
        let session = Session::new(self.arrivals.bits(), self.settings);
        match self.free.pop() {
            Some(place) => {
                self.sessions[place as usize] = session;
                place
            }
            None => {
                self.sessions.push(session);
                self.sessions.len() as u32 - 1
            }
        }
    }

    fn begin_page(&mut self, session: u32, now: Timestamp) {
        let client = &mut self.sessions[session as usize];
        client.begin_page(self.settings, &self.tree, now);
        self.report.page_began(now);
        self.dispatch(session, true, now);
    }

    /// The switch chooses the server, once per page or once per object.
    fn dispatch(&mut self, session: u32, first: bool, now: Timestamp) {
        let client = &mut self.sessions[session as usize];
        client.object_began = now;
        let by_object = self.settings.switch.dispatch == Dispatch::Object;
        if by_object || first {
            let object = &client.object;
            let request =
                Request { key: object.key(), class: object.class(), size: Some(object.bytes) };
            let mut context = PickContext { now, rng: &mut self.chance };
            let pick = self.policy.pick(&request, &self.cluster, &mut context);
            let node = pick.expect("all servers are up").node;
            client.server = node.0;
            if self.settings.switch.load == LoadMeasure::Outstanding {
                client.outstanding = Some(self.cluster.loads().begin(node));
            }
        }
        let delay = if by_object { self.settings.switch.delay.0 } else { Duration::ZERO };
        self.agenda.schedule(now + delay, SessionEvent::Arrive { session });
    }

    /// The CPU reads the request and builds the response; the first secure page of a session
    /// negotiates keys as well.
    fn parse(&mut self, session: u32, now: Timestamp) {
        let hardware = &self.settings.hardware;
        let client = &mut self.sessions[session as usize];
        client.stage = ObjectStage::Parse;
        let segments = client.object.bytes.div_ceil(512).min(u64::from(u32::MAX)) as u32;
        let mut work = hardware.cpu_per_request.0 + hardware.cpu_per_512_bytes.0 * segments;
        if client.object.secure && !client.keyed {
            work += self.settings.ssl.handshake();
        }
        let server = client.server;
        self.work(session, server, Part::Cpu, work, now);
    }

    /// Memory, disk or database provides the content.
    fn read(&mut self, session: u32, now: Timestamp) {
        let client = &mut self.sessions[session as usize];
        let cacheable = match client.object.source {
            ContentSource::File => true,
            ContentSource::LightQuery => self.tree.cacheable(client.object.document),
            ContentSource::HeavyQuery => false,
        };
        let own = client.server;
        let hardware = &self.settings.hardware;
        let (part, work) = self.servers[own as usize].read(&client.object, cacheable, hardware);
        client.stage = ObjectStage::Read { store: cacheable && part != Part::Memory };
        let (server, part) = match (part, hardware.database) {
            (Part::Database, Database::OwnDisk) => (own, Part::Disk),
            (Part::Database, Database::Shared) => {
                self.next_database = (self.next_database + 1) % self.servers.len();
                (self.next_database as u32, part)
            }
            _ => (own, part),
        };
        self.work(session, server, part, work, now);
    }

    fn have_read(&mut self, session: u32, store: bool, now: Timestamp) {
        let client = &mut self.sessions[session as usize];
        if store {
            self.servers[client.server as usize].store(&client.object);
        }
        if !client.object.secure {
            return self.send(session, now);
        }
        client.stage = ObjectStage::Encrypt;
        let (server, work) = (client.server, self.settings.ssl.encryption(client.object.bytes));
        self.work(session, server, Part::Cpu, work, now);
    }

    fn send(&mut self, session: u32, now: Timestamp) {
        let client = &mut self.sessions[session as usize];
        client.stage = ObjectStage::Send;
        let ssl = &self.settings.ssl;
        let mut bytes = client.object.bytes;
        if client.object.secure {
            bytes = ssl.framed(bytes);
            if client.object.first {
                bytes += ssl.hello_and_close;
            }
            if !client.keyed {
                bytes += ssl.certificate;
                client.keyed = true;
            }
        }
        let (server, work) = (client.server, transfer(bytes, self.settings.hardware.nic_rate));
        self.work(session, server, Part::Nic, work, now);
    }

    /// The client has the object: it requests the next one, reads the page, or leaves.
    fn sent(&mut self, session: u32, now: Timestamp) {
        let client = &mut self.sessions[session as usize];
        let node = NodeIndex(client.server);
        self.report.object_sent(now, node);
        let more = client.next_object(self.settings, &self.tree);
        let ends = !more || self.settings.switch.dispatch == Dispatch::Object;
        if ends {
            client.outstanding = None;
            if self.policy.observes() {
                let began = if self.settings.switch.dispatch == Dispatch::Object {
                    client.object_began
                } else {
                    client.page_began
                };
                let took = now.since(began);
                let outcome = levada_policy::RequestOutcome {
                    node,
                    latency: took,
                    service_time: took,
                    ok: true,
                };
                self.policy.observe(&outcome, &mut PickContext { now, rng: &mut self.chance });
            }
        }
        if more {
            return self.dispatch(session, false, now);
        }
        client.page_open = false;
        self.report.page_ended(client.page_began, now);
        match client.think(self.settings) {
            Some(time) => self.agenda.schedule(now + time, SessionEvent::Page { session }),
            None => self.free.push(session),
        }
    }

    /// Queues work at a part of a server.
    fn work(&mut self, session: u32, server: u32, part: Part, work: Duration, now: Timestamp) {
        if let Some(end) = self.servers[server as usize].take(part, session, work, now) {
            self.agenda.schedule(end, SessionEvent::SliceEnd { server, part });
        }
    }

    /// Reports to the policy how busy each server was since the last report, in percent.
    fn gather(&mut self, now: Timestamp) {
        let period = self.settings.switch.gather.0.as_nanos() as f64;
        let loads: Arc<LoadTable> = self.cluster.loads().clone();
        for (index, (server, before)) in (0..).zip(self.servers.iter().zip(&mut self.reported)) {
            let busy = Part::ALL.map(|part| server.busy(part, now));
            let used =
                |part: Part| (busy[part as usize] - before[part as usize]) as f64 / period * 100.0;
            let parts = [Part::Cpu, Part::Disk, Part::Database, Part::Nic].map(used);
            let load = match self.settings.switch.load {
                LoadMeasure::MeanOfParts => parts.iter().sum::<f64>() / parts.len() as f64,
                LoadMeasure::Outstanding | LoadMeasure::BusiestPart => {
                    parts.into_iter().fold(0.0, f64::max)
                }
            };
            loads.set(NodeIndex(index), load.round() as u32);
            *before = busy;
        }
    }

    fn progress(&self, now: Timestamp) -> Progress {
        Progress {
            now,
            finished: self.report.objects(),
            in_flight: self.report.pages_open(),
            rate: self.settings.clients_per_second,
            events: self.events,
        }
    }
}

/// Events between two reports of progress: some tenths of a second.
const WATCHED_EVERY: u64 = 1 << 20;
