use levada_types::{Key, Request};

use super::*;
use crate::testing::{World, cluster, nodes};
use crate::{Node, ParameterValue};

/// One object over five nodes with a busy threshold of 10. Loads are listed by rank in the object's
/// order.
struct Small {
    world: World,
    cluster: Cluster,
    order: Vec<NodeIndex>,
}

const OBJECT: Request =
    Request { key: Key(42), class: levada_types::ServiceClass::Normal, size: None };

impl Small {
    fn new(name: &str, given: &[(&str, ParameterValue)]) -> Self {
        Self::of(name, given, nodes(5))
    }

    fn of(name: &str, given: &[(&str, ParameterValue)], nodes: Vec<Node>) -> Self {
        let given = [&[("busy", ParameterValue::Integer(10))], given].concat();
        let (world, cluster) = (World::new(name, &given), cluster(nodes));
        let order = world.policy.candidates(&OBJECT, &cluster).order;
        Self { world, cluster, order }
    }

    /// The rank of the picked node, the reason, and the new size of the set.
    fn step(&mut self, seconds: u64, loads: [u32; 5]) -> (usize, &'static str, u32) {
        for (node, load) in self.order.iter().zip(loads) {
            self.cluster.loads().set(*node, load);
        }
        self.request(seconds, &OBJECT)
    }

    fn request(&mut self, seconds: u64, request: &Request) -> (usize, &'static str, u32) {
        let pick = self.world.at_secs(seconds).pick(request, &self.cluster).unwrap();
        let rank = self.order.iter().position(|node| *node == pick.node).unwrap();
        (rank, pick.reason.as_str(), pick.set_size)
    }

    fn set(&self) -> usize {
        self.world.policy.candidates(&OBJECT, &self.cluster).set_size
    }
}

#[test]
fn cdr_walks_past_busy_nodes_and_forgets() {
    let mut cdr = Small::new("cdr", &[]);
    for (loads, expected) in [
        ([0, 0, 0, 0, 0], (0, "hash", 1)),
        ([9, 0, 0, 0, 0], (0, "hash", 1)),
        ([10, 9, 0, 0, 0], (1, "spill", 2)),
        ([10, 12, 10, 3, 0], (3, "spill", 4)),
        ([10, 10, 10, 10, 10], (0, "hash", 5)),
        ([0, 9, 9, 9, 9], (0, "hash", 1)),
    ] {
        assert_eq!(cdr.step(0, loads), expected, "{loads:?}");
    }
}

#[test]
fn fdr_lengthens_shares_and_shrinks() {
    let mut fdr = Small::new("fdr", &[]);
    for (second, loads, expected) in [
        (1, [9, 0, 0, 0, 0], (0, "hash", 1)),
        // The first is busy: the walk continues to the first node that is not.
        (2, [10, 10, 5, 0, 0], (2, "spill", 3)),
        // The set of three is remembered; its least loaded node is picked, not the least loaded of
        // all.
        (3, [8, 4, 6, 0, 0], (1, "replica", 3)),
        // One busy member does not grow the set.
        (4, [10, 10, 9, 0, 0], (2, "replica", 3)),
        // The set grows only when its least loaded member is busy.
        (5, [11, 10, 12, 2, 0], (3, "spill", 4)),
        // After exactly shrink_after without a change the set does not shrink yet.
        (25, [1, 2, 3, 0, 0], (3, "replica", 4)),
        // The member that is removed still serves this request.
        (26, [1, 2, 3, 0, 0], (3, "replica", 3)),
        // Shrinking is a change as well, so the next removal takes as long.
        (27, [1, 2, 3, 0, 0], (0, "replica", 3)),
        (47, [1, 2, 3, 0, 0], (0, "replica", 2)),
        (68, [1, 2, 3, 0, 0], (0, "replica", 1)),
        // The size never falls below one.
        (99, [9, 2, 3, 0, 0], (0, "hash", 1)),
    ] {
        // 46 s is exactly 20 s after 26 s.
        assert_eq!(fdr.step(second, loads), expected, "at {second} s with {loads:?}");
    }
}

#[test]
fn a_cluster_that_is_busy_throughout_serves_at_the_first() {
    let mut fdr = Small::new("fdr", &[]);
    assert_eq!(fdr.step(1, [10, 10, 10, 10, 10]), (0, "hash", 5));
    assert_eq!(fdr.set(), 5);
    assert_eq!(fdr.step(2, [9, 9, 9, 9, 8]), (4, "replica", 5));
}

