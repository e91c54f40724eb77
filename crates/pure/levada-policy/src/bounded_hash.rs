//! Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, SODA'18), as in
//! HAProxy and Envoy: the first node of the hash order whose load is at most its share of all
//! outstanding requests, times a factor.
//!
//! This is CDR with a threshold that follows the mean load: the bound holds at any load, while CDR
//! spreads an object only when nodes are close to overload.

use std::any::Any;

use levada_types::Request;

use crate::{
    Candidates, Cluster, Kind, LoadBound, NodeIndex, Parameter, Pick, PickContext, PickReason,
    Policy, PolicyEntry, Setting,
    order::{Method, ORDER, ORDER_CACHE, Order, POINTS},
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "bounded_hash",
    paper: "Mirrokni et al., SODA'18",
    summary: "the first server of the hash order that is below a bound relative to the mean load",
    keyed: true,
    needs: &[],
    parameters: &[HASH_BALANCE_FACTOR, ORDER, POINTS, ORDER_CACHE],
    build: |parameters, deployment| {
        let percent = parameters.integer(HASH_BALANCE_FACTOR.name).unwrap_or_default();
        let order = Order::new(Method::named(parameters), 1, parameters, deployment);
        Box::new(Bounded { order, percent })
    },
}];

const HASH_BALANCE_FACTOR: Parameter = Parameter {
    name: "hash_balance_factor",
    kind: Kind::Integer(101, 10_000),
    default: Setting::Integer(125),
    unit: "percent",
    help: "The most outstanding requests of a server, in percent of the mean of all; lower is more even, higher moves fewer objects to other servers.",
};

#[derive(Clone)]
struct Bounded {
    order: Order,
    percent: u64,
}

impl Policy for Bounded {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        _context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let bound = Bound::new(cluster, self.percent);
        let mut steps = 0;
        let mut walk = self.order.walk(request.key, cluster).inspect(|_| steps += 1);
        let first = walk.next()?;
        // Some node is always below the bound. But that node may be in slow start and not accept
        // this object, and loads change while they are read. In these cases the first node serves
        // the request.
        let node = if bound.admits(first, cluster) {
            first
        } else {
            walk.find(|node| bound.admits(*node, cluster)).unwrap_or(first)
        };
        let reason = if node == first { PickReason::Hash } else { PickReason::Spill };
        Some(Pick { node, reason, set_size: steps })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let mut candidates = self.order.candidates(request.key, cluster, usize::MAX);
        let bound = Bound::new(cluster, self.percent);
        let taking = &candidates.order[..candidates.set_size];
        if let Some(last) = taking.iter().position(|node| bound.admits(*node, cluster)) {
            candidates.set_size = last + 1;
        }
        candidates
    }

    fn bound(&self, _request: &Request, cluster: &Cluster) -> Option<LoadBound> {
        let requests = match Bound::new(cluster, self.percent) {
            Bound::Even(most) => most.into(),
            Bound::PerWeight(most) => most,
        };
        Some(LoadBound { requests, share: None })
    }

    fn join(&mut self, first: &dyn Any) {
        if let Some(first) = first.downcast_ref::<Self>() {
            self.order.join(&first.order);
        }
    }
}

/// The most requests that a node may have, including the new one: `ceil(factor * (outstanding + 1)
/// * share)`; the share is the node's part of all weights.
enum Bound {
    Even(u32),
    PerWeight(f64),
}

impl Bound {
    fn new(cluster: &Cluster, percent: u64) -> Self {
        let up = cluster.up();
        let allowed = percent.saturating_mul(cluster.outstanding_up() + 1);
        if cluster.even() {
            let each = allowed.div_ceil(100 * up.len().max(1) as u64);
            return Self::Even(u32::try_from(each).unwrap_or(u32::MAX));
        }
        Self::PerWeight(allowed as f64 / 100.0 / cluster.weight_up())
    }

    fn admits(&self, node: NodeIndex, cluster: &Cluster) -> bool {
        let load = cluster.load(node);
        match self {
            Self::Even(most) => load < *most,
            Self::PerWeight(most) => f64::from(load) < (most * cluster.node(node).weight).ceil(),
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_types::{Key, Request};

    use super::*;
    use crate::ParameterValue;
    use crate::testing::{World, cluster, loaded, nodes, set_loads};

    #[test]
    fn a_node_at_the_bound_passes_requests_on() {
        // 4 nodes, 15 outstanding: ceil(1.25 * 16 / 4) = 5 each.
        let cluster = loaded(&[0, 0, 0, 0]);
        for order in ["ring", "hrw"] {
            let mut world =
                World::new("bounded_hash", &[("order", ParameterValue::Text(order.into()))]);
            let request = Request::new(Key(1));
            set_loads(&cluster, &[0; 4]);
            let order = world.policy.candidates(&request, &cluster).order;
            let load = |rank: usize, load| cluster.loads().set(order[rank], load);
            for (loads, expected, reason) in [
                ([4, 4, 4, 3], 0, PickReason::Hash),
                ([5, 4, 3, 3], 1, PickReason::Spill),
                ([5, 5, 4, 1], 2, PickReason::Spill),
                ([6, 7, 2, 0], 2, PickReason::Spill),
            ] {
                (0..4).for_each(|rank| load(rank, loads[rank]));
                let pick = world.pick(&request, &cluster).unwrap();
                assert_eq!((pick.node, pick.reason), (order[expected], reason), "{loads:?}");
                assert_eq!(pick.set_size as usize, expected + 1);
            }
        }
    }

    #[test]
    fn no_node_ever_exceeds_the_bound() {
        let cluster = cluster(nodes(7));
        let mut world = World::new("bounded_hash", &[]);
        for sent in 1..500u32 {
            let node = world.node(u64::from(sent % 3), &cluster);
            let load = cluster.load(NodeIndex(node)) + 1;
            cluster.loads().set(NodeIndex(node), load);
            assert!(load <= (125 * sent).div_ceil(700), "{load} of {sent}");
        }
    }
}
