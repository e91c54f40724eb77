//! WRR, the balanced strategy that LARD is compared with (ASPLOS'98 Sec. 2.1): the node with the
//! fewest active connections; equally loaded nodes in turn.
//!
//! The paper uses this name because front-ends of its time worked so. `weighted_round_robin` is
//! what proxies and the CAP paper call by that name.

use levada_types::Request;

use crate::relative_load::{Ties, ascending, least_of_all};
use crate::rotation::Rotation;
use crate::{
    Candidates, Cluster, Deployment, Need, Parameters, Pick, PickContext, PickReason, Policy,
    PolicyEntry,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "wrr",
        paper: "ASPLOS'98 Sec. 2.1",
        summary: "the node with the fewest outstanding requests; equally loaded nodes in turn",
        needs: &[],
        ..WRR_GMS
    },
    WRR_GMS,
];

/// It chooses like `wrr`. The cluster differs: with a global memory system a node fetches an object
/// that it does not have from another node's memory. The simulator's servers do this when a policy
/// needs the global cache.
const WRR_GMS: PolicyEntry = PolicyEntry {
    name: "wrr/gms",
    paper: "ASPLOS'98 Sec. 4",
    summary: "as wrr, over servers that fetch from each other's memory before they read a disk",
    keyed: false,
    needs: &[Need::GlobalCache],
    parameters: &[],
    build: |_: &Parameters, _: &Deployment| Box::new(Wrr::default()),
};

#[derive(Clone, Default)]
struct Wrr {
    rotation: Rotation,
}

impl Policy for Wrr {
    fn pick(
        &mut self,
        _request: &Request,
        cluster: &Cluster,
        _context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let node = least_of_all(cluster, Ties::Turn(self.rotation.place()))?;
        self.rotation.pass(node);
        Some(Pick { node, reason: PickReason::Least, set_size: cluster.up().len() as u32 })
    }

    fn candidates(&self, _request: &Request, cluster: &Cluster) -> Candidates {
        let order = ascending(cluster);
        Candidates { set_size: order.len(), order }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{World, loaded, set_loads};
    use crate::{Need, find};

    #[test]
    fn level_nodes_take_turns_and_the_least_loaded_comes_first() {
        let (mut world, three) = (World::new("wrr", &[]), loaded(&[1, 1, 1]));
        assert_eq!([world.node(0, &three), world.node(0, &three)], [0, 1]);
        set_loads(&three, &[1, 0, 1]);
        assert_eq!(world.node(0, &three), 1);
        set_loads(&three, &[1, 1, 1]);
        assert_eq!([world.node(0, &three), world.node(0, &three)], [2, 0]);
    }

    #[test]
    fn only_the_global_memory_system_needs_the_simulator() {
        assert!(find("wrr").unwrap().runs_on_an_edge());
        assert_eq!(find("wrr/gms").unwrap().needs, [Need::GlobalCache]);
    }
}
