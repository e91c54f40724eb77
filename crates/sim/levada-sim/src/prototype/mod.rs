//! WWW10's prototype (Sec. 5.2): a switch, a few servers, and a fixed number of clients that think
//! between pages.
//!
//! `levada lab cap` plays the same [`Plan`] over real sockets, with [`Machine`]s that keep to the clock;
//! [`play`] plays it in virtual time, over a network and a switch that cost nothing. Both use the clients
//! and pages of this module and the measurements of [`Measured`], so that they differ only in the costs
//! that the simulation leaves out.

mod site;
mod visitor;

use std::{sync::Arc, time::Duration};

use levada_cache::eviction;
use levada_policy::{
    Cluster, LoadTable, Node, NodeIndex, Outstanding, PickContext, Policy, RequestOutcome,
};
use levada_types::{Rng, Timestamp};

pub use site::{Ask, Service, Site};
pub use visitor::{Habits, Visitor};

use crate::{
    kernel::Agenda,
    machine::{Answered, Hardware, Machine, Usage},
};

/// A cluster, its site and its clients.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of servers.
    pub servers: usize,
    /// The hardware of each server.
    pub hardware: Hardware,
    /// Capacity of each server's memory, in bytes of files.
    pub memory: u64,
    /// The eviction algorithm of the memory.
    pub eviction: &'static eviction::EvictionEntry,
    /// Number of clients, all of whom stay.
    pub clients: usize,
    /// The clients' behaviour.
    pub habits: Habits,
    /// The site.
    pub site: Arc<Site>,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Length of the measurement.
    pub measure: Duration,
    /// Sampling interval of utilisations.
    pub sample: Duration,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Plan {
    /// The clients, each with its own random numbers, so that every policy gets the same clients.
    pub fn visitors(&self) -> impl Iterator<Item = Visitor> {
        let mut rng = Rng::new(self.seed);
        let habits = self.habits;
        (0..self.clients).map(move |_| Visitor::new(rng.bits(), habits))
    }
}

/// Measurements of servers, emulated or simulated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Requests answered per second.
    pub throughput: f64,
    /// Share of requested files that were found in memory.
    pub hit_ratio: f64,
    /// The part of the time with few requests, mean over the servers.
    pub idle: f64,
    /// The utilisation of the busier of CPU and disk, of the least busy server in each sample, mean
    /// over the samples.
    pub least_busy: f64,
    /// The same of the most busy server.
    pub most_busy: f64,
}

impl Measured {
    /// Computes the measurements from the totals of each server at several times; work before the first
    /// is left out.
    pub fn of(samples: &[Vec<Usage>]) -> Self {
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return Self::default();
        };
        let differences = |before: &[Usage], after: &[Usage]| -> Vec<Usage> {
            after.iter().zip(before).map(|(after, before)| after.since(before)).collect()
        };
        let part = |of: u64, all: u64| if all == 0 { 0.0 } else { of as f64 / all as f64 };
        let whole = differences(first, last);
        let sum = |of: fn(&Usage) -> u64| whole.iter().map(of).sum::<u64>();
        let busy = |usage: &Usage| part(usage.cpu.max(usage.disk), usage.at);
        let periods = || samples.windows(2).map(|pair| differences(&pair[0], &pair[1]));
        let extreme = |choose: fn(f64, f64) -> f64, from: f64| {
            let each = periods().map(|servers| servers.iter().map(busy).fold(from, choose));
            each.sum::<f64>() / periods().count().max(1) as f64
        };
        let mean_time = sum(|usage| usage.at) as f64 / whole.len().max(1) as f64 / 1e9;
        Self {
            throughput: if mean_time > 0.0 { sum(|u| u.answered) as f64 / mean_time } else { 0.0 },
            hit_ratio: part(sum(|u| u.hits), sum(|u| u.hits) + sum(|u| u.misses)),
            idle: part(sum(|u| u.idle), sum(|u| u.at)),
            least_busy: extreme(f64::min, 1.0),
            most_busy: extreme(f64::max, 0.0),
        }
    }
}

