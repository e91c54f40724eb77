use std::collections::BTreeMap;

use levada_types::{Key, Request, Rng, Timestamp};

use super::*;
use crate::testing::{World, cluster, loaded, nodes, policy, set_loads};
use crate::{Node, ParameterValue, build_shards};

fn world() -> World {
    World::new("adaptive", &[])
}

fn order(world: &World, key: u64, cluster: &Cluster) -> Vec<NodeIndex> {
    world.policy.candidates(&Request::new(Key(key)), cluster).order
}

fn pick(world: &mut World, key: u64, cluster: &Cluster) -> (NodeIndex, PickReason, u32) {
    let pick = world.pick(&Request::new(Key(key)), cluster).unwrap();
    (pick.node, pick.reason, pick.set_size)
}

/// Requests for many other objects, so that one that is requested now and then is not hot.
fn others(world: &mut World, cluster: &Cluster) {
    (1_000..9_000).for_each(|key| _ = world.node(key, cluster));
}

/// A world in which object 7 has the set of its first node, the cluster, and the object's order.
fn with_a_known_object(nodes: usize) -> (World, Cluster, Vec<NodeIndex>) {
    let (mut world, cluster) = (world(), loaded(&vec![0; nodes]));
    let order = order(&world, 7, &cluster);
    assert_eq!(pick(&mut world, 7, &cluster), (order[0], PickReason::Hash, 1));
    others(&mut world, &cluster);
    (world, cluster, order)
}

fn load(cluster: &Cluster, order: &[NodeIndex], loads: &[u32]) {
    order.iter().zip(loads).for_each(|(node, load)| cluster.loads().set(*node, *load));
}

#[test]
fn a_cold_object_leaves_its_node_at_one_and_a_half_times_the_mean_and_two_roots() {
    // (35 + 1) / 4 = 9: the bound is 1.5 * 9 + 2 * 3 + 1 = 20.5.
    for (loads, place) in [([20, 9, 3, 3], 0), ([21, 9, 3, 2], 2), ([21, 3, 9, 2], 1)] {
        let (mut world, cluster, order) = with_a_known_object(4);
        load(&cluster, &order, &loads);
        let expected = if place == 0 { PickReason::Hash } else { PickReason::Spill };
        let size = place as u32 + 1;
        assert_eq!(pick(&mut world, 7, &cluster), (order[place], expected, size), "{loads:?}");
    }
}

#[test]
fn an_object_that_is_new_moves_and_stays_there() {
    let (mut world, cluster) = (world(), loaded(&[0; 4]));
    others(&mut world, &cluster);
    let order = order(&world, 7, &cluster);
    load(&cluster, &order, &[21, 9, 3, 2]);
    assert_eq!(pick(&mut world, 7, &cluster), (order[2], PickReason::Spill, 1));
    load(&cluster, &order, &[0, 0, 3, 0]);
    assert_eq!(pick(&mut world, 7, &cluster), (order[2], PickReason::Hash, 1));
}

#[test]
fn a_moved_set_grows_towards_the_front_first() {
    let (mut world, cluster) = (world(), loaded(&[0; 8]));
    others(&mut world, &cluster);
    let order = order(&world, 7, &cluster);
    load(&cluster, &order, &[18, 18, 0, 0]);
    assert_eq!(pick(&mut world, 7, &cluster), (order[2], PickReason::Spill, 1));
    load(&cluster, &order, &[20, 0, 20, 0]);
    assert_eq!(pick(&mut world, 7, &cluster), (order[1], PickReason::Spill, 2));
    load(&cluster, &order, &[20, 20, 20, 0]);
    assert_eq!(pick(&mut world, 7, &cluster), (order[3], PickReason::Spill, 3));
    let candidates = world.policy.candidates(&Request::new(Key(7)), &cluster);
    let expected = [&order[1..4], &order[..1], &order[4..]].concat();
    assert_eq!((candidates.order, candidates.set_size), (expected, 3));
}

