//! Modulo hashing: the key modulo the number of nodes that are up, as the map-based hashes of nginx
//! and HAProxy do. It is perfectly even and the cheapest policy, but nearly every object moves when
//! a node joins or leaves. It serves as the counter-example to the others.

use levada_types::{Key, Request};

use crate::{Candidates, Cluster, NodeIndex, Pick, PickContext, PickReason, Policy, PolicyEntry};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "modulo",
    paper: "nginx, HAProxy (hash-type map-based)",
    summary: "the object's hash modulo the number of servers that are up; weights by repetition",
    keyed: true,
    needs: &[],
    parameters: &[],
    build: |_, _| Box::new(Modulo),
}];

#[derive(Clone)]
pub(crate) struct Modulo;

impl Policy for Modulo {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        _context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let node = home(request.key, cluster)?;
        Some(Pick { node, reason: PickReason::Hash, set_size: 1 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let mut order = cluster.up().to_vec();
        let first = home(request.key, cluster);
        let turn = order.iter().position(|node| Some(*node) == first).unwrap_or(0);
        order.rotate_left(turn);
        Candidates { set_size: order.len().min(1), order }
    }
}

/// The key modulo the nodes that are up, each repeated by weight. If the node is in slow start and
/// does not accept the key yet, the key modulo the nodes that do.
#[inline]
fn home(key: Key, cluster: &Cluster) -> Option<NodeIndex> {
    let (up, turns) = (cluster.up(), cluster.turns());
    let at = match turns.last() {
        Some(all) => {
            let turn = key.0 % all;
            turns.partition_point(|end| *end <= turn)
        }
        None => key.0.checked_rem(up.len() as u64)? as usize,
    };
    let node = up[at];
    if cluster.ramping() && !cluster.accepts(node, key) {
        return Some(among_taking(key, cluster).unwrap_or(node));
    }
    Some(node)
}

fn among_taking(key: Key, cluster: &Cluster) -> Option<NodeIndex> {
    let up = cluster.up().iter().copied();
    let taking: Vec<_> = up.filter(|node| cluster.accepts(*node, key)).collect();
    let repetitions = |node: &NodeIndex| cluster.node(*node).repetitions();
    let mut turn = key.0.checked_rem(taking.iter().map(repetitions).sum())?;
    taking.into_iter().find(|node| match turn.checked_sub(repetitions(node)) {
        Some(rest) => {
            turn = rest;
            false
        }
        None => true,
    })
}

#[cfg(test)]
mod tests {
    use levada_types::{Key, Request};

    use crate::testing::{World, cluster, nodes};
    use crate::{Node, NodeIndex};

    #[test]
    fn keys_count_through_the_nodes_that_are_up() {
        let all = cluster(nodes(4));
        let rest = all.without(&[NodeIndex(1)]);
        let mut world = World::new("modulo", &[]);
        let keys = 4..10;
        let on = |world: &mut World, c| keys.clone().map(|k| world.node(k, c)).collect::<Vec<_>>();
        assert_eq!(on(&mut world, &all), [0, 1, 2, 3, 0, 1]);
        assert_eq!(on(&mut world, &rest), [2, 3, 0, 2, 3, 0]);
        for key in keys {
            let candidates = world.policy.candidates(&Request::new(Key(key)), &rest);
            assert_eq!(candidates.order[0].0, world.node(key, &rest));
            assert_eq!((candidates.order.len(), candidates.set_size), (3, 1));
        }
    }

    #[test]
    fn heavy_nodes_are_repeated() {
        let mut weighted = nodes(3);
        weighted[1] = Node { weight: 2.0, ..weighted[1].clone() };
        let cluster = cluster(weighted);
        let mut world = World::new("modulo", &[]);
        let picks: Vec<_> = (0..8).map(|key| world.node(key, &cluster)).collect();
        assert_eq!(picks, [0, 1, 1, 2, 0, 1, 1, 2]);
    }

    #[test]
    fn slow_start_moves_only_what_the_slow_node_does_not_take() {
        let mut slow = nodes(4);
        slow[2].ramp = 0.5;
        let (warm, slow) = (cluster(nodes(4)), cluster(slow));
        let mut world = World::new("modulo", &[]);
        let mut kept = 0;
        for key in 0..4_000 {
            let (home, now) = (world.node(key, &warm), world.node(key, &slow));
            assert!(home == now || home == 2, "{key} went from {home} to {now}");
            kept += u32::from(home == 2 && now == 2);
        }
        assert!((400..700).contains(&kept), "{kept} of 1000");
    }
}
