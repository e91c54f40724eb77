//! The laws that all registered policies obey.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use levada_policy::{
    Cluster, Deployment, LoadTable, Node, NodeIndex, Outstanding, POLICIES, ParameterValue, Pick,
    PickContext, Policy, PolicyEntry, RequestOutcome, build,
};
use levada_types::{Key, Request, Rng, ServiceClass, Timestamp, hash64};
use proptest::prelude::*;

fn entries() -> impl Iterator<Item = &'static PolicyEntry> {
    POLICIES.iter().flat_map(|file| file.iter())
}

/// A policy in use: time passes, every pick increases a load, and requests end some picks later.
struct World {
    policy: Box<dyn Policy>,
    cluster: Cluster,
    rng: Rng,
    now: Timestamp,
    under_way: VecDeque<Outstanding>,
}

impl World {
    fn new(name: &str, cluster: Cluster) -> Self {
        // Servers of a small capacity, so that some are always busy.
        let around = Deployment { capacity: 10, ..Deployment::default() };
        Self::around(name, cluster, &around)
    }

    fn around(name: &str, cluster: Cluster, around: &Deployment) -> Self {
        let policy = build(name, &small_tables(name), around).expect("parameters are valid");
        let (rng, now) = (Rng::new(11), Timestamp::ZERO);
        Self { policy, cluster, rng, now, under_way: VecDeque::new() }
    }

    fn pick(&mut self, request: &Request) -> Option<Pick> {
        let mut context = PickContext { now: self.now, rng: &mut self.rng };
        self.policy.pick(request, &self.cluster, &mut context)
    }

    /// Starts one request: picks a node, counts it, and ends an older request.
    fn step(&mut self, request: &Request) -> Option<Pick> {
        self.now = self.now + Duration::from_millis(40);
        let pick = self.pick(request)?;
        self.under_way.push_back(self.cluster.loads().begin(pick.node));
        if self.under_way.len() > 30 {
            self.end_oldest();
        }
        Some(pick)
    }

    fn end_oldest(&mut self) {
        let Some(ended) = self.under_way.pop_front() else { return };
        if self.policy.observes() {
            let latency = Duration::from_millis(1 + u64::from(ended.node().0));
            let outcome =
                RequestOutcome { node: ended.node(), latency, service_time: latency * 2, ok: true };
            self.policy.observe(&outcome, &mut PickContext { now: self.now, rng: &mut self.rng });
        }
    }

    /// Replaces the nodes, as a driver does on a change of health.
    fn change(&mut self, change: impl Fn(usize, &mut Node)) {
        let mut nodes = self.cluster.nodes().to_vec();
        nodes.iter_mut().enumerate().for_each(|(i, node)| change(i, node));
        let global = self.cluster.global_loads().cloned();
        self.cluster = Cluster::new(nodes, self.cluster.loads().clone());
        if let Some(global) = global {
            self.cluster = self.cluster.clone().with_global_loads(global);
        }
    }
}

/// A cache of orders that is too small, if the policy has one, so that orders are evicted.
fn small_tables(name: &str) -> BTreeMap<String, ParameterValue> {
    let declared = entries().find(|entry| entry.name == name).map_or(&[][..], |e| e.parameters);
    let has_orders = declared.iter().any(|parameter| parameter.name == "order_cache");
    has_orders
        .then(|| ("order_cache".to_owned(), ParameterValue::Integer(500)))
        .into_iter()
        .collect()
}

fn nodes(count: usize) -> Vec<Node> {
    (0..count)
        .map(|n| Node { distance: 1.0 + (n % 3) as f64, ..Node::new(&format!("node-{n}")) })
        .collect()
}

fn cluster(nodes: Vec<Node>) -> Cluster {
    let loads = LoadTable::new(nodes.len());
    Cluster::new(nodes, loads.clone()).with_global_loads(loads)
}

/// The object of this number. Popular objects have small numbers.
fn object(number: u64) -> Request {
    let key = Key(hash64(&number.to_le_bytes()));
    let class = ServiceClass::ALL[(key.0 >> 62) as usize];
    let size = match key.0 % 5 {
        0 => None,
        1 => Some(1 << 20),
        _ => Some(8 << 10),
    };
    Request { key, class, size }
}