#[test]
fn a_hot_object_is_held_against_the_nodes_outside_its_set() {
    let (mut world, cluster) = (world(), loaded(&[0; 4]));
    let order = order(&world, 7, &cluster);
    (0..1_000).for_each(|_| _ = world.node(7, &cluster));
    // Outside its set the mean is (11 + 1) / 3 = 4: the bound is 1.1 * 4 + 2 + 1 = 7.4.
    for (loads, size) in [([7, 5, 3, 3], 1), ([8, 5, 3, 3], 3)] {
        load(&cluster, &order, &loads);
        assert_eq!(pick(&mut world, 7, &cluster).2, size, "{loads:?}");
    }
    // In a set of all nodes the mean over all counts: nobody is left to join.
    load(&cluster, &order, &[50, 50, 50, 0]);
    assert_eq!(pick(&mut world, 7, &cluster), (order[3], PickReason::Spill, 4));
    load(&cluster, &order, &[50, 50, 40, 50]);
    assert_eq!(pick(&mut world, 7, &cluster), (order[2], PickReason::Replica, 4));
}

#[test]
fn a_set_that_rests_loses_the_more_loaded_of_its_ends() {
    let (mut world, cluster, order) = with_a_known_object(4);
    load(&cluster, &order, &[21, 9, 3, 2]);
    assert_eq!(pick(&mut world, 7, &cluster).2, 3);
    load(&cluster, &order, &[2, 0, 1, 0]);
    assert_eq!(pick(world.at_secs(19), 7, &cluster), (order[1], PickReason::Replica, 3));
    assert_eq!(pick(world.at_secs(21), 7, &cluster), (order[1], PickReason::Replica, 2));
    assert_eq!(pick(world.at_secs(22), 7, &cluster), (order[1], PickReason::Replica, 2));
    assert_eq!(pick(world.at_secs(45), 7, &cluster), (order[1], PickReason::Replica, 1));
    load(&cluster, &order, &[0, 2, 0, 0]);
    assert_eq!(pick(&mut world, 7, &cluster), (order[1], PickReason::Hash, 1));
}

#[test]
fn a_clock_that_jumps_changes_a_set_by_one_node_at_most() {
    let (mut world, cluster, order) = with_a_known_object(4);
    load(&cluster, &order, &[21, 9, 3, 2]);
    pick(world.at_secs(1_000_000), 7, &cluster);
    load(&cluster, &order, &[0; 4]);
    let mut before = 3;
    for seconds in [0, u64::MAX / 1_000_000_000, 5, 1_000_000] {
        let size = pick(world.at_secs(seconds), 7, &cluster).2;
        assert!((1..=before).contains(&size) && before - size <= 1, "{size} after {before}");
        before = size;
    }
}

#[test]
fn few_objects_are_hot_however_many_there_are() {
    let (mut world, eight) = (world(), loaded(&[0; 8]));
    let mut rng = Rng::new(3);
    // Zipf: object k has a share of 1 / (k ln 1e5).
    for _ in 0..200_000 {
        world.node(1e5f64.powf(rng.unit()) as u64, &eight);
    }
    let bound = |key| world.policy.bound(&Request::new(Key(key)), &eight).unwrap();
    let expected = |key: f64| 1.0 / (key * 1e5f64.ln());
    let share = bound(2).share.unwrap();
    assert!((share / expected(2.5) - 1.0).abs() < 0.4, "{share}");
    // The mean is 1 / 8.
    let (hot, other) = (bound(2).requests, bound(1_000).requests);
    assert!((hot - (1.1 / 8.0 + 0.125f64.sqrt() + 1.0)).abs() < 0.05, "{hot}");
    assert!((other - (1.5 / 8.0 + 2.0 * 0.125f64.sqrt() + 1.0)).abs() < 1e-9, "{other}");
}