#[test]
fn sets_never_fall_below_the_minimum() {
    let mut fdr = Small::new("fdr", &[("min_set", ParameterValue::Integer(2))]);
    assert_eq!(fdr.step(0, [5, 4, 0, 0, 0]), (1, "replica", 2));
    assert_eq!(fdr.step(1, [10, 10, 4, 0, 0]), (2, "spill", 3));
    assert_eq!(fdr.step(30, [1, 2, 3, 0, 0]), (0, "replica", 2));
    assert_eq!(fdr.step(90, [1, 2, 3, 0, 0]), (0, "replica", 2));
}

#[test]
fn a_down_member_is_replaced_by_the_next_in_order() {
    let mut fdr = Small::new("fdr", &[]);
    fdr.step(1, [10, 9, 0, 0, 0]);
    fdr.cluster = fdr.cluster.without(&[fdr.order[0]]);
    assert_eq!(fdr.step(2, [0, 9, 3, 0, 0]), (2, "replica", 2));
    fdr.cluster = fdr.cluster.without(&fdr.order[..4]);
    assert_eq!(fdr.step(3, [0, 0, 0, 0, 3]), (4, "hash", 1));
}

#[test]
fn heavy_nodes_are_busy_later() {
    let mut weighted = nodes(5);
    weighted.iter_mut().for_each(|node| node.weight = 2.0);
    let mut fdr = Small::of("fdr", &[], weighted);
    assert_eq!(fdr.step(1, [19, 0, 0, 0, 0]), (0, "hash", 1));
    assert_eq!(fdr.step(2, [20, 0, 0, 0, 0]), (1, "spill", 2));
}

#[test]
fn the_walk_is_lengthened_only_when_the_least_loaded_is_busy() {
    // The property that the paper's text states, over varying loads.
    for order in ["hrw", "ring"] {
        let mut fdr = Small::new("fdr", &[("order", ParameterValue::Text(order.into()))]);
        let mut rng = levada_types::Rng::new(3);
        let (mut changed, mut before) = (0, fdr.set());
        for second in 0..5_000 {
            let busy = rng.below(20);
            let loads = std::array::from_fn(|_| if rng.below(20) < busy { 10 } else { 3 });
            let all_busy = loads[..before].iter().all(|load| *load == 10);
            let (rank, _, set) = fdr.step(second, loads);
            let after = fdr.set();
            assert_eq!(set as usize, after);
            assert!((1..=5).contains(&after));
            match after.cmp(&before) {
                std::cmp::Ordering::Greater => assert!(all_busy),
                std::cmp::Ordering::Less => {
                    assert_eq!(after, before - 1);
                    assert!(!all_busy && second - changed > 20);
                }
                std::cmp::Ordering::Equal => {
                    assert!(before == 5 || !all_busy);
                    assert!(before == 1 || all_busy || second - changed <= 20);
                }
            }
            assert!(loads[rank] == 3 || loads == [10; 5]);
            if after != before {
                (changed, before) = (second, after);
            }
        }
    }
}

#[test]
fn near_servers_are_preferred_and_far_ones_busy_earlier() {
    let at = |distances: [f64; 5], given: &[(&str, ParameterValue)]| {
        // Distances are listed by rank in the object's order.
        let order = Small::new("np-fdr", given).order;
        let mut nodes = nodes(5);
        for (node, distance) in order.iter().zip(distances) {
            nodes[node.get()].distance = distance;
        }
        Small::of("np-fdr", given, nodes)
    };
    let raw = [("busy_view", ParameterValue::Text("raw".into()))];
    let mut effective = at([2.0, 1.0, 1.0, 1.0, 1.0], &[]);
    assert_eq!(effective.step(1, [4, 0, 0, 0, 0]), (0, "hash", 1));
    assert_eq!(effective.step(2, [5, 0, 0, 0, 0]), (1, "spill", 2));
    // 2 x (3 + 1) against 1 x (8 + 1).
    assert_eq!(effective.step(3, [3, 8, 0, 0, 0]), (0, "replica", 2));
    assert_eq!(effective.step(4, [3, 6, 0, 0, 0]), (1, "replica", 2));
    let mut raw = at([2.0, 1.0, 1.0, 1.0, 1.0], &raw);
    assert_eq!(raw.step(1, [9, 0, 0, 0, 0]), (0, "hash", 1));
    assert_eq!(raw.step(2, [10, 0, 0, 0, 0]), (1, "spill", 2));
}

