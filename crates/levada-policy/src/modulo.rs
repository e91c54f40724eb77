//! Modulo hashing: the key modulo the number of nodes that are up, as the map-based hashes of nginx and
//! HAProxy do. Perfectly even and the cheapest there is, but a node that goes or comes moves nearly
//! every object. The counter-example to the others.

use levada_types::{Key, Request};

use crate::{Candidates, Cluster, Context, Entry, NodeIndex, Pick, Policy, Reason};

pub(crate) const ENTRIES: &[Entry] = &[Entry {
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
        _context: &mut Context<'_>,
    ) -> Option<Pick> {
        let up = cluster.up();
        let node = if cluster.ramping() || !cluster.even() {
            repeated(request.key, cluster)?
        } else if up.is_empty() {
            return None;
        } else {
            up[(request.key.0 % up.len() as u64) as usize]
        };
        Some(Pick { node, reason: Reason::Hash, set_size: 1 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let mut order = cluster.up().to_vec();
        let first = repeated(request.key, cluster);
        let turn = order.iter().position(|node| Some(*node) == first).unwrap_or(0);
        order.rotate_left(turn);
        Candidates { set_size: order.len().min(1), order }
    }

    fn fork(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

/// The key modulo the nodes that take it, each repeated as often as its weight.
fn repeated(key: Key, cluster: &Cluster) -> Option<NodeIndex> {
    let taking = |node: &&NodeIndex| cluster.accepts(**node, key);
    let turns: u64 = cluster.up().iter().filter(taking).map(|n| repetitions(*n, cluster)).sum();
    if turns > 0 {
        return at_turn(key.0 % turns, cluster.up().iter().filter(taking), cluster);
    }
    let turns: u64 = cluster.up().iter().map(|n| repetitions(*n, cluster)).sum();
    at_turn(key.0.checked_rem(turns)?, cluster.up().iter(), cluster)
}

fn at_turn<'a>(
    mut turn: u64,
    mut nodes: impl Iterator<Item = &'a NodeIndex>,
    cluster: &Cluster,
) -> Option<NodeIndex> {
    nodes
        .find(|node| match turn.checked_sub(repetitions(**node, cluster)) {
            Some(rest) => {
                turn = rest;
                false
            }
            None => true,
        })
        .copied()
}

/// Weights are whole numbers in the proxies that repeat servers: fractions are rounded, up to 1 at least.
fn repetitions(node: NodeIndex, cluster: &Cluster) -> u64 {
    cluster.node(node).weight.round().max(1.0) as u64
}

#[cfg(test)]
mod tests {
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
}
