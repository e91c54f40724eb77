//! Least connections: the node with the fewest outstanding requests relative to its weight.
//!
//! As in nginx (`least_conn`) and HAProxy (`leastconn`). Ties are broken by chance, so that several
//! redirectors that see an idle cluster do not all begin with the same node.

use levada_types::Request;

use crate::relative_load::{Ties, ascending, least_of_all};
use crate::{
    Candidates, Cluster, Deployment, Parameters, Pick, PickContext, PickReason, Policy, PolicyEntry,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "least_conn",
    paper: "nginx, HAProxy",
    summary: "the node with the fewest outstanding requests relative to its weight",
    keyed: false,
    needs: &[],
    parameters: &[],
    build: |_: &Parameters, _: &Deployment| Box::new(LeastConn),
}];

#[derive(Clone)]
struct LeastConn;

impl Policy for LeastConn {
    fn pick(
        &mut self,
        _request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let node = least_of_all(cluster, Ties::Chance(context.rng))?;
        Some(Pick { node, reason: PickReason::Least, set_size: cluster.up().len() as u32 })
    }

    fn candidates(&self, _request: &Request, cluster: &Cluster) -> Candidates {
        let order = ascending(cluster);
        Candidates { set_size: order.len(), order }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{World, cluster, loaded, nodes};
    use crate::{NodeIndex, PickReason};
    use levada_types::{Key, Request};

    #[test]
    fn the_least_busy_node_is_taken() {
        let (mut world, three) = (World::new("least_conn", &[]), loaded(&[4, 2, 3]));
        assert_eq!(world.node(0, &three), 1);
        let rest = three.without(&[NodeIndex(1)]);
        let pick = world.pick(&Request::new(Key(0)), &rest).unwrap();
        assert_eq!((pick.node, pick.reason, pick.set_size), (NodeIndex(2), PickReason::Least, 2));
    }

    #[test]
    fn outstanding_requests_settle_in_proportion_to_weight() {
        let mut three = nodes(3);
        three[2].weight = 2.0;
        let (mut world, three) = (World::new("least_conn", &[]), cluster(three));
        let held: Vec<_> =
            (0..400).map(|key| three.loads().begin(NodeIndex(world.node(key, &three)))).collect();
        let loads = [0, 1, 2].map(|i| three.load(NodeIndex(i)));
        assert_eq!(loads, [100, 100, 200]);
        drop(held);
    }
}