#[test]
fn shards_know_an_objects_share_of_the_requests_of_all() {
    let deployment = Deployment { shards: 16, ..Deployment::default() };
    let mut shards = build_shards("adaptive", &BTreeMap::new(), &deployment).unwrap();
    let (eight, mut rng) = (loaded(&[0; 8]), Rng::new(3));
    let of = |key: u64| (key % 16) as usize;
    let mut pick = |policy: &mut dyn Policy, key| {
        let mut context = PickContext { now: Timestamp::ZERO, rng: &mut rng };
        policy.pick(&Request::new(Key(key)), &eight, &mut context).unwrap();
    };
    let mut chance = Rng::new(4);
    for request in 0..200_000 {
        // Half of all requests crowd one shard, and the others follow Zipf.
        let key = if request % 2 == 0 { 32 } else { 1e5f64.powf(chance.unit()) as u64 };
        pick(&mut *shards[of(key)], key);
    }
    let share = |shards: &[Box<dyn Policy>], key| {
        shards[of(key)].bound(&Request::new(Key(key)), &eight).unwrap().share.unwrap()
    };
    let expected = |key: f64| 0.5 * ((key + 1.0) / key).ln() / 1e5f64.ln();
    for (key, expected) in [(32, 0.5), (1, expected(1.0)), (2, expected(2.0)), (16, expected(16.0))]
    {
        let ratio = share(&shards, key) / expected;
        assert!((0.85..1.15).contains(&ratio), "{key}: {ratio}");
    }
    let mut fork = shards[0].fork();
    let before = share(&shards, 2);
    (0..100_000).for_each(|_| pick(&mut *fork, 32));
    (0..40).for_each(|_| pick(&mut *shards[of(2)], 2));
    let after = share(&shards, 2) / before;
    assert!((1.0..1.2).contains(&after), "the copy counts by itself: {after}");
}

#[test]
fn a_flood_of_new_objects_evicts_nothing_popular() {
    let slots = ParameterValue::Integer(1_000);
    let (mut world, four) = (World::new("adaptive", &[("slots", slots)]), loaded(&[0; 4]));
    let share = |world: &World, key| {
        world.policy.bound(&Request::new(Key(key)), &four).unwrap().share.unwrap()
    };
    for new in 100..50_000 {
        world.node(new % 100, &four);
        world.node(new, &four);
    }
    let kept = (0..100).filter(|key| share(&world, *key) > 0.002).count();
    assert!(kept > 85, "{kept} of 100: two popular ones may share a slot");
    assert_eq!(world.policy.tracked().limit, 1_000);
}

#[test]
fn ten_million_objects_take_no_more_memory_and_evict_nothing_popular() {
    let (mut sets, mut window, mut rng) = (ObjectSets::new(262_144), Window::new(1), Rng::new(1));
    let popular = Key(u64::MAX);
    for object in 0..10_000_000 {
        let key = if object % 1_000 == 0 { popular } else { Key(object) };
        window.count(64);
        sets.ask(key, &window, &mut rng);
    }
    let Tracked { objects, limit, bytes } = sets.tracked();
    assert!(
        objects <= limit && bytes <= (3 << 20) + (64 << 10),
        "{objects} objects in {bytes} bytes"
    );
    let (_, count) = sets.peek(popular, &window).unwrap();
    assert!((0.0005..0.002).contains(&window.share(count)), "{count}");
}

#[test]
fn keys_that_share_a_slot_in_one_instance_do_not_in_another() {
    let slot = |key, seed| {
        let mut sets = ObjectSets::new(1_000);
        sets.ask(key, &Window::new(1), &mut Rng::new(seed)).slot
    };
    let first = slot(Key(0), 1);
    let same: Vec<_> = (0..100_000).map(Key).filter(|key| slot(*key, 1) == first).collect();
    let mut elsewhere: Vec<_> = same.iter().map(|key| slot(*key, 2)).collect();
    elsewhere.sort_unstable();
    elsewhere.dedup();
    let (attacked, spread) = (same.len(), elsewhere.len());
    assert!(attacked > 50 && spread * 10 > attacked * 8, "{attacked} keys in {spread} slots");
}

#[test]
fn the_load_stays_balanced_if_all_objects_share_one_slot() {
    let slots = ParameterValue::Integer(1);
    let (mut world, eight) = (World::new("adaptive", &[("slots", slots)]), loaded(&[0; 8]));
    let order = order(&world, 7, &eight);
    let mut under_way = std::collections::VecDeque::new();
    for request in 0..20_000u64 {
        // Half of the requests are for one object, and no slot remembers it.
        let key = if request % 2 == 0 { 7 } else { request };
        under_way.push_back(eight.loads().begin(NodeIndex(world.node(key, &eight))));
        if under_way.len() > 400 {
            under_way.pop_front();
        }
        // The mean is 50: the bound is 1.5 * 50 + 2 * 7.1 + 1.
        assert!(eight.load(order[0]) <= 91);
    }
}

