//! The bound on a node's outstanding requests, relative to the mean load.
//!
//! Loads are held against each node's part of the mean: mean load times weight, and weight counts
//! after slow start. So only the proportions of weights matter, and a node of weight near zero takes
//! no more than one request at a time.

use crate::{Cluster, NodeIndex};

/// The rule for one object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Whether the object is hot.
    pub(crate) hot: bool,
}

/// Outstanding requests per unit of weight, the new request included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mean(pub(super) f64);

impl Bound {
    /// The mean that the nodes of `set` are held against: for a hot object that of the nodes outside
    /// the set, if there are any, else that of all nodes.
    #[inline]
    pub(super) fn mean(self, set: &[NodeIndex], cluster: &Cluster) -> Mean {
        let requests = cluster.outstanding_up() as f64 + 1.0;
        if !self.hot || set.len() >= cluster.up().len() {
            return Mean(requests / cluster.capacity_up());
        }
        let inside: u64 = set.iter().map(|node| u64::from(cluster.load(*node))).sum();
        let capacity: f64 = match cluster.uniform() {
            true => set.len() as f64,
            false => set.iter().map(|node| cluster.capacity(*node)).sum(),
        };
        // Loads change while they are read, and sums of weights are rounded.
        let (requests, capacity) = (requests - inside as f64, cluster.capacity_up() - capacity);
        Mean(requests.max(1.0) / capacity.max(f64::MIN_POSITIVE))
    }

    /// The outstanding requests from which a node takes no more requests for the object; `mean` is
    /// the node's part of the mean load.
    #[inline]
    pub(crate) fn of(self, mean: f64) -> f64 {
        let (means, roots) = if self.hot { HOT } else { OTHER };
        means * mean + roots * mean.sqrt() + 1.0
    }

    #[inline]
    pub(super) fn is_reached(self, node: NodeIndex, mean: Mean, cluster: &Cluster) -> bool {
        f64::from(cluster.load(node)) >= self.of(mean.part(node, cluster))
    }
}

impl Mean {
    /// Whether the load of `node` is below this mean.
    #[inline]
    pub(super) fn exceeds(self, node: NodeIndex, cluster: &Cluster) -> bool {
        f64::from(cluster.load(node)) < self.part(node, cluster)
    }

    #[inline]
    fn part(self, node: NodeIndex, cluster: &Cluster) -> f64 {
        if cluster.uniform() { self.0 } else { self.0 * cluster.capacity(node) }
    }
}

/// The factors of the mean load and of its root, for hot objects and for all others.
const HOT: (f64, f64) = (1.1, 1.0);
const OTHER: (f64, f64) = (1.5, 2.0);
