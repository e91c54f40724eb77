//! How many objects another membership moves.

use levada_types::{Key, Request, Rng, Timestamp, hash64};

use crate::{Cluster, LoadTable, Node, PickContext, Policy};

/// The part of the places of objects that moves when `after` follows `before`: a place is a node of an object's
/// set, and it has moved when that node is not in the set any more. `policy` is a fresh instance, and `objects`
/// the number of objects in the sample. All nodes count as up, warm and idle.
///
/// `None` if every node is responsible for every object.
pub fn moved(
    policy: &mut dyn Policy,
    before: &Cluster,
    after: &Cluster,
    objects: u64,
) -> Option<f64> {
    let all = before.len() as u64 * objects;
    let (before, after) = (sets(policy, before, objects), sets(policy, after, objects));
    let places = before.iter().map(|set| set.len() as u64).sum::<u64>();
    if places == 0 || places == all {
        return None;
    }
    let lost = before
        .iter()
        .zip(&after)
        .map(|(before, after)| before.iter().filter(|node| !after.contains(node)).count());
    Some(lost.sum::<usize>() as f64 / places as f64)
}

/// The nodes that are responsible for each object, by the hashes of their names.
fn sets(policy: &mut dyn Policy, cluster: &Cluster, objects: u64) -> Vec<Vec<u64>> {
    let well = |node: &Node| Node { up: true, ramp: 1.0, ..node.clone() };
    let nodes: Vec<_> = cluster.nodes().iter().map(well).collect();
    let idle = Cluster::new(nodes, LoadTable::new(cluster.len()));
    let mut rng = Rng::new(1);
    let mut set = |object: u64| {
        let request = Request::new(Key(hash64(&object.to_le_bytes())));
        // A policy may assign an object with its first request.
        policy.pick(&request, &idle, &mut PickContext { now: Timestamp::ZERO, rng: &mut rng });
        let candidates = policy.candidates(&request, &idle);
        let responsible = candidates.order.iter().take(candidates.set_size);
        responsible.map(|node| idle.node(*node).hash).collect()
    };
    (0..objects).map(&mut set).collect()
}