#[test]
fn one_node_serves_everything_and_none_serves_nothing() {
    let (mut world, one) = (world(), loaded(&[u32::MAX]));
    for key in [7, 7, 8] {
        assert_eq!(world.node(key, &one), 0);
    }
    let none = one.without(&[NodeIndex(0)]);
    assert_eq!(world.pick(&Request::new(Key(7)), &none), None);
    assert_eq!(world.policy.bound(&Request::new(Key(7)), &none), None);
    assert_eq!(world.node(7, &one), 0, "the node is back");
}

#[test]
fn moved_sets_outlive_changes_of_membership_health_and_parameters() {
    let eight = cluster(nodes(8));
    let mut world = world();
    others(&mut world, &eight);
    let keys = 10_000..10_200;
    for key in keys.clone() {
        let order = order(&world, key, &eight);
        load(&eight, &order, &[18, 18, 0, 0, 0, 0, 0, 0]);
        assert_eq!(pick(&mut world, key, &eight).0, order[2]);
    }
    set_loads(&eight, &[0; 8]);
    let homes = |world: &mut World, cluster: &Cluster| -> Vec<_> {
        let name = |node: NodeIndex| cluster.node(node).name.clone();
        keys.clone().map(|key| name(NodeIndex(world.node(key, cluster)))).collect()
    };
    let before = homes(&mut world, &eight);
    let joined = cluster([vec![Node::new("new")], nodes(8)].concat());
    assert_eq!(homes(&mut world, &joined), before, "a node joined before them");
    let down = eight.without(&[NodeIndex(5)]);
    let strays = homes(&mut world, &down);
    let moved = before.iter().zip(&strays).filter(|(a, b)| a != b);
    assert!(moved.map(|(home, _)| &**home).all(|home| home == "node-5"));
    let mut reloaded = World::new("adaptive", &[("order_cache", ParameterValue::Integer(10))]);
    reloaded.policy.inherit(world.policy);
    assert_eq!(homes(&mut reloaded, &eight), before, "the node is back, the parameters changed");
    reloaded.policy.failed(NodeIndex(5), &eight);
    let after = homes(&mut reloaded, &eight);
    assert!(before.iter().zip(&after).all(|(a, b)| (a != b) == (&**a == "node-5")));
}

#[test]
fn weights_count_in_proportion_and_a_node_near_zero_gets_hardly_anything() {
    let spread = |scale: f64| {
        let weights = [1.0, 2.0, 4.0, 1e-9].map(|weight| weight * scale);
        let list = nodes(4).into_iter().zip(weights).map(|(n, weight)| Node { weight, ..n });
        let (mut world, four) = (world(), cluster(list.collect()));
        let mut under_way = std::collections::VecDeque::new();
        let mut counts = [0; 4];
        for request in 0..40_000u64 {
            let key = if request % 2 == 0 { 1 } else { request };
            let node = NodeIndex(world.node(key, &four));
            counts[node.get()] += 1;
            under_way.push_back(four.loads().begin(node));
            if under_way.len() > 140 {
                under_way.pop_front();
            }
        }
        counts
    };
    let counts = spread(1.0);
    assert_eq!(counts, spread(64.0), "only proportions count");
    assert!(counts[3] < 10, "{counts:?}");
    for (count, weight) in counts.into_iter().zip([1.0, 2.0, 4.0]) {
        let fair = f64::from(count) / 40_000.0 * 7.0 / weight;
        assert!((0.75..1.25).contains(&fair), "{counts:?}");
    }
}

#[test]
fn counts_and_loads_saturate() {
    let (mut world, two) = (world(), loaded(&[u32::MAX, u32::MAX]));
    for _ in 0..200_000 {
        world.node(7, &two);
    }
    let bound = world.policy.bound(&Request::new(Key(7)), &two).unwrap();
    assert!((0.9..=1.0).contains(&bound.share.unwrap()) && bound.requests.is_finite());
}

#[test]
fn a_crowd_of_half_the_requests_uses_all_of_four_thousand_nodes() {
    let (mut world, many) = (world(), cluster(nodes(4_096)));
    let mut under_way = Vec::new();
    for request in 0..40_960u64 {
        let key = if request % 2 == 0 { 1 } else { request };
        under_way.push(many.loads().begin(NodeIndex(world.node(key, &many))));
    }
    let most = (0..4_096).map(|node| many.load(NodeIndex(node))).max().unwrap();
    assert!(most <= 24, "{most} at one node, 10 in the mean");
    assert!(policy("adaptive", &[]).tracked().bytes <= 3 << 20);
}
