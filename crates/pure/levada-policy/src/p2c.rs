//! The power of two choices: the less loaded of two random nodes.
//!
//! M. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001. Two samples
//! reduce the maximum load from about ln n / ln ln n to ln ln n. Also, independent redirectors do
//! not all choose the one node that looks idle to all of them.

use levada_types::{Request, Rng};

use crate::relative_load::{RelativeLoad, ascending};
use crate::{
    Candidates, Cluster, Deployment, NodeIndex, Parameters, Pick, PickContext, PickReason, Policy,
    PolicyEntry,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "p2c",
    paper: "Mitzenmacher 2001; Envoy, Finagle, HAProxy",
    summary: "of two random nodes the one with fewer outstanding requests relative to its weight",
    keyed: false,
    needs: &[],
    parameters: &[],
    build: |_: &Parameters, _: &Deployment| Box::new(TwoChoices),
}];

#[derive(Clone)]
struct TwoChoices;

impl Policy for TwoChoices {
    fn pick(
        &mut self,
        _request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let load = |node| RelativeLoad::of(node, 1.0, cluster);
        let node = better_of_two(cluster.up(), load, context.rng)?;
        Some(Pick { node, reason: PickReason::Least, set_size: cluster.up().len() as u32 })
    }

    fn candidates(&self, _request: &Request, cluster: &Cluster) -> Candidates {
        let order = ascending(cluster);
        Candidates { set_size: order.len(), order }
    }
}

/// The node with the lower `score` of two different random `nodes`; `None` when `nodes` is empty.
#[inline]
pub(crate) fn better_of_two<S: PartialOrd>(
    nodes: &[NodeIndex],
    score: impl Fn(NodeIndex) -> S,
    rng: &mut Rng,
) -> Option<NodeIndex> {
    let (&only, others) = nodes.split_first()?;
    if others.is_empty() {
        return Some(only);
    }
    let first = rng.below(nodes.len());
    // The other positions are equally likely: positions from the first on move up by one.
    let second = rng.below(others.len());
    let (a, b) = (nodes[first], nodes[second + usize::from(second >= first)]);
    Some(if score(b) < score(a) { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, cluster, loaded, nodes};

    #[test]
    fn the_busiest_node_is_never_taken() {
        let spread = World::new("p2c", &[]).spread(3_000, &loaded(&[0, 1, 2]));
        // Pairs ab, ac, bc are equally likely; a wins two of them, b one.
        assert!(spread[2] == 0 && (1_900..2_100).contains(&spread[0]), "{spread:?}");
    }

    #[test]
    fn equal_nodes_get_equal_shares() {
        let spread = World::new("p2c", &[]).spread(8_000, &cluster(nodes(8)));
        assert!(spread.iter().all(|n| (880..1_120).contains(n)), "{spread:?}");
    }

    #[test]
    fn a_cold_node_is_taken_only_when_alone() {
        let mut two = nodes(2);
        two[0].ramp = 0.0;
        let two = cluster(two);
        assert_eq!(World::new("p2c", &[]).spread(100, &two), [0, 100]);
        assert_eq!(World::new("p2c", &[]).spread(100, &two.without(&[NodeIndex(1)])), [100, 0]);
    }
}
