//! The circular pointer of round robin, CAP and static partitioning.

use levada_types::Rng;

use crate::{Candidates, Cluster, NodeIndex};

/// A pointer that goes round a list of nodes.
///
/// It holds an index of the cluster's list, not of the list of nodes that are up. So a node that
/// goes down gives its turn to the next one, and the turns of the others do not change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rotation {
    place: u32,
}

impl Rotation {
    /// The next of `nodes`, which ascend, that accepts its turn; `None` when `nodes` is empty.
    ///
    /// A node in slow start accepts with the probability of its ramp. If all nodes refuse in one
    /// round, the first in turn gets the request.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        nodes: &[NodeIndex],
        cluster: &Cluster,
        rng: &mut Rng,
    ) -> Option<NodeIndex> {
        let first = self.position(nodes)?;
        let mut node = nodes[first];
        if cluster.ramping() {
            node = self.round(nodes).find(|&n| takes_turn(n, cluster, rng)).unwrap_or(node);
        }
        self.pass(node);
        Some(node)
    }

    /// The index in the cluster's list of the node whose turn is next.
    pub(crate) fn place(self) -> usize {
        self.place as usize
    }

    /// Moves the pointer past `node`, which has had its turn.
    #[inline]
    pub(crate) fn pass(&mut self, node: NodeIndex) {
        self.place = node.0 + 1;
    }

    /// The nodes in the order of their turns.
    pub(crate) fn order(self, nodes: &[NodeIndex]) -> Candidates {
        Candidates { order: self.round(nodes).collect(), set_size: nodes.len() }
    }

    /// `nodes`, which ascend, one round from the pointer on.
    #[inline]
    fn round(self, nodes: &[NodeIndex]) -> impl Iterator<Item = NodeIndex> {
        let (later, first) = nodes.split_at(self.position(nodes).unwrap_or(0));
        first.iter().chain(later).copied()
    }

    /// The index in `nodes` of the first node at or after the pointer.
    #[inline]
    fn position(self, nodes: &[NodeIndex]) -> Option<usize> {
        let first = nodes.first()?;
        // If no node before the pointer is missing, which is the usual case, the index follows from
        // it.
        let guess = self.place.wrapping_sub(first.0) as usize;
        if nodes.get(guess) == Some(&NodeIndex(self.place)) {
            return Some(guess);
        }
        let found = nodes.partition_point(|node| node.0 < self.place);
        Some(if found == nodes.len() { 0 } else { found })
    }
}

/// Whether `node`, which is up, accepts its turn: always if it is warm, else with the probability
/// of its ramp.
#[inline]
pub(crate) fn takes_turn(node: NodeIndex, cluster: &Cluster, rng: &mut Rng) -> bool {
    let ramp = cluster.node(node).ramp;
    ramp >= 1.0 || rng.unit() < ramp
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use crate::testing::{cluster, nodes};

    fn turns(rotation: &mut Rotation, cluster: &Cluster, count: usize) -> Vec<u32> {
        let rng = &mut Rng::new(1);
        (0..count).map(|_| rotation.turn(cluster.up(), cluster, rng).unwrap().0).collect()
    }

    #[test]
    fn a_node_that_is_down_passes_its_turn_on() {
        let mut rotation = Rotation::default();
        let all = cluster(nodes(4));
        assert_eq!(turns(&mut rotation, &all, 5), [0, 1, 2, 3, 0]);
        let rest = all.without(&[NodeIndex(1)]);
        assert_eq!(turns(&mut rotation, &rest, 4), [2, 3, 0, 2]);
        assert_eq!(turns(&mut rotation, &all, 2), [3, 0]);
    }

    #[test]
    fn a_node_in_slow_start_takes_its_part_of_the_turns() {
        let mut slow = nodes(2);
        slow[1].ramp = 0.25;
        let turns = turns(&mut Rotation::default(), &cluster(slow), 10_000);
        let share = turns.iter().filter(|&&n| n == 1).count();
        assert!((1_900..2_100).contains(&share), "a quarter of the other's turns, got {share}");
    }

    #[test]
    fn a_cluster_that_is_cold_throughout_still_serves() {
        let cold = nodes(2).into_iter().map(|n| Node { ramp: 0.0, ..n }).collect();
        assert_eq!(turns(&mut Rotation::default(), &cluster(cold), 3), [0, 1, 0]);
    }
}
