//! State that belongs to a node, not to an index of the list: it follows the node's name when nodes
//! join and leave.

use std::collections::HashMap;

use crate::{Cluster, NodeIndex};

/// The node at each index, to detect a change of membership.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    membership: Option<u64>,
    hashes: Vec<u64>,
}

impl Roster {
    /// `None` if the membership did not change. Otherwise the new index of the node at each old
    /// index; `None` for a node that left.
    #[inline]
    pub(crate) fn follow(&mut self, cluster: &Cluster) -> Option<Vec<Option<NodeIndex>>> {
        if self.knows(cluster) { None } else { Some(self.change(cluster)) }
    }

    /// Whether indices still have the same nodes in `cluster`.
    pub(crate) fn knows(&self, cluster: &Cluster) -> bool {
        self.membership == Some(cluster.membership())
    }

    #[cold]
    fn change(&mut self, cluster: &Cluster) -> Vec<Option<NodeIndex>> {
        self.membership = Some(cluster.membership());
        let hashes: Vec<u64> = cluster.nodes().iter().map(|node| node.hash).collect();
        let now: HashMap<u64, NodeIndex> =
            hashes.iter().zip(0..).map(|(&hash, index)| (hash, NodeIndex(index))).collect();
        let before = std::mem::replace(&mut self.hashes, hashes);
        before.iter().map(|hash| now.get(hash).copied()).collect()
    }
}

/// A value per node, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerNode<T> {
    roster: Roster,
    values: Vec<T>,
}

impl<T: Clone + Default> PerNode<T> {
    /// Aligns the values with the indices of `cluster`; new nodes get the default. Returns whether
    /// the membership changed.
    #[inline]
    pub(crate) fn follow(&mut self, cluster: &Cluster) -> bool {
        let Some(moves) = self.roster.follow(cluster) else { return false };
        let before = std::mem::replace(&mut self.values, vec![T::default(); cluster.len()]);
        for (value, to) in before.into_iter().zip(moves) {
            if let Some(to) = to {
                self.values[to.get()] = value;
            }
        }
        true
    }

    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }

    pub(crate) fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// The value of `node`; `None` if the node is not known yet.
    pub(crate) fn of_mut(&mut self, node: NodeIndex) -> Option<&mut T> {
        self.values.get_mut(node.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, nodes};

    #[test]
    fn values_follow_their_nodes() {
        let mut values = PerNode::<u32>::default();
        let three = nodes(3);
        assert!(values.follow(&cluster(three.clone())));
        values.values_mut().copy_from_slice(&[10, 11, 12]);
        assert!(!values.follow(&cluster(three.clone())));
        let joined = [three[2].clone(), crate::Node::new("new"), three[0].clone()];
        assert!(values.follow(&cluster(joined.to_vec())));
        assert_eq!(values.values(), [12, 0, 10]);
    }
}
