//! The load of a node relative to its weight, and the search for the least loaded node.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use levada_types::Rng;

use crate::{Cluster, NodeIndex};

/// Work over capacity. Two values are compared by cross multiplication: this needs no division, and
/// a node without capacity (ramp 0) ranks behind all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelativeLoad {
    work: f64,
    capacity: f64,
}

impl RelativeLoad {
    /// The relative load of `node` once it has one more request, each of them costing `cost`; its
    /// ramp scales its weight. Including the new request makes idle nodes differ by weight and
    /// ramp.
    #[inline]
    pub(crate) fn of(node: NodeIndex, cost: f64, cluster: &Cluster) -> Self {
        let n = cluster.node(node);
        let requests = f64::from(cluster.load(node)) + 1.0;
        Self { work: cost * requests, capacity: n.weight * n.ramp }
    }
}

impl PartialEq for RelativeLoad {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.work * other.capacity == other.work * self.capacity
    }
}

impl PartialOrd for RelativeLoad {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.work * other.capacity).partial_cmp(&(other.work * self.capacity))
    }
}

/// All nodes that are up, the least loaded first.
pub(crate) fn ascending(cluster: &Cluster) -> Vec<NodeIndex> {
    let mut order = cluster.up().to_vec();
    let load = |node: &NodeIndex| RelativeLoad::of(*node, 1.0, cluster);
    order.sort_by(|a, b| load(a).partial_cmp(&load(b)).unwrap_or(Ordering::Equal));
    order
}

/// The rule that chooses among nodes of equal load.
pub(crate) enum Ties<'a> {
    /// By chance, each with the same probability.
    Chance(&'a mut Rng),
    /// In turn: the first at or after this index of the cluster's list.
    Turn(usize),
}

/// The node with the lowest relative load of all that are up; `None` when none is up.
#[inline]
pub(crate) fn least_of_all(cluster: &Cluster, ties: Ties<'_>) -> Option<NodeIndex> {
    if cluster.up().is_empty() {
        return None;
    }
    let all_equal = cluster.even() && !cluster.ramping() && cluster.up().len() == cluster.len();
    let index = if all_equal {
        lowest(cluster, |load, _| load, ties)
    } else {
        lowest(cluster, |load, cost| (load as f32 + 1.0) * cost, ties)
    };
    // Loads can change during the search. Then no node may have the lowest score any more.
    Some(index.map_or(cluster.up()[0], |index| NodeIndex(index as u32)))
}

/// The index with the lowest score of load and request cost.
///
/// The search takes two steps: first the lowest score, over packed arrays and without a branch;
/// then an index that has this score. The first step notes the lowest score of each block, so that
/// the second step searches few blocks.
#[inline]
fn lowest<S: PartialOrd + Copy>(
    cluster: &Cluster,
    score: impl Fn(u32, f32) -> S,
    ties: Ties<'_>,
) -> Option<usize> {
    let (loads, costs) = (cluster.loads().counts(), cluster.request_costs());
    let at = |index: usize| score(loads[index].load(Relaxed), costs[index]);

    const BLOCKS: usize = 32;
    let size = loads.len().div_ceil(BLOCKS).next_multiple_of(8 * SIDE_BY_SIDE);
    let mut lows = [at(0); BLOCKS];
    let blocks = loads.chunks(size).zip(costs.chunks(size));
    for (low, (loads, costs)) in lows.iter_mut().zip(blocks) {
        *low = lowest_score(loads, costs, &score);
    }
    let lows = &lows[..loads.len().div_ceil(size)];
    let lowest = lows[1..].iter().fold(lows[0], |a, &b| if b < a { b } else { a });

    let has_it = |index: &usize| at(*index) == lowest;
    match ties {
        Ties::Turn(place) => {
            let place = if place < loads.len() { place } else { 0 };
            (place..loads.len()).chain(0..place).find(has_it)
        }
        Ties::Chance(rng) => {
            // If many nodes have the same score, as in an idle cluster, a few random guesses
            // replace the search. Each node is equally likely to be guessed.
            let mut guesses = (0..4).map(|_| rng.below(loads.len()));
            if let Some(index) = guesses.find(has_it) {
                return Some(index);
            }
            let (mut level, mut ties) = ([0; LEVEL], 0);
            for block in (0..lows.len()).filter(|&block| lows[block] == lowest) {
                for index in block * size..loads.len().min((block + 1) * size) {
                    level[ties % LEVEL] = index;
                    ties += usize::from(has_it(&index));
                }
            }
            match ties {
                0 => None,
                1..=LEVEL => Some(level[rng.below(ties)]),
                _ => (0..loads.len()).map(|_| rng.below(loads.len())).find(has_it),
            }
        }
    }
}

