//! How much a node has to do for its size, and who of all nodes has the least.

use std::cmp::Ordering;

use levada_types::Rng;

use crate::{Cluster, NodeIndex};

/// Work over capacity. Compared by cross multiplication: no division, and a node without capacity
/// (ramp 0) has more to do than any other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burden {
    work: f64,
    capacity: f64,
}

impl Burden {
    /// The burden of `node` once it has one more request, each of them costing `cost`; its ramp
    /// scales its weight. Counting the request to come makes idle nodes differ by weight and ramp.
    #[inline]
    pub(crate) fn of(node: NodeIndex, cost: f64, cluster: &Cluster) -> Self {
        let n = cluster.node(node);
        let requests = f64::from(cluster.load(node)) + 1.0;
        Self { work: cost * requests, capacity: n.weight * n.ramp }
    }
}

impl PartialEq for Burden {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.work * other.capacity == other.work * self.capacity
    }
}

impl PartialOrd for Burden {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.work * other.capacity).partial_cmp(&(other.work * self.capacity))
    }
}

/// The node with the least burden of all that are up, ties broken by chance; `None` when none is up.
#[inline]
pub(crate) fn least_of_all(cluster: &Cluster, rng: &mut Rng) -> Option<NodeIndex> {
    if cluster.even() && !cluster.ramping() {
        least(cluster, |node| cluster.load(node), rng)
    } else {
        least(cluster, |node| Burden::of(node, 1.0, cluster), rng)
    }
}

/// All nodes that are up, the least burdened first.
pub(crate) fn ascending(cluster: &Cluster) -> Vec<NodeIndex> {
    let mut order = cluster.up().to_vec();
    let burden = |node: &NodeIndex| Burden::of(*node, 1.0, cluster);
    order.sort_by(|a, b| burden(a).partial_cmp(&burden(b)).unwrap_or(Ordering::Equal));
    order
}

/// Two passes, unlike [`least_by`](crate::choose::least_by): over a thousand nodes of which most are
/// idle, one random number per decision costs less than one per tie.
#[inline]
fn least<S: PartialOrd + Copy>(
    cluster: &Cluster,
    score: impl Fn(NodeIndex) -> S,
    rng: &mut Rng,
) -> Option<NodeIndex> {
    let up = cluster.up();
    let mut best = *up.first()?;
    let (mut lowest, mut ties) = (score(best), 1);
    for &node in &up[1..] {
        let s = score(node);
        if s < lowest {
            (best, lowest, ties) = (node, s, 1);
        } else if s == lowest {
            ties += 1;
        }
    }
    if ties == 1 {
        return Some(best);
    }
    // Loads may move between the passes; then the first of the lowest will do.
    let mut tied = up.iter().copied().filter(|&node| score(node) == lowest);
    tied.nth(rng.below(ties)).or(Some(best))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, loaded, nodes};

    #[test]
    fn the_least_loaded_of_all_is_found_and_ties_fall_evenly() {
        let (mut rng, five) = (Rng::new(1), loaded(&[4, 2, 3, 2, 2]));
        let mut wins = [0u32; 5];
        for _ in 0..3_000 {
            wins[least_of_all(&five, &mut rng).unwrap().get()] += 1;
        }
        assert!((wins[0], wins[2]) == (0, 0), "{wins:?}");
        assert!([1, 3, 4].iter().all(|&i| (900..1_100).contains(&wins[i])), "{wins:?}");
    }

    #[test]
    fn weight_and_ramp_make_idle_nodes_differ() {
        let mut three = nodes(3);
        (three[0].weight, three[1].weight) = (2.0, 3.0);
        three[1].ramp = 0.5;
        assert_eq!(ascending(&cluster(three.clone())), [0, 1, 2].map(NodeIndex));
        three[0].ramp = 0.0;
        assert_eq!(ascending(&cluster(three)), [1, 2, 0].map(NodeIndex));
    }
}