#[test]
fn the_global_view_sees_other_redirectors() {
    let mut fdr = Small::new("fdr-global", &[]);
    let everyone = crate::LoadTable::new(5);
    fdr.cluster = fdr.cluster.clone().with_global_loads(everyone.clone());
    everyone.set(fdr.order[0], 10);
    assert_eq!(fdr.step(1, [0, 0, 0, 0, 0]), (1, "spill", 2));
}

#[test]
fn thresholds_by_capacity_follow_the_number_of_redirectors() {
    let threshold = |name: &str, redirectors| {
        let around = Deployment { redirectors, ..Deployment::default() };
        let busy = [("busy".to_owned(), ParameterValue::Text("capacity".into()))].into();
        let mut policy = crate::build(name, &busy, &around).unwrap();
        let cluster = cluster(nodes(2)).with_global_loads(crate::LoadTable::new(2));
        let table = cluster.global_loads().filter(|_| name == "fdr-global");
        let table = table.unwrap_or(cluster.loads()).clone();
        let first = policy.candidates(&OBJECT, &cluster).order[0];
        let mut rng = levada_types::Rng::new(1);
        let mut spills = |load| {
            table.set(first, load);
            let mut context = PickContext { now: Default::default(), rng: &mut rng };
            policy.pick(&OBJECT, &cluster, &mut context).unwrap().reason == PickReason::Spill
        };
        (1..).find(|load| spills(*load)).unwrap()
    };
    assert_eq!(threshold("fdr", 1), 1228);
    assert_eq!(threshold("fdr", 12), 102);
    assert_eq!(threshold("fdr-global", 12), 1228);
}

#[test]
fn default_threshold_follows_the_mean_load() {
    for name in ["cdr", "fdr"] {
        let relative = || Small { world: World::new(name, &[]), ..Small::new(name, &[]) };
        let mut object = relative();
        // The mean is (44 + 1) / 5 = 9: a server is busy at 1.5 * 9 + 2 * 3 + 1 = 20.5.
        assert_eq!(object.step(0, [20, 9, 6, 5, 4]), (0, "hash", 1), "{name}");
        assert_eq!(object.step(0, [21, 8, 6, 5, 4]), (1, "spill", 2), "{name}");
        // Twice the load.
        assert_eq!(relative().step(0, [32, 19, 18, 11, 9]).0, 0);
    }
}

#[test]
fn large_files_take_their_own_way() {
    let large = Request { size: Some(530 * 1024 + 1), ..OBJECT };
    let small = Request { size: Some(530 * 1024), ..OBJECT };
    for base in ["cdr", "fdr"] {
        let mut random = Small::new(&format!("{base}-t-r"), &[]);
        let ranks: std::collections::BTreeSet<_> =
            (0..100).map(|_| random.request(1, &large).0).collect();
        assert_eq!(ranks.len(), 5);
        assert_eq!(random.request(1, &large).1, "chance");
        assert_eq!(random.request(1, &small), (0, "hash", 1));
        assert_eq!(random.request(1, &OBJECT), (0, "hash", 1));

        let mut set =
            Small::new(&format!("{base}-t-s"), &[("large_set", ParameterValue::Integer(3))]);
        set.step(1, [9, 9, 8, 0, 0]);
        assert_eq!(set.request(1, &large), (2, "replica", 3));
        assert_eq!(set.request(1, &small), (0, "hash", 1));
        assert_eq!(set.request(1, &OBJECT), (0, "hash", 1));
    }
}

#[test]
fn a_flood_of_objects_does_not_grow_the_table_beyond_its_slots() {
    let mut fdr = Small::new("fdr", &[("slots", ParameterValue::Integer(1_000))]);
    let busy = [10, 10, 9, 10, 10];
    fdr.step(1, busy);
    for key in 0..20_000 {
        fdr.world.node(key, &fdr.cluster);
    }
    let tracked = fdr.world.policy.tracked();
    assert_eq!(tracked.limit, 1_000);
    assert!(tracked.bytes < 7_000, "{tracked:?}: 6 bytes a slot, in pages");
    assert!((500..=1_000).contains(&tracked.objects), "{}", tracked.objects);
}
