use std::collections::BTreeMap;

use levada_types::weigh;

use super::*;
use crate::{
    Node, ParameterValue,
    testing::{cluster, nodes},
};

fn order(method: Method, depth: usize, cache: i64) -> Order {
    static DECLARED: &[Parameter] = &[ORDER_CACHE, POINTS];
    let given = BTreeMap::from([("order_cache".to_owned(), ParameterValue::Integer(cache))]);
    let parameters = Parameters::check("test", DECLARED, &given).unwrap();
    Order::new(method, depth, &parameters, &Deployment::default())
}

fn walk(order: &mut Order, key: u64, cluster: &Cluster) -> Vec<NodeIndex> {
    order.walk(Key(key), cluster).collect()
}

const METHODS: [(Method, usize); 4] =
    [(Method::Hrw, 1), (Method::Ring, 1), (Method::Spread, 10), (Method::Spread, 20)];

#[test]
fn hrw_sorts_by_weight() {
    let cluster = cluster(nodes(40));
    let mut order = order(Method::Hrw, 1, 100);
    for key in 0..200 {
        let mut expected = cluster.up().to_vec();
        expected.sort_by_key(|n| std::cmp::Reverse(weigh(Key(key), cluster.node(*n).hash)));
        assert_eq!(walk(&mut order, key, &cluster), expected);
    }
}

#[test]
fn equal_hashes_are_ordered_by_name() {
    let twins = ["b", "c", "a"].map(|name| Node { hash: 7, ..Node::new(name) });
    let cluster = cluster(twins.to_vec());
    let expected = [NodeIndex(2), NodeIndex(0), NodeIndex(1)];
    assert_eq!(walk(&mut order(Method::Hrw, 1, 1), 5, &cluster), expected);
    assert_eq!(walk(&mut order(Method::Hrw, 3, 1), 5, &cluster), expected);
}

#[test]
fn equal_weights_give_the_plain_order() {
    let plain = cluster(nodes(20));
    let heavy: Vec<_> = nodes(20).into_iter().map(|n| Node { weight: 3.5, ..n }).collect();
    let heavy = cluster(heavy);
    for key in 0..100 {
        let (mut a, mut b) = (order(Method::Hrw, 1, 1), order(Method::Hrw, 1, 1));
        assert_eq!(walk(&mut a, key, &plain), walk(&mut b, key, &heavy));
    }
}

#[test]
fn listing_order_does_not_matter() {
    let mut reversed = nodes(20);
    reversed.reverse();
    let (forward, backward) = (cluster(nodes(20)), cluster(reversed));
    for (method, depth) in METHODS {
        let names = |cluster: &Cluster, key| -> Vec<_> {
            let mut order = order(method, depth, 1);
            order.walk(Key(key), cluster).map(|n| cluster.node(n).name.clone()).collect()
        };
        for key in 0..50 {
            assert_eq!(names(&forward, key), names(&backward, key), "{method:?}");
        }
    }
}

#[test]
fn every_walk_meets_every_node_once_at_any_depth() {
    for count in [1, 2, 13, 14, 60, 300] {
        let cluster = cluster(nodes(count));
        for (method, depth) in METHODS {
            let mut order = order(method, depth, 16);
            for key in 0..40 {
                let whole = order.whole(Key(key), &cluster).0;
                assert_eq!(walk(&mut order, key, &cluster), whole, "{method:?} {count}");
                let mut sorted = whole.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, cluster.up());
            }
        }
    }
}

#[test]
fn forgetting_changes_nothing() {
    let cluster = cluster(nodes(50));
    for (method, depth) in METHODS {
        let (mut small, mut large) = (order(method, depth, 0), order(method, depth, 10_000));
        for step in 0..2_000u64 {
            let (key, length) = (Key(step % 37), (step % 50) as usize);
            let a: Vec<_> = small.walk(key, &cluster).take(length).collect();
            let b: Vec<_> = large.walk(key, &cluster).take(length).collect();
            assert_eq!(a, b, "{method:?}");
            assert_eq!(small.first(key, &cluster, length), large.first(key, &cluster, length));
        }
    }
}

#[test]
fn down_nodes_are_stepped_over_and_come_back() {
    let up = cluster(nodes(10));
    for (method, depth) in METHODS {
        let mut order = order(method, depth, 100);
        for key in 0..50 {
            let before = walk(&mut order, key, &up);
            let down = up.without(&before[..2]);
            assert_eq!(walk(&mut order, key, &down), before[2..]);
            assert_eq!(walk(&mut order, key, &up), before);
        }
    }
}

#[test]
fn nodes_in_slow_start_are_met_only_when_there_is_no_other() {
    let cold = |name| Node { ramp: 0.0, ..Node::new(name) };
    let mixed = cluster(vec![cold("a"), Node::new("b"), cold("c")]);
    let all_cold = cluster(vec![cold("a"), cold("b"), cold("c")]);
    for (method, depth) in METHODS {
        let mut order = order(method, depth, 100);
        for key in 0..50 {
            assert_eq!(walk(&mut order, key, &mixed), [NodeIndex(1)]);
            assert_eq!(walk(&mut order, key, &all_cold).len(), 3);
            assert_eq!(order.candidates(Key(key), &mixed, 2).set_size, 1);
            assert_eq!(order.candidates(Key(key), &mixed, 2).order[0], NodeIndex(1));
        }
    }
}

#[test]
fn walk_is_empty_when_no_node_is_up() {
    let cluster = cluster(nodes(3));
    let down = cluster.without(cluster.up());
    let empty = crate::testing::cluster(Vec::new());
    for (method, depth) in METHODS {
        assert_eq!(walk(&mut order(method, depth, 1), 1, &down), []);
        assert_eq!(walk(&mut order(method, depth, 1), 1, &empty), []);
        assert!(order(method, depth, 1).candidates(Key(1), &empty, 1).order.is_empty());
    }
}

#[test]
fn a_new_membership_is_noticed() {
    let (small, large) = (cluster(nodes(5)), cluster(nodes(9)));
    for (method, depth) in METHODS {
        let mut order = order(method, depth, 100);
        assert_eq!(walk(&mut order, 1, &small).len(), 5);
        assert_eq!(walk(&mut order, 1, &large).len(), 9);
        assert_eq!(walk(&mut order, 1, &small).len(), 5);
    }
}

#[test]
fn the_closest_server_may_lie_before_the_key() {
    // For about half of many keys the first server differs from the clockwise successor.
    let cluster = cluster(nodes(10));
    let (mut closest, mut ring) = (order(Method::Spread, 1, 1), order(Method::Ring, 1, 1));
    let first = |order: &mut Order, key| order.walk(Key(key), &cluster).next();
    let same = (0..1_000).filter(|k| first(&mut closest, *k) == first(&mut ring, *k)).count();
    assert!((450..700).contains(&same), "{same}");
}

#[test]
fn replica_points_are_evenly_spaced() {
    let cluster = cluster(nodes(64));
    let mut order = order(Method::Spread, 10, 100);
    let sizes: Vec<_> = (0..1_000).map(|key| order.first(Key(key), &cluster, 10).len()).collect();
    // Ten draws of 64 give 9.33 distinct servers on average.
    let mean = sizes.iter().sum::<usize>() as f64 / 1_000.0;
    assert!((9.2..9.5).contains(&mean), "{mean}");
    assert!(sizes.iter().all(|size| (1..=10).contains(size)));
}