/// The host of the site. The name is reserved for tests (RFC 6761).
pub const HOST: &str = "levada.test";

/// The name of server `number`, from 0. It is the same in the lab and in the simulator, so that
/// policies that hash names choose alike.
pub fn server_name(number: usize) -> String {
    format!("server-{number}")
}

/// Plays `plan` with a policy in virtual time.
pub fn play(plan: &Plan, policy: Box<dyn Policy>) -> Measured {
    PrototypeWorld::new(plan, policy).run()
}

struct PrototypeWorld<'a> {
    plan: &'a Plan,
    agenda: Agenda<PrototypeEvent>,
    policy: Box<dyn Policy>,
    chance: Rng,
    cluster: Cluster,
    servers: Vec<Machine<u32>>,
    clients: Vec<Client>,
    samples: Vec<Vec<Usage>>,
    answered: Vec<Answered<u32>>,
}

#[derive(Clone, Copy, Debug)]
enum PrototypeEvent {
    /// A client sends a request.
    Ask { client: u32 },
    /// An event at a server.
    Server { server: u32 },
    /// Utilisations are sampled.
    Sample,
}

struct Client {
    visitor: Visitor,
    next: Ask,
    asked: Timestamp,
    server: NodeIndex,
    outstanding: Option<Outstanding>,
}

impl<'a> PrototypeWorld<'a> {
    fn new(plan: &'a Plan, policy: Box<dyn Policy>) -> Self {
        let nodes = (0..plan.servers).map(|server| Node::new(&server_name(server))).collect();
        let machine = |_| Machine::new(&plan.hardware, plan.eviction, plan.memory);
        let mut agenda = Agenda::default();
        let client = |(number, mut visitor): (u32, Visitor)| {
            let (think, next) = visitor.next(&plan.site);
            agenda.schedule(Timestamp::ZERO + think, PrototypeEvent::Ask { client: number });
            let (asked, server) = (Timestamp::ZERO, NodeIndex(0));
            Client { visitor, next, asked, server, outstanding: None }
        };
        let clients = (0..).zip(plan.visitors()).map(client).collect();
        agenda.schedule(Timestamp::ZERO + plan.warm_up, PrototypeEvent::Sample);
        Self {
            plan,
            agenda,
            policy,
            chance: Rng::new(!plan.seed),
            cluster: Cluster::new(nodes, LoadTable::new(plan.servers)),
            servers: (0..plan.servers).map(machine).collect(),
            clients,
            samples: Vec::new(),
            answered: Vec::new(),
        }
    }

    fn run(mut self) -> Measured {
        let end = Timestamp::ZERO + self.plan.warm_up + self.plan.measure;
        while let Some((now, event)) = self.agenda.next() {
            match event {
                PrototypeEvent::Ask { client } => self.ask(client, now),
                PrototypeEvent::Server { server } => self.work(server, now),
                PrototypeEvent::Sample => {
                    self.sample(now);
                    if now >= end {
                        break;
                    }
                    let next = now + self.plan.sample;
                    self.agenda.schedule(next.min(end), PrototypeEvent::Sample);
                }
            }
        }
        Measured::of(&self.samples)
    }

    /// The switch chooses a server, which receives the request at once.
    fn ask(&mut self, number: u32, now: Timestamp) {
        let client = &mut self.clients[number as usize];
        let (request, work) = self.plan.site.request(client.next);
        let mut context = PickContext { now, rng: &mut self.chance };
        let pick = self.policy.pick(&request, &self.cluster, &mut context);
        let server = pick.expect("all servers are up").node;
        client.asked = now;
        client.server = server;
        client.outstanding = Some(self.cluster.loads().begin(server));
        self.work(server.0, now);
        self.servers[server.get()].take(number, work, now);
        self.expect(server.0);
    }

