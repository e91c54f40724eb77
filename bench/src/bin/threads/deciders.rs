//! One decider for all threads, as the sites of a node share it.
//!
//! 64 nodes and the counts of their requests, which every choice reads. Each thread has 64 requests
//! under way. In a crowd every second request is for one object.

use std::{collections::BTreeMap, hint::black_box};

use levada_policy::{Cluster, LoadTable, Node, NodeIndex};
use levada_redirector::{Decider, DeciderDeployment, PolicyChoice};
use levada_types::{Key, Request, Timestamp};

use crate::{Row, THREADS, compare, key, zipf};

const NODES: usize = 64;
const UNDER_WAY: usize = 64;

pub(crate) fn run(policies: &[String]) {
    let names = if policies.is_empty() { &["adaptive".to_owned()][..] } else { policies };
    let loads = LoadTable::new(NODES);
    let nodes = (0..NODES).map(|n| Node::new(&format!("node-{n}"))).collect();
    let cluster = &Cluster::new(nodes, loads);
    let usual = zipf(1_000_000);
    let crowded: Vec<Vec<Key>> = usual
        .iter()
        .map(|keys| {
            keys.iter().zip(0..).map(|(k, n)| if n % 2 == 0 { key(0) } else { *k }).collect()
        })
        .collect();
    let alone = |keys: &[Key]| counted(keys, cluster, |key| NodeIndex((key.0 >> 58) as u32));
    let mut rows =
        vec![Row { name: "counting alone".to_owned(), streams: &usual, work: Box::new(alone) }];
    for name in names {
        for (streams, remark) in [(&usual, ""), (&crowded, ", crowd")] {
            let choice = PolicyChoice { name: name.clone(), parameters: BTreeMap::new() };
            let deployment = DeciderDeployment { redirectors: 1, capacity: 100, seed: 1 };
            let decider = Decider::new(&choice, &deployment).expect("the policy exists");
            let work = move |keys: &[Key]| {
                counted(keys, cluster, |key| {
                    let pick = decider.pick(&Request::new(key), cluster, Timestamp::ZERO);
                    pick.expect("all nodes are up").node
                });
            };
            rows.push(Row { name: format!("{name}{remark}"), streams, work: Box::new(work) });
        }
    }
    compare(&rows, &THREADS);
}

/// Counts each request at its node, and ends the one that began some requests before.
fn counted(keys: &[Key], cluster: &Cluster, pick: impl Fn(Key) -> NodeIndex) {
    let mut under_way: Vec<_> = (0..UNDER_WAY).map(|_| None).collect();
    for (key, place) in keys.iter().zip((0..UNDER_WAY).cycle()) {
        under_way[place] = Some(cluster.loads().begin(pick(*key)));
    }
    black_box(under_way);
}