/// If more nodes than this have the lowest score, guessing finds one.
const LEVEL: usize = 64;

/// The lowest score of a block. Several minima run side by side, because each step of one minimum
/// depends on the step before.
#[inline]
fn lowest_score<S: PartialOrd + Copy>(
    loads: &[AtomicU32],
    costs: &[f32],
    score: impl Fn(u32, f32) -> S,
) -> S {
    let of = |load: &AtomicU32, cost: &f32| score(load.load(Relaxed), *cost);
    let less = |a: S, b: S| if b < a { b } else { a };
    let mut lows = [of(&loads[0], &costs[0]); SIDE_BY_SIDE];
    let (loads, other_loads) = loads.as_chunks::<SIDE_BY_SIDE>();
    let (costs, other_costs) = costs.as_chunks::<SIDE_BY_SIDE>();
    for (loads, costs) in loads.iter().zip(costs) {
        for i in 0..SIDE_BY_SIDE {
            lows[i] = less(lows[i], of(&loads[i], &costs[i]));
        }
    }
    let others = other_loads.iter().zip(other_costs).map(|(load, cost)| of(load, cost));
    others.chain(lows).fold(lows[0], less)
}

const SIDE_BY_SIDE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, loaded, nodes};

    #[test]
    fn the_least_loaded_of_all_is_found_and_ties_fall_evenly() {
        for more in [0, 8, 1_000] {
            let loads: Vec<u32> = [4, 2, 3, 2, 2].into_iter().chain((0..more).map(|_| 9)).collect();
            let (mut rng, many) = (Rng::new(1), loaded(&loads));
            for cluster in [&many, &many.without(&[NodeIndex(0)])] {
                let mut wins = vec![0u32; loads.len()];
                for _ in 0..3_000 {
                    wins[least_of_all(cluster, Ties::Chance(&mut rng)).unwrap().get()] += 1;
                }
                let even = [1, 3, 4].iter().all(|&i| (900..1_100).contains(&wins[i]));
                assert!(
                    even && wins.iter().sum::<u32>() == wins[1] + wins[3] + wins[4],
                    "{wins:?}"
                );
            }
        }
    }

    #[test]
    fn ties_in_turn_wrap_round() {
        let five = loaded(&[4, 2, 3, 2, 9]);
        let from = |place| least_of_all(&five, Ties::Turn(place)).unwrap().0;
        assert_eq!([0, 1, 2, 3, 4, 5].map(from), [1, 1, 3, 3, 1, 1]);
    }

    #[test]
    fn weight_and_ramp_make_idle_nodes_differ() {
        let mut three = nodes(3);
        (three[0].weight, three[1].weight) = (2.0, 3.0);
        three[1].ramp = 0.5;
        let least = |c: &Cluster| least_of_all(c, Ties::Turn(2)).unwrap().0;
        assert_eq!(ascending(&cluster(three.clone())), [0, 1, 2].map(NodeIndex));
        assert_eq!(least(&cluster(three.clone())), 0);
        three[0].ramp = 0.0;
        let cold = cluster(three);
        assert_eq!(ascending(&cold), [1, 2, 0].map(NodeIndex));
        assert_eq!(least(&cold), 1);
        assert_eq!(least(&cold.without(&[NodeIndex(1), NodeIndex(2)])), 0);
        assert_eq!(least_of_all(&cold.without(&[0, 1, 2].map(NodeIndex)), Ties::Turn(0)), None);
    }
}
