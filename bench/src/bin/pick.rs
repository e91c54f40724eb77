//! The cost of one decision, for every registered policy.
//!
//! `cargo run --release -p levada-bench --bin pick [policy ...]` prints nanoseconds per pick with 8, 64
//! and 1024 nodes, and the memory in use after a flood of ten million distinct objects.
//!
//! Requests follow a Zipf law of exponent 1 over a million objects. Loads move as they do in service:
//! every pick is counted as outstanding and released some hundred picks later; nodes are busy at the
//! bounds of the policies, so that the hottest objects, of 7 % of all requests, need sets. The cost of
//! counting is measured and subtracted.

use std::{
    collections::BTreeMap,
    hint::black_box,
    time::{Duration, Instant},
};

use levada_policy::{
    Cluster, Deployment, LoadTable, Node, NodeIndex, Outstanding, POLICIES, PickContext, Policy,
    PolicyEntry, RequestOutcome, build,
};
use levada_types::{Key, Request, Rng, ServiceClass, Timestamp, hash64};

const OBJECTS: f64 = 1e6;
const STREAM: usize = 1 << 20;
const CHUNK: usize = 1 << 11;
const FLOOD: u64 = 10_000_000;
/// A policy that is too slow for the flood is cut off.
const FLOOD_TIMEOUT: Duration = Duration::from_secs(20);
const SIZES: [usize; 3] = [8, 64, 1024];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let entries: Vec<&PolicyEntry> = POLICIES
        .iter()
        .flat_map(|file| file.iter())
        .filter(|entry| wanted.is_empty() || wanted.iter().any(|name| name == entry.name))
        .collect();
    let stream = zipf_stream();
    let counting = SIZES.map(|nodes| World::new(nodes).time_counting());

    println!("ns per pick");
    println!("{:<22}{:>10}{:>10}{:>10}", "nodes", SIZES[0], SIZES[1], SIZES[2]);
    for entry in &entries {
        print!("{:<22}", entry.name);
        for (nodes, counting) in SIZES.into_iter().zip(counting) {
            let mut world = World::new(nodes);
            let mut policy = world.policy(entry);
            world.run(&mut *policy, &stream);
            let time = undisturbed((0..2).flat_map(|_| stream.chunks(CHUNK)), |requests| {
                world.run(&mut *policy, requests);
            });
            print!("{:>10.0}", (time - counting).max(0.0));
        }
        println!();
    }

    println!("\nafter a flood of {FLOOD} objects over 64 nodes, cut off at {FLOOD_TIMEOUT:?}");
    println!(
        "{:<22}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "", "flood", "ns per pick", "objects", "limit", "bytes", "per object"
    );
    for entry in &entries {
        let mut world = World::new(64);
        let mut policy = world.policy(entry);
        if policy.tracked().limit == 0 {
            continue;
        }
        let (flood, time) = world.flood(&mut *policy);
        let tracked = policy.tracked();
        let each = tracked.bytes as f64 / tracked.limit as f64;
        println!(
            "{:<22}{flood:>12}{time:>12.0}{:>12}{:>12}{:>12}{each:>12.1}",
            entry.name, tracked.objects, tracked.limit, tracked.bytes
        );
    }
}

/// Ranks with density 1/rank: the million to the power of a uniform number.
fn zipf_stream() -> Vec<Request> {
    let mut rng = Rng::new(1);
    (0..STREAM).map(|_| request(OBJECTS.powf(rng.unit()) as u64)).collect()
}

/// The object of this rank: its class and size follow from its name.
fn request(rank: u64) -> Request {
    let key = Key(hash64(&rank.to_le_bytes()));
    let class = ServiceClass::ALL[(key.0 >> 62) as usize];
    let size = if key.0.is_multiple_of(100) { 1 << 20 } else { 8 << 10 };
    Request { key, class, size: Some(size) }
}

struct World {
    cluster: Cluster,
    rng: Rng,
    now: Timestamp,
    // The requests under way, in a circle: the oldest ends where the next begins.
    under_way: Vec<Option<Outstanding>>,
    next: usize,
}

impl World {
    fn new(nodes: usize) -> Self {
        let loads = LoadTable::new(nodes);
        let list = (0..nodes).map(|n| Node::new(&format!("node-{n}"))).collect();
        let cluster = Cluster::new(list, loads.clone()).with_global_loads(loads);
        let under_way = (0..mean_load(nodes) * nodes).map(|_| None).collect();
        Self { cluster, rng: Rng::new(2), now: Timestamp::ZERO, under_way, next: 0 }
    }

    fn policy(&self, entry: &PolicyEntry) -> Box<dyn Policy> {
        build(entry.name, &BTreeMap::new(), &Deployment::default()).expect("defaults are valid")
    }

    fn run(&mut self, policy: &mut dyn Policy, requests: &[Request]) {
        for request in requests {
            self.step(policy, request);
        }
    }

    #[inline(always)]
    fn step(&mut self, policy: &mut dyn Policy, request: &Request) {
        self.now = self.now + Duration::from_micros(50);
        let mut context = PickContext { now: self.now, rng: &mut self.rng };
        let pick = policy.pick(request, &self.cluster, &mut context).expect("all nodes are up");
        let ended = self.count(pick.node);
        if let Some(node) = ended.filter(|_| policy.observes()) {
            let latency = Duration::from_micros(500 + request.key.0 % 1000);
            let outcome = RequestOutcome { node, latency, service_time: latency * 2, ok: true };
            policy.observe(&outcome, &mut PickContext { now: self.now, rng: &mut self.rng });
        }
    }

    /// Counts a request to `node` as outstanding and ends the oldest one.
    #[inline(always)]
    fn count(&mut self, node: NodeIndex) -> Option<NodeIndex> {
        let begun = self.cluster.loads().begin(node);
        let ended = self.under_way[self.next].replace(begun);
        self.next = if self.next + 1 == self.under_way.len() { 0 } else { self.next + 1 };
        ended.map(|request| request.node())
    }

    fn time_counting(&mut self) -> f64 {
        let nodes: Vec<_> =
            (0..STREAM).map(|_| NodeIndex(self.rng.below(self.cluster.len()) as u32)).collect();
        undisturbed(nodes.chunks(CHUNK), |nodes| {
            for node in nodes {
                black_box(self.count(*node));
            }
        })
    }

    /// Returns how many objects came, and nanoseconds for each.
    fn flood(&mut self, policy: &mut dyn Policy) -> (u64, f64) {
        let (begin, mut objects) = (Instant::now(), 0);
        while objects < FLOOD && begin.elapsed() < FLOOD_TIMEOUT {
            for object in objects..objects + 1_000 {
                self.step(policy, &request(object));
            }
            objects += 1_000;
        }
        (objects, begin.elapsed().as_nanos() as f64 / objects as f64)
    }
}

/// Nanoseconds per item in the quickest tenth of all chunks: other work of the machine falls on
/// the others.
fn undisturbed<'a, T: 'a>(
    chunks: impl Iterator<Item = &'a [T]>,
    mut work: impl FnMut(&'a [T]),
) -> f64 {
    let mut times: Vec<_> = chunks
        .map(|chunk| {
            let begin = Instant::now();
            work(chunk);
            begin.elapsed().as_nanos() as f64 / chunk.len() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 10]
}

/// Outstanding requests per node: some hundred in all, and enough to tell nodes apart.
fn mean_load(nodes: usize) -> usize {
    (512 / nodes).max(8)
}