/// A Zipf-like sequence of objects.
fn objects(count: usize) -> impl Iterator<Item = Request> {
    let mut rng = Rng::new(5);
    (0..count).map(move |_| object(1e4f64.powf(rng.unit()) as u64))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn only_nodes_that_are_up_are_picked_and_none_only_when_there_is_none(
        changes in prop::collection::vec(prop::collection::vec(any::<bool>(), 1..9), 1..6),
    ) {
        let most = changes.iter().map(Vec::len).max().unwrap_or(1);
        for entry in entries() {
            let mut world = World::new(entry.name, cluster(nodes(most)));
            for health in &changes {
                world.change(|i, node| node.up = health.get(i).copied().unwrap_or(false));
                for request in objects(60) {
                    let candidates = world.policy.candidates(&request, &world.cluster);
                    let pick = world.step(&request);
                    prop_assert_eq!(pick.is_none(), world.cluster.up().is_empty());
                    let Some(pick) = pick else { continue };
                    prop_assert!(world.cluster.is_up(pick.node), "{}", entry.name);
                    prop_assert!(pick.set_size >= 1, "{}", entry.name);
                    prop_assert!(candidates.order.contains(&pick.node), "{}", entry.name);
                }
            }
        }
    }

    #[test]
    fn policies_survive_any_membership(
        sizes in prop::collection::vec((0usize..40, 0u64..4), 1..6),
    ) {
        for entry in entries() {
            let mut world = World::new(entry.name, cluster(Vec::new()));
            for &(size, seed) in &sizes {
                let names = (0..size as u64).map(|n| Node {
                    weight: [0.1, 1.0, 1.0, 7.5][((n + seed) % 4) as usize],
                    ramp: [1.0, 1.0, 0.5, 0.0][((n * seed) % 4) as usize],
                    ..Node::new(&format!("node-{}", n * (seed + 1)))
                });
                world.under_way.clear();
                world.cluster = cluster(names.collect());
                for request in objects(40) {
                    let pick = world.step(&request);
                    prop_assert_eq!(pick.is_none(), size == 0, "{}", entry.name);
                }
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_picks() {
    for entry in entries() {
        let run = || {
            let mut world = World::new(entry.name, cluster(nodes(7)));
            objects(2_000).map(|request| world.step(&request)).collect::<Vec<_>>()
        };
        assert_eq!(run(), run(), "{}", entry.name);
    }
}

#[test]
fn a_fork_goes_on_as_the_original_does() {
    for entry in entries() {
        let mut world = World::new(entry.name, cluster(nodes(7)));
        for request in objects(1_000) {
            world.step(&request);
        }
        let (mut fork, mut rng) = (world.policy.fork(), world.rng.clone());
        // Loads stay constant, so that both policies see the same loads.
        for request in objects(500) {
            world.now = world.now + Duration::from_millis(40);
            let mut context = PickContext { now: world.now, rng: &mut rng };
            let forked = fork.pick(&request, &world.cluster, &mut context);
            assert_eq!(world.pick(&request), forked, "{}", entry.name);
        }
        let (forked, original) = (fork.tracked(), world.policy.tracked());
        assert_eq!(forked.objects, original.objects, "{}", entry.name);
    }
}

#[test]
fn a_fork_does_not_disturb_the_original() {
    for entry in entries() {
        let run = |disturbed: bool| {
            let mut world = World::new(entry.name, cluster(nodes(7)));
            let mut picks = Vec::new();
            for (number, request) in objects(500).enumerate() {
                if disturbed && number % 10 == 0 {
                    let mut fork = world.policy.fork();
                    let mut rng = Rng::new(99);
                    let mut context = PickContext { now: world.now, rng: &mut rng };
                    fork.pick(&object(77), &world.cluster, &mut context);
                }
                picks.push(world.step(&request));
            }
            picks
        };
        assert_eq!(run(false), run(true), "{}", entry.name);
    }
}

#[test]
fn asking_for_candidates_changes_nothing() {
    for entry in entries() {
        let run = |asked: bool| {
            let mut world = World::new(entry.name, cluster(nodes(7)));
            let mut picks = Vec::new();
            for (number, request) in (0..).zip(objects(2_000)) {
                if asked {
                    let other = object(number);
                    let before = world.policy.candidates(&request, &world.cluster);
                    let _ = world.policy.candidates(&other, &world.cluster);
                    let after = world.policy.candidates(&request, &world.cluster);
                    assert_eq!(before, after, "{}", entry.name);
                }
                picks.push(world.step(&request));
            }
            (picks, world.policy.tracked())
        };
        assert_eq!(run(false), run(true), "{}", entry.name);
    }
}

#[test]
fn candidates_are_nodes_that_are_up_once_each() {
    for entry in entries() {
        let mut world = World::new(entry.name, cluster(nodes(9)));
        for (number, request) in objects(600).enumerate() {
            if number % 200 == 100 {
                world.change(|i, node| node.up = i % 4 != number / 200);
            }
            let candidates = world.policy.candidates(&request, &world.cluster);
            assert!(candidates.set_size <= candidates.order.len(), "{}", entry.name);
            let mut once = candidates.order;
            let listed = once.len();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), listed, "{}", entry.name);
            assert!(once.iter().all(|node| world.cluster.is_up(*node)), "{}", entry.name);
            // Policies by service class consider only the nodes of the class.
            if entry.keyed {
                assert_eq!(once, world.cluster.up(), "{}", entry.name);
            }
            world.step(&request);
        }
    }
}

#[test]
fn a_cold_node_gets_no_keyed_request_while_another_is_up() {
    for entry in entries().filter(|entry| entry.keyed) {
        let mut world = World::new(entry.name, cluster(nodes(4)));
        world.change(|i, node| node.ramp = if i == 2 { 0.0 } else { 1.0 });
        for request in objects(2_000) {
            let pick = world.step(&request).expect("three nodes are warm");
            assert_ne!(pick.node, NodeIndex(2), "{}", entry.name);
        }
        world.change(|i, node| node.up = i == 2);
        let pick = world.step(&object(1)).expect("a cold node is better than none");
        assert_eq!(pick.node, NodeIndex(2), "{}", entry.name);
    }
}

#[test]
fn a_single_node_takes_everything() {
    for entry in entries() {
        let mut world = World::new(entry.name, cluster(nodes(1)));
        for request in objects(500) {
            let pick = world.step(&request).expect("it is up");
            assert_eq!(pick.node, NodeIndex(0), "{}", entry.name);
        }
        assert_eq!(world.policy.candidates(&object(1), &world.cluster).set_size, 1);
    }
}

#[test]
fn a_flood_of_objects_leaves_memory_bounded() {
    for entry in entries() {
        // With many shards each table is small, so that it fills.
        let around = Deployment { capacity: 10, shards: 1_000, ..Deployment::default() };
        let mut world = World::around(entry.name, cluster(nodes(5)), &around);
        let limit = world.policy.tracked().limit;
        let mut most = 0;
        for number in 0..30_000 {
            world.step(&object(number));
            if number % 1_000 == 999 {
                let tracked = world.policy.tracked();
                assert!(tracked.objects <= tracked.limit, "{}: {tracked:?}", entry.name);
                assert_eq!(tracked.limit, limit, "{}: the bound moves", entry.name);
                most = most.max(tracked.bytes);
            }
        }
        assert!(most <= 1024 + 256 * limit, "{}: {most} bytes for {limit}", entry.name);
    }
}

#[test]
fn outcomes_are_reported_to_one_instance() {
    for entry in entries().filter(|entry| entry.keyed) {
        let world = World::new(entry.name, cluster(nodes(3)));
        assert!(!world.policy.observes(), "{}: every shard would have to know", entry.name);
    }
}

#[test]
fn shards_divide_what_is_remembered() {
    for entry in entries().filter(|entry| entry.keyed) {
        let limit = |shards| {
            let around = Deployment { shards, ..Deployment::default() };
            World::around(entry.name, cluster(nodes(3)), &around).policy.tracked().limit
        };
        assert!(limit(8) * 8 <= limit(1), "{}: {} and {}", entry.name, limit(8), limit(1));
    }
}

/// Policies that send an object to one node while loads are equal.
const ONE_HOME: &[&str] = &[
    "maglev",
    "ring_hash",
    "hrw",
    "bounded_hash",
    "adaptive",
    "cdr",
    "fdr",
    "fdr-global",
    "np-fdr",
];

/// How many objects may move when one of n nodes joins or leaves, as a multiple of 1/n, where that is not 1.1. They
/// are the published ones.
const MOVE_MORE: &[(&str, f64)] = &[
    // The shares of nodes on a ring differ: nothing else moves than the share of the node.
    ("ring_hash", 1.4),
    // The more nodes, the more entries of its table change that are not those of the node.
    ("maglev", 1.2),
    // Copies are placed by hash functions with the number of nodes.
    ("r-chash", f64::INFINITY),
    ("lr-chash", f64::INFINITY),
    ("npr-chash", f64::INFINITY),
    ("nplr-chash", f64::INFINITY),
    // The remainder of a division by the number of nodes.
    ("modulo", f64::INFINITY),
    ("lb", f64::INFINITY),
    // It has no place for an object: it follows the contents of caches.
    ("lb/gc", f64::INFINITY),
    // Whole classes move.
    ("static_partition", f64::INFINITY),
];

/// The part of all places of objects that moves under a policy.
fn moved(name: &str, before: &[Node], after: &[Node]) -> Option<f64> {
    let mut policy = build(name, &BTreeMap::new(), &Deployment::default()).expect("it exists");
    let [before, after] = [before, after].map(|nodes| cluster(nodes.to_vec()));
    levada_policy::moved(&mut *policy, &before, &after, 10_000)
}

#[test]
fn few_objects_move_when_a_node_joins_or_leaves() {
    for entry in entries() {
        let more = MOVE_MORE.iter().find(|(name, _)| *name == entry.name);
        let times = more.map_or(1.1, |(_, times)| *times);
        if times.is_infinite() {
            continue;
        }
        for (count, which) in [(4, 0), (10, 5)] {
            let all = nodes(count);
            let rest: Vec<_> =
                all.iter().filter(|node| node.name != all[which].name).cloned().collect();
            for (before, after) in [(&all, &rest), (&rest, &all)] {
                let Some(moved) = moved(entry.name, before, after) else { continue };
                let moved = moved * count as f64;
                let what = format!("{}: {moved:.3} of 1/{count}", entry.name);
                assert!(moved <= times, "{what}");
                assert!(moved > 0.5 || !ONE_HOME.contains(&entry.name), "{what}");
            }
        }
    }
}

#[test]
fn where_every_node_is_responsible_no_object_has_a_place_that_moves() {
    for name in ["random", "round_robin", "least_conn", "p2c", "peak_ewma", "prequal", "wrr"] {
        assert_eq!(moved(name, &nodes(4), &nodes(3)), None, "{name}");
    }
}

#[test]
fn nearly_all_objects_move_under_modulo() {
    assert!(moved("modulo", &nodes(10), &nodes(11)).unwrap() > 0.85);
    assert!(moved("modulo", &nodes(11), &nodes(10)).unwrap() > 0.85);
}

#[test]
fn a_node_that_goes_and_comes_back_finds_its_objects() {
    for &name in ONE_HOME {
        let mut world = World::new(name, cluster(nodes(8)));
        let homes = |world: &mut World| -> Vec<_> {
            (0..3_000).map(|n| world.pick(&object(n)).map(|pick| pick.node)).collect()
        };
        let before = homes(&mut world);
        world.change(|i, node| node.up = i != 3);
        let during = homes(&mut world);
        let moved = |(home, refuge): (&Option<NodeIndex>, &Option<NodeIndex>)| home != refuge;
        let strays = before.iter().zip(&during).filter(|pair| moved(*pair));
        assert!(strays.map(|(home, _)| *home).all(|home| home == Some(NodeIndex(3))), "{name}");
        world.change(|_, node| node.up = true);
        assert_eq!(homes(&mut world), before, "{name}");
    }
}

#[test]
fn weights_are_respected_by_hashes() {
    // Loads stay at zero: the test measures the shares of objects.
    for name in
        ["modulo", "maglev", "ring_hash", "hrw", "bounded_hash", "adaptive", "cdr", "fdr", "np-fdr"]
    {
        let mut weighted = nodes(4);
        for (node, weight) in weighted.iter_mut().zip([1.0, 1.0, 2.0, 4.0]) {
            node.weight = weight;
            node.distance = 1.0;
        }
        let given = BTreeMap::from([("points".to_owned(), ParameterValue::Integer(1_000))]);
        let mut world = World::new(name, cluster(weighted));
        if let Ok(policy) = build(name, &given, &Deployment::default()) {
            world.policy = policy;
        }
        let mut counts = [0.0; 4];
        for number in 0..16_000 {
            counts[world.pick(&object(number)).expect("all are up").node.get()] += 1.0;
        }
        for (count, weight) in counts.into_iter().zip([1.0, 1.0, 2.0, 4.0]) {
            let share = count / 16_000.0 * 8.0 / weight;
            assert!((0.85..1.15).contains(&share), "{name}: {counts:?}");
        }
    }
}

#[test]
fn load_is_relative_to_weight_where_the_least_loaded_is_taken() {
    // With few objects a node of higher weight carries more than a lighter one.
    for name in ["lr-hrw", "lr-chash"] {
        let mut weighted = nodes(3);
        weighted[1].weight = 4.0;
        let mut world = World::new(name, cluster(weighted));
        let mut counts = [0u32; 3];
        for request in objects(3_000) {
            counts[world.step(&request).expect("all are up").node.get()] += 1;
        }
        assert!(counts[1] > 2 * counts[0].max(counts[2]), "{name}: {counts:?}");
    }
}

#[test]
fn names_are_unique_and_every_policy_says_what_it_is() {
    let mut names: Vec<_> = entries().map(|entry| entry.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    for entry in entries() {
        assert!(!entry.name.is_empty() && !entry.paper.is_empty() && !entry.summary.is_empty());
        let mut parameters: Vec<_> = entry.parameters.iter().map(|p| p.name).collect();
        parameters.sort_unstable();
        assert!(parameters.windows(2).all(|pair| pair[0] != pair[1]), "{}", entry.name);
    }
}
