//! Round robin: each node in turn (the RR of CAP's comparison, WWW10 Sec. 3).

use levada_types::Request;

use crate::rotation::Rotation;
use crate::{
    Candidates, Cluster, Deployment, Parameters, Pick, PickContext, PickReason, Policy, PolicyEntry,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "round_robin",
    paper: "common in proxies; RR in WWW10 Sec. 3",
    summary: "each node in turn",
    keyed: false,
    needs: &[],
    parameters: &[],
    build: |_: &Parameters, _: &Deployment| Box::new(RoundRobin::default()),
}];

#[derive(Clone, Default)]
struct RoundRobin {
    rotation: Rotation,
}

impl Policy for RoundRobin {
    #[inline]
    fn pick(
        &mut self,
        _request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let node = self.rotation.turn(cluster.up(), cluster, context.rng)?;
        Some(Pick { node, reason: PickReason::Class, set_size: cluster.up().len() as u32 })
    }

    fn candidates(&self, _request: &Request, cluster: &Cluster) -> Candidates {
        self.rotation.order(cluster.up())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{World, cluster, nodes};

    #[test]
    fn nodes_take_turns() {
        let mut world = World::new("round_robin", &[]);
        let three = cluster(nodes(3));
        assert_eq!(
            (0..7).map(|key| world.node(key, &three)).collect::<Vec<_>>(),
            [0, 1, 2, 0, 1, 2, 0]
        );
    }
}
