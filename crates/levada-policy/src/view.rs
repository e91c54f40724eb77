//! Load as a strategy sees it: raw or effective, this redirector's or everyone's.
//!
//! The proximity strategies of OSDI'02 Sec. 3.3 are the others under an effective view, FDR-Global is
//! FDR under a global one; so the view is a value and not a policy.

use crate::{Cluster, NodeIndex};

/// Which load counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// Outstanding requests times the node's distance (OSDI'02 Sec. 3.3).
    pub(crate) effective: bool,
    /// The requests of all redirectors, where the driver knows them.
    pub(crate) global: bool,
}

impl View {
    /// The load to compare nodes by, relative to weight.
    ///
    /// An effective load counts the request to come as well: times a distance, no load at all would
    /// make an idle far node look like an idle near one.
    #[inline]
    pub(crate) fn load(self, node: NodeIndex, cluster: &Cluster) -> f64 {
        let outstanding = self.outstanding(node, cluster);
        if cluster.even() && !self.effective {
            return outstanding;
        }
        let n = cluster.node(node);
        let load = if self.effective { (outstanding + 1.0) * n.distance } else { outstanding };
        load / n.weight
    }

    /// Whether `node` has `threshold` requests outstanding per weight of 1. Effective load is
    /// outstanding times distance here, so that at equal distances both views call the same nodes busy.
    #[inline]
    pub(crate) fn busy(self, node: NodeIndex, cluster: &Cluster, threshold: f64) -> bool {
        let outstanding = self.outstanding(node, cluster);
        let n = cluster.node(node);
        let load = if self.effective { outstanding * n.distance } else { outstanding };
        load >= threshold * n.weight
    }

    fn outstanding(self, node: NodeIndex, cluster: &Cluster) -> f64 {
        match cluster.global_loads() {
            Some(everyone) if self.global => f64::from(everyone.of(node)),
            _ => f64::from(cluster.load(node)),
        }
    }
}
