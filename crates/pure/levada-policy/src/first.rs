//! The first node of a hash order, at any load: consistent hashing and highest random weight as in
//! today's proxies.

use std::any::Any;

use levada_types::Request;

use crate::{
    Candidates, Cluster, Pick, PickContext, PickReason, Policy, PolicyEntry,
    order::{Method, ORDER_CACHE, Order, POINTS},
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "ring_hash",
        paper: "Karger et al., STOC'97; ketama",
        summary: "the next server clockwise on the circle of consistent hashing",
        keyed: true,
        needs: &[],
        parameters: &[POINTS, ORDER_CACHE],
        build: |parameters, deployment| {
            Box::new(First(Order::new(Method::Ring, 1, parameters, deployment)))
        },
    },
    PolicyEntry {
        name: "hrw",
        paper: "Thaler and Ravishankar, ToN'98",
        summary: "the server with the highest random weight for the object",
        keyed: true,
        needs: &[],
        parameters: &[ORDER_CACHE],
        build: |parameters, deployment| {
            Box::new(First(Order::new(Method::Hrw, 1, parameters, deployment)))
        },
    },
];

#[derive(Clone)]
struct First(Order);

impl Policy for First {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        _context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let node = self.0.walk(request.key, cluster).next()?;
        Some(Pick { node, reason: PickReason::Hash, set_size: 1 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        self.0.candidates(request.key, cluster, 1)
    }

    fn join(&mut self, first: &dyn Any) {
        if let Some(first) = first.downcast_ref::<Self>() {
            self.0.join(&first.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{World, cluster, nodes};
    use crate::{Node, NodeIndex};

    #[test]
    fn objects_of_a_down_node_move_and_return() {
        for name in ["ring_hash", "hrw"] {
            let (all, mut world) = (cluster(nodes(4)), World::new(name, &[]));
            let rest = all.without(&[NodeIndex(2)]);
            for key in 0..500 {
                let home = world.node(key, &all);
                let refuge = world.node(key, &rest);
                assert_ne!(refuge, 2);
                assert!(home == 2 || home == refuge, "{name}: only node 2's objects move");
                assert_eq!(world.node(key, &all), home);
            }
        }
    }

    #[test]
    fn load_does_not_matter() {
        let cluster = cluster(nodes(4));
        let mut world = World::new("hrw", &[]);
        let home = world.node(7, &cluster);
        cluster.loads().set(NodeIndex(home), u32::MAX);
        assert_eq!(world.node(7, &cluster), home);
    }

    #[test]
    fn heavy_nodes_hold_their_share() {
        let mut weighted = nodes(3);
        weighted[2] = Node { weight: 2.0, ..weighted[2].clone() };
        let cluster = cluster(weighted);
        let picks = World::new("hrw", &[]).spread(8_000, &cluster);
        assert!(picks[2].abs_diff(4_000) < 200 && picks[0].abs_diff(2_000) < 200, "{picks:?}");
    }
}
