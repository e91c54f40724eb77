//! The pool of nodes that were drawn lately. A node leaves it after a number of requests. Each request also
//! removes one, the oldest and the worst in turn (NSDI'24 Sec. 4): else bad nodes, which are never taken, would
//! fill it.

use crate::NodeIndex;

/// Nodes in the pool at most (NSDI'24: 16).
pub(super) const MOST: usize = 16;
/// With fewer the choice is made without the pool.
const LEAST: usize = 2;

#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// The oldest first; each node once.
    drawn: Vec<Drawn>,
    reuse: u32,
    /// Whether the worst is removed next.
    worst_is_next: bool,
}

#[derive(Clone, Copy, Debug)]
struct Drawn {
    node: NodeIndex,
    uses: u32,
}

/// The facts about a node on which the choice depends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Facts {
    pub(super) is_hot: bool,
    pub(super) rif: f64,
    /// In seconds.
    pub(super) latency: f64,
}

impl Facts {
    /// Lower is better: cold before hot, then latency among cold and RIF among hot nodes.
    fn rank(self) -> (bool, f64, f64) {
        match self.is_hot {
            true => (true, self.rif, self.latency),
            false => (false, self.latency, self.rif),
        }
    }
}

impl Pool {
    pub(super) fn new(reuse: u32) -> Self {
        Self { reuse, ..Self::default() }
    }

    pub(super) fn clear(&mut self) {
        self.drawn.clear();
    }

    pub(super) fn retain(&mut self, keep: impl Fn(NodeIndex) -> bool) {
        self.drawn.retain(|drawn| keep(drawn.node));
    }

    /// Adds `node` as the newest.
    pub(super) fn add(&mut self, node: NodeIndex) {
        self.drawn.retain(|drawn| drawn.node != node);
        if self.drawn.len() == MOST {
            self.drawn.remove(0);
        }
        self.drawn.push(Drawn { node, uses: 0 });
    }

    /// The node with the best `facts`; `None` if there are too few to choose from. Then the pool has one node less, and
    /// without the chosen one if it has been used up.
    pub(super) fn choose(&mut self, facts: impl Fn(NodeIndex) -> Facts) -> Option<NodeIndex> {
        if self.drawn.len() < LEAST {
            return None;
        }
        let rank = |drawn: &Drawn| facts(drawn.node).rank();
        let first = (0, rank(&self.drawn[0]));
        let (mut best, mut worst) = (first, first);
        for (place, rank) in self.drawn.iter().map(rank).enumerate().skip(1) {
            if rank < best.1 {
                best = (place, rank);
            }
            if rank > worst.1 {
                worst = (place, rank);
            }
        }
        let (chosen, removed) = (best.0, if self.worst_is_next { worst.0 } else { 0 });
        self.worst_is_next = !self.worst_is_next;
        let Drawn { node, uses } = &mut self.drawn[chosen];
        let node = *node;
        *uses += 1;
        let is_used_up = *uses >= self.reuse;
        self.drawn.remove(removed);
        if is_used_up {
            self.drawn.retain(|drawn| drawn.node != node);
        }
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes by number: RIF is the number, 3 and above are hot, and lower numbers are slower.
    fn facts(node: NodeIndex) -> Facts {
        let number = f64::from(node.0);
        Facts { is_hot: node.0 >= 3, rif: number, latency: 10.0 - number }
    }

    fn pool(nodes: &[u32], reuse: u32) -> Pool {
        let mut pool = Pool::new(reuse);
        nodes.iter().for_each(|node| pool.add(NodeIndex(*node)));
        pool
    }

    fn nodes(pool: &Pool) -> Vec<u32> {
        pool.drawn.iter().map(|drawn| drawn.node.0).collect()
    }

    #[test]
    fn cold_nodes_go_by_latency_and_hot_ones_by_requests_in_flight() {
        let chosen = |nodes: &[u32]| pool(nodes, 9).choose(facts).map(|node| node.0);
        assert_eq!(chosen(&[5, 1, 2, 0, 4]), Some(2));
        assert_eq!(chosen(&[5, 3, 4]), Some(3));
        assert_eq!(chosen(&[5]), None, "one is no choice");
    }

    #[test]
    fn the_oldest_and_the_worst_are_removed_in_turn() {
        let mut pool = pool(&[0, 4, 5, 1, 2], 9);
        pool.choose(facts);
        assert_eq!(nodes(&pool), [4, 5, 1, 2], "the oldest");
        pool.choose(facts);
        assert_eq!(nodes(&pool), [4, 1, 2], "the hot one with the most requests in flight");
    }

    #[test]
    fn a_node_is_used_a_limited_number_of_times() {
        let mut pool = pool(&[0, 4, 5, 1, 2], 2);
        assert_eq!([(), ()].map(|()| pool.choose(facts)), [Some(NodeIndex(2)); 2]);
        assert_eq!(nodes(&pool), [4, 1]);
    }

    #[test]
    fn a_full_pool_loses_its_oldest() {
        let all: Vec<u32> = (0..20).collect();
        assert_eq!(nodes(&pool(&all, 1)), all[4..]);
        assert_eq!(nodes(&pool(&[1, 2, 1], 1)), [2, 1]);
    }
}
