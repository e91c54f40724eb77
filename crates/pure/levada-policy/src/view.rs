//! Load views: raw or effective, of this redirector or of all.
//!
//! The proximity strategies of OSDI'02 Sec. 3.5 are the other strategies with the effective view,
//! FDR-Global is FDR with the global view. So the view is a value and not a policy.

use levada_types::Rng;

use crate::{Cluster, LoadTable, NodeIndex, adaptive::Bound, choose::least_by};

/// The load that a strategy uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadView {
    /// Outstanding requests times the node's distance (OSDI'02 Sec. 3.5).
    pub(crate) effective: bool,
    /// The requests of all redirectors, if the driver knows them.
    pub(crate) global: bool,
}

impl LoadView {
    /// The least loaded of `nodes` relative to weight, ties broken by chance.
    ///
    /// An effective load includes the new request. Without it an idle far node and an idle near
    /// node would both have load zero.
    #[inline]
    pub(crate) fn least(
        self,
        nodes: &[NodeIndex],
        cluster: &Cluster,
        rng: &mut Rng,
    ) -> Option<NodeIndex> {
        let loads = self.loads(cluster);
        if cluster.even() && !self.effective {
            return least_by(nodes, |node| loads.of(node), rng);
        }
        let load = |node| {
            let (n, outstanding) = (cluster.node(node), f64::from(loads.of(node)));
            let load = if self.effective { (outstanding + 1.0) * n.distance } else { outstanding };
            if cluster.even() { load } else { load / n.weight }
        };
        least_by(nodes, load, rng)
    }

    /// Whether `node` has at least `threshold` outstanding requests per unit of weight. Effective
    /// load here is outstanding requests times distance, without the new request, so that at equal
    /// distances both views consider the same nodes busy.
    #[inline]
    pub(crate) fn busy(self, node: NodeIndex, cluster: &Cluster, threshold: f64) -> bool {
        let outstanding = f64::from(self.loads(cluster).of(node));
        let n = cluster.node(node);
        let load = if self.effective { outstanding * n.distance } else { outstanding };
        load >= threshold * n.weight
    }

    /// The mean load of all nodes that are up, the new request included.
    pub(crate) fn mean(self, cluster: &Cluster) -> f64 {
        let up = cluster.up().iter();
        let outstanding: u64 = match cluster.global_loads() {
            Some(everyone) if self.global => up.map(|node| u64::from(everyone.of(*node))).sum(),
            _ => cluster.outstanding_up(),
        };
        (outstanding as f64 + 1.0) / cluster.capacity_up()
    }

    /// Whether `node` has reached the bound of objects that are not hot under `adaptive`: 1.5 times
    /// its part of the `mean`, plus twice the root of that part, plus 1.
    pub(crate) fn is_far_above(self, node: NodeIndex, cluster: &Cluster, mean: f64) -> bool {
        let part = mean * cluster.capacity(node);
        let outstanding = f64::from(self.loads(cluster).of(node));
        let load =
            if self.effective { outstanding * cluster.node(node).distance } else { outstanding };
        load >= Bound { hot: false }.of(part)
    }

    #[inline]
    fn loads(self, cluster: &Cluster) -> &LoadTable {
        match cluster.global_loads() {
            Some(everyone) if self.global => everyone,
            _ => cluster.loads(),
        }
    }
}
