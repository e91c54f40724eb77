//! Choosing one of several nodes: the one with the least load, ties broken by chance, or by chance alone.
//!
//! OSDI'02 does not say how ties are broken. By position would send every burst that meets an idle
//! cluster to the same node, so chance decides, without a pass over the nodes or memory of its own.

use levada_types::{Key, Rng};

use crate::{Cluster, NodeIndex};

/// The one of `nodes` with the smallest `score`, ties broken by chance; `None` when there are none.
///
/// Each of n tied nodes is taken with probability 1/n: the k-th replaces its forerunner with 1/k.
/// A lone minimum draws no random number.
#[inline]
pub(crate) fn least_by<S: PartialOrd>(
    nodes: impl IntoIterator<Item = NodeIndex>,
    score: impl Fn(NodeIndex) -> S,
    rng: &mut Rng,
) -> Option<NodeIndex> {
    let mut nodes = nodes.into_iter();
    let mut best = nodes.next()?;
    let (mut lowest, mut ties) = (score(best), 1);
    for node in nodes {
        let s = score(node);
        if s < lowest {
            (best, lowest, ties) = (node, s, 1);
        } else if s == lowest {
            ties += 1;
            if rng.below(ties) == 0 {
                best = node;
            }
        }
    }
    Some(best)
}

/// One of `nodes` by chance, each in proportion to its `share`; `None` when there are none.
///
/// The k-th replaces its forerunner with its part of all shares up to its own.
#[inline]
pub(crate) fn by_share(
    nodes: impl IntoIterator<Item = NodeIndex>,
    share: impl Fn(NodeIndex) -> f64,
    rng: &mut Rng,
) -> Option<NodeIndex> {
    let mut nodes = nodes.into_iter();
    let mut taken = nodes.next()?;
    let mut total = share(taken);
    for node in nodes {
        let s = share(node);
        total += s;
        if rng.unit() * total < s {
            taken = node;
        }
    }
    Some(taken)
}

/// Any node that takes `key`, by chance; any that is up when none takes it.
pub(crate) fn any(key: Key, cluster: &Cluster, rng: &mut Rng) -> Option<NodeIndex> {
    let up = cluster.up();
    if up.is_empty() {
        return None;
    }
    let taking = up.iter().copied().filter(|node| cluster.accepts(*node, key));
    let taking = if cluster.ramping() { by_share(taking, |_| 1.0, rng) } else { None };
    taking.or_else(|| Some(up[rng.below(up.len())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadTable, Node, view::View};

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
            least_by(cluster.up().iter().copied(), |n| View::default().load(n, cluster), rng)
        };
        let even = cluster(&[(3, 1.0), (2, 1.0), (5, 1.0)]);
        assert_eq!(least(&even, rng), Some(NodeIndex(1)));
        let uneven = cluster(&[(3, 1.0), (2, 1.0), (5, 4.0)]);
        assert_eq!(least(&uneven, rng), Some(NodeIndex(2)));
        assert_eq!(least_by([], |_| (), rng), None);
    }

    #[test]
    fn ties_fall_evenly() {
        let tied = cluster(&[(1, 1.0), (9, 1.0), (2, 2.0), (1, 1.0)]);
        let load = |node| View::default().load(node, &tied);
        let (mut wins, mut rng) = ([0u32; 4], Rng::new(1));
        for _ in 0..3_000 {
            wins[least_by(tied.up().iter().copied(), load, &mut rng).unwrap().get()] += 1;
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
            wins[by_share(nodes, share, &mut rng).unwrap().get()] += 1;
        }
        let near = |n: u32, expected: u32| n.abs_diff(expected) < 150;
        assert!(near(wins[0], 1_000) && near(wins[1], 2_000) && near(wins[2], 3_000), "{wins:?}");
    }
}