    /// Advances a server to now; clients with an answer go on.
    fn work(&mut self, server: u32, now: Timestamp) {
        let mut answered = std::mem::take(&mut self.answered);
        self.servers[server as usize].advance(now, &mut answered);
        for Answered { job, at, .. } in answered.drain(..).filter(|answered| answered.whole) {
            let client = &mut self.clients[job as usize];
            client.outstanding = None;
            if self.policy.observes() {
                let (node, took) = (client.server, at.since(client.asked));
                let outcome = RequestOutcome { node, latency: took, service_time: took, ok: true };
                self.policy.observe(&outcome, &mut PickContext { now, rng: &mut self.chance });
            }
            let (think, next) = client.visitor.next(&self.plan.site);
            client.next = next;
            self.agenda.schedule(at + think, PrototypeEvent::Ask { client: job });
        }
        self.answered = answered;
        self.expect(server);
    }

    /// A superfluous event does no harm: it changes nothing.
    fn expect(&mut self, server: u32) {
        if let Some(time) = self.servers[server as usize].next_time() {
            self.agenda.schedule(time, PrototypeEvent::Server { server });
        }
    }

    fn sample(&mut self, now: Timestamp) {
        for server in 0..self.servers.len() as u32 {
            self.work(server, now);
        }
        self.samples.push(self.servers.iter().map(|server| server.usage(now)).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_cache::eviction::find_eviction;
    use levada_policy::{Deployment, build};

    fn plan(clients: usize) -> Plan {
        Plan {
            servers: 4,
            hardware: Hardware::default(),
            memory: 32 << 20,
            eviction: find_eviction("lru").unwrap(),
            clients,
            habits: Habits::default(),
            site: Arc::new(Site::intensive(500, 1)),
            warm_up: Duration::from_secs(20),
            measure: Duration::from_secs(40),
            sample: Duration::from_secs(10),
            seed: 1,
        }
    }

    fn measured(policy: &str, plan: &Plan) -> Measured {
        play(plan, build(policy, &Default::default(), &Deployment::default()).unwrap())
    }

    #[test]
    fn same_seed_gives_the_same_numbers() {
        let plan = plan(100);
        assert_eq!(measured("cap", &plan), measured("cap", &plan));
        assert_ne!(measured("cap", &plan), measured("cap", &Plan { seed: 2, ..plan.clone() }));
    }

    #[test]
    fn evenly_shared_classes_serve_more_than_services_with_a_server_each() {
        let plan = plan(240);
        let (cap, lard) = (measured("cap", &plan), measured("lard", &plan));
        assert!(cap.throughput > lard.throughput, "{cap:?} {lard:?}");
        let spread = |m: &Measured| m.most_busy - m.least_busy;
        assert!(spread(&cap) < spread(&lard), "{cap:?} {lard:?}");
    }

    #[test]
    fn client_asks_again_when_it_has_thought() {
        let mut plan = plan(1);
        plan.habits =
            Habits { most_objects: 1, longest_think: Duration::from_secs(2), ..plan.habits };
        plan.site = Arc::new(Site::files(1, 1));
        // The client thinks for 2 s; an object in memory takes less than 20 ms.
        let throughput = measured("round_robin", &plan).throughput;
        assert!((0.49..=0.51).contains(&throughput), "{throughput}");
    }

    #[test]
    fn utilisation_is_that_of_the_busier_part() {
        let usage = |at: u64, cpu, disk| Usage { at, cpu, disk, answered: at, ..Usage::default() };
        let measured = Measured::of(&[
            vec![usage(0, 0, 0), usage(0, 0, 0)],
            vec![usage(10, 2, 8), usage(10, 4, 0)],
            vec![usage(20, 4, 8), usage(20, 14, 0)],
        ]);
        assert!((measured.least_busy - 0.3).abs() < 1e-9, "{measured:?}");
        assert!((measured.most_busy - 0.9).abs() < 1e-9, "{measured:?}");
        assert_eq!(measured.throughput, 2e9);
    }
}
