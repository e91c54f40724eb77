//! Choosing one of several nodes: the node with the least load, ties broken by chance, or any by
//! chance.
//!
//! OSDI'02 does not say how ties are broken. Breaking them by position would send every burst that
//! finds an idle cluster to the same node. So ties are broken by chance, without another pass over
//! the nodes or extra memory.

use levada_types::{Key, Rng};

use crate::{Cluster, NodeIndex};

/// The node with the smallest `score`, ties broken by chance; `None` when `nodes` is empty.
///
/// The first pass finds the lowest score, the second the nodes that have it. Neither pass has a
/// branch that the processor could mispredict, and a single minimum draws no random number.
#[inline]
pub(crate) fn least_by<S: PartialOrd>(
    nodes: &[NodeIndex],
    score: impl Fn(NodeIndex) -> S,
    rng: &mut Rng,
) -> Option<NodeIndex> {
    let (&first, others) = nodes.split_first()?;
    if others.is_empty() {
        return Some(first);
    }
    let scores = others.iter().map(|node| score(*node));
    let lowest = scores.fold(score(first), |low, s| if s < low { s } else { low });
    let mut level = nodes.iter().filter(|node| score(**node) == lowest);
    let ties = level.clone().count();
    let nth = if ties > 1 { rng.below(ties) } else { 0 };
    // Loads can change during the search. Then no node may have the lowest score any more.
    Some(level.nth(nth).copied().unwrap_or(first))
}

/// One of `nodes` by chance, in proportion to its `share`; `None` when `nodes` is empty.
#[inline]
pub(crate) fn by_share(
    nodes: &[NodeIndex],
    share: impl Fn(NodeIndex) -> f64,
    rng: &mut Rng,
) -> Option<NodeIndex> {
    let all: f64 = nodes.iter().map(|node| share(*node)).sum();
    let mut left = rng.unit() * all;
    let taken = nodes.iter().find(|node| {
        left -= share(**node);
        left < 0.0
    });
    taken.or(nodes.last()).copied()
}

/// One of `nodes` by chance; `None` when `nodes` is empty.
#[inline]
pub(crate) fn one_of(nodes: &[NodeIndex], rng: &mut Rng) -> Option<NodeIndex> {
    if nodes.is_empty() { None } else { Some(nodes[rng.below(nodes.len())]) }
}

/// A node that accepts `key`, by chance; if none does, a node that is up, by chance.
pub(crate) fn any(key: Key, cluster: &Cluster, rng: &mut Rng) -> Option<NodeIndex> {
    let up = cluster.up();
    if cluster.ramping() {
        let taking = up.iter().copied().filter(|node| cluster.accepts(*node, key));
        if let Some(node) = one_of(&taking.collect::<Vec<_>>(), rng) {
            return Some(node);
        }
    }
    one_of(up, rng)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadTable, Node, view::LoadView};

    fn cluster(loads: &[(u32, f64)]) -> Cluster {
        let table = LoadTable::new(loads.len());
        let nodes = (0..loads.len())
            .map(|i| Node { weight: loads[i].1, ..Node::new(&format!("node-{i}")) })
            .collect();
        for (i, (load, _)) in (0..).zip(loads) {
            table.set(NodeIndex(i), *load);
        }
        Cluster::new(nodes, table)
    }

    #[test]
    fn load_is_relative_to_weight() {
        let rng = &mut Rng::new(1);
        let least = |cluster: &Cluster, rng: &mut Rng| {
            LoadView::default().least(cluster.up(), cluster, rng)
        };
        let even = cluster(&[(3, 1.0), (2, 1.0), (5, 1.0)]);
        assert_eq!(least(&even, rng), Some(NodeIndex(1)));
        let uneven = cluster(&[(3, 1.0), (2, 1.0), (5, 4.0)]);
        assert_eq!(least(&uneven, rng), Some(NodeIndex(2)));
        assert_eq!(least_by(&[], |_| 0, rng), None);
    }

    #[test]
    fn ties_fall_evenly() {
        let tied = cluster(&[(1, 1.0), (9, 1.0), (2, 2.0), (1, 1.0)]);
        let (mut wins, mut rng) = ([0u32; 4], Rng::new(1));
        for _ in 0..3_000 {
            wins[LoadView::default().least(tied.up(), &tied, &mut rng).unwrap().get()] += 1;
        }
        assert_eq!(wins[1], 0);
        assert!([0, 2, 3].iter().all(|&i| (900..1_100).contains(&wins[i])), "{wins:?}");
    }

    #[test]
    fn chance_follows_shares() {
        let nodes = [NodeIndex(0), NodeIndex(1), NodeIndex(2)];
        let (mut wins, mut rng) = ([0u32; 3], Rng::new(1));
        for _ in 0..6_000 {
            let share = |node: NodeIndex| f64::from(node.0 + 1);
            wins[by_share(&nodes, share, &mut rng).unwrap().get()] += 1;
        }
        let near = |n: u32, expected: u32| n.abs_diff(expected) < 150;
        assert!(near(wins[0], 1_000) && near(wins[1], 2_000) && near(wins[2], 3_000), "{wins:?}");
    }
}
