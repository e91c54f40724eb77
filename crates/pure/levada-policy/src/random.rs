//! Random: the lower bound of every comparison (OSDI'02 Sec. 3.1), and the effect of DNS round
//! robin.

use levada_types::Request;

use crate::{
    Candidates, Cluster, Deployment, Parameters, Pick, PickContext, PickReason, Policy, PolicyEntry,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "random",
    paper: "OSDI'02 Sec. 3.1",
    summary: "a uniformly random node",
    keyed: false,
    needs: &[],
    parameters: &[],
    build: |_: &Parameters, _: &Deployment| Box::new(Random),
}];

#[derive(Clone)]
struct Random;

impl Policy for Random {
    fn pick(
        &mut self,
        _request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let up = cluster.up();
        if up.is_empty() {
            return None;
        }
        let node = up[context.rng.below(up.len())];
        Some(Pick { node, reason: PickReason::Chance, set_size: up.len() as u32 })
    }

    fn candidates(&self, _request: &Request, cluster: &Cluster) -> Candidates {
        Candidates { order: cluster.up().to_vec(), set_size: cluster.up().len() }
    }
}
