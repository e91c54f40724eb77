//! Fixed replication (OSDI'02 Sec. 3.2, 3.3): every object has a set of k servers, and each request goes
//! to one of the set.
//!
//! The six strategies differ in two parameters: the set (the servers closest to evenly spaced
//! points of the circle, or the first of the HRW order) and the choice within the set (by chance,
//! by load, by distance):
//!
//! ```text
//!            chance     least loaded   nearness     least effective load
//! circle     r-chash    lr-chash       npr-chash    nplr-chash
//! HRW        r-hrw      lr-hrw
//! ```

use std::any::Any;

use levada_types::{Request, Rng};

use crate::{
    Candidates, Cluster, Deployment, Kind, NodeIndex, Parameter, Parameters, Pick, PickContext,
    PickReason, Policy, PolicyEntry, Setting,
    choose::{by_share, one_of},
    order::{Method, ORDER_CACHE, Order, POINTS},
    view::LoadView,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "r-chash",
        paper: "OSDI'02 Sec. 3.2.1",
        summary: "a random one of the servers closest to evenly spaced points of the circle",
        build: |p, s| Replicas::boxed(Method::Spread, Choice::Chance, p, s),
        ..ON_THE_CIRCLE
    },
    PolicyEntry {
        name: "r-hrw",
        paper: "OSDI'02 Sec. 3.2.2",
        summary: "a random one of the first servers of the HRW order",
        build: |p, s| Replicas::boxed(Method::Hrw, Choice::Chance, p, s),
        ..BY_WEIGHT
    },
    PolicyEntry {
        name: "lr-chash",
        paper: "OSDI'02 Sec. 3.3",
        summary: "the least loaded of the servers closest to evenly spaced points of the circle",
        build: |p, s| Replicas::boxed(Method::Spread, Choice::Least(RAW), p, s),
        ..ON_THE_CIRCLE
    },
    PolicyEntry {
        name: "lr-hrw",
        paper: "OSDI'02 Sec. 3.3",
        summary: "the least loaded of the first servers of the HRW order",
        build: |p, s| Replicas::boxed(Method::Hrw, Choice::Least(RAW), p, s),
        ..BY_WEIGHT
    },
    PolicyEntry {
        name: "npr-chash",
        paper: "OSDI'02 Sec. 3.5",
        summary: "as r-chash, where a server's probability is in inverse proportion to its distance",
        build: |p, s| Replicas::boxed(Method::Spread, Choice::Nearness, p, s),
        ..ON_THE_CIRCLE
    },
    PolicyEntry {
        name: "nplr-chash",
        paper: "OSDI'02 Sec. 3.5",
        summary: "as lr-chash, with load multiplied by distance",
        build: |p, s| Replicas::boxed(Method::Spread, Choice::Least(EFFECTIVE), p, s),
        ..ON_THE_CIRCLE
    },
];

const ON_THE_CIRCLE: PolicyEntry = PolicyEntry {
    name: "",
    paper: "",
    summary: "",
    keyed: true,
    needs: &[],
    parameters: &[REPLICAS, POINTS, ORDER_CACHE],
    build: |p, s| Replicas::boxed(Method::Spread, Choice::Chance, p, s),
};

const BY_WEIGHT: PolicyEntry =
    PolicyEntry { parameters: &[REPLICAS, ORDER_CACHE], ..ON_THE_CIRCLE };

pub(crate) const REPLICAS: Parameter = Parameter {
    name: "replicas",
    kind: Kind::Integer(1, 4096),
    default: Setting::Integer(10),
    unit: "nodes",
    help: "Servers per object, limited by the number of servers; 10 was the optimum for 64 servers (OSDI'02 Sec. 5.1.1).",
};

const RAW: LoadView = LoadView { effective: false, global: false };
const EFFECTIVE: LoadView = LoadView { effective: true, global: false };

/// How one server of the set is chosen.
#[derive(Clone, Copy)]
enum Choice {
    Chance,
    Nearness,
    Least(LoadView),
}

impl Choice {
    fn of(self, set: &[NodeIndex], cluster: &Cluster, rng: &mut Rng) -> Option<NodeIndex> {
        match self {
            Self::Chance => one_of(set, rng),
            Self::Nearness => by_share(set, |node| cluster.node(node).distance.recip(), rng),
            Self::Least(view) => view.least(set, cluster, rng),
        }
    }
}

#[derive(Clone)]
struct Replicas {
    order: Order,
    replicas: usize,
    choice: Choice,
}

impl Replicas {
    fn boxed(
        method: Method,
        choice: Choice,
        parameters: &Parameters,
        deployment: &Deployment,
    ) -> Box<dyn Policy> {
        let replicas = parameters.integer(REPLICAS.name).unwrap_or(1) as usize;
        let order = Order::new(method, replicas, parameters, deployment);
        Box::new(Self { order, replicas, choice })
    }
}

impl Policy for Replicas {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        let set = self.order.first(request.key, cluster, self.replicas);
        let node = self.choice.of(set, cluster, context.rng)?;
        let reason = if set.len() == 1 { PickReason::Hash } else { PickReason::Replica };
        Some(Pick { node, reason, set_size: set.len() as u32 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        self.order.candidates(request.key, cluster, self.replicas)
    }

    fn join(&mut self, first: &dyn Any) {
        if let Some(first) = first.downcast_ref::<Self>() {
            self.order.join(&first.order);
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_types::{Key, Request};

    use super::*;
    use crate::testing::{World, cluster, nodes, set_loads};
    use crate::{Node, ParameterValue};

    fn world(name: &str, replicas: i64) -> World {
        World::new(name, &[("replicas", ParameterValue::Integer(replicas))])
    }

    /// How often each node is picked for one object.
    fn picks(world: &mut World, key: u64, cluster: &Cluster, count: usize) -> Vec<u32> {
        let mut picks = vec![0; cluster.len()];
        (0..count).for_each(|_| picks[world.node(key, cluster) as usize] += 1);
        picks
    }

    #[test]
    fn chance_uses_the_whole_set_evenly() {
        let cluster = cluster(nodes(8));
        for name in ["r-hrw", "r-chash"] {
            let mut world = world(name, 4);
            let candidates = world.policy.candidates(&Request::new(Key(3)), &cluster);
            let picks = picks(&mut world, 3, &cluster, 4_000);
            let each = 4_000 / candidates.set_size as u32;
            for (rank, node) in candidates.order.iter().enumerate() {
                let expected = if rank < candidates.set_size { each } else { 0 };
                assert!(picks[node.get()].abs_diff(expected) < 150, "{name}: {picks:?}");
            }
        }
    }

    #[test]
    fn the_least_loaded_of_the_set_is_taken_not_of_all() {
        let cluster = cluster(nodes(8));
        for name in ["lr-hrw", "lr-chash", "nplr-chash"] {
            let mut world = world(name, 3);
            let request = Request::new(Key(5));
            let Candidates { order, set_size } = world.policy.candidates(&request, &cluster);
            set_loads(&cluster, &[0; 8]);
            for node in &order[..set_size - 1] {
                cluster.loads().set(*node, 9);
            }
            cluster.loads().set(order[set_size - 1], 8);
            let pick = world.pick(&request, &cluster).unwrap();
            assert_eq!(pick.node, order[set_size - 1]);
            assert_eq!((pick.reason, pick.set_size as usize), (PickReason::Replica, set_size));
        }
    }

    #[test]
    fn sets_are_no_larger_than_the_cluster() {
        let cluster = cluster(nodes(3));
        for entry in ENTRIES {
            let mut world = world(entry.name, 10);
            let set = world.policy.candidates(&Request::new(Key(5)), &cluster).set_size;
            // Three points of the circle may share a closest server.
            assert!(if entry.name.ends_with("hrw") { set == 3 } else { (1..=3).contains(&set) });
            let used = picks(&mut world, 5, &cluster, 300).iter().filter(|n| **n > 0).count();
            assert_eq!(used, set, "{}", entry.name);
        }
    }

    #[test]
    fn one_replica_is_partitioning() {
        let cluster = cluster(nodes(8));
        for entry in ENTRIES {
            let pick = world(entry.name, 1).pick(&Request::new(Key(5)), &cluster).unwrap();
            assert_eq!((pick.reason, pick.set_size), (PickReason::Hash, 1));
        }
    }

    #[test]
    fn near_servers_have_the_better_chance() {
        let far = |(i, node)| Node { distance: [1.0, 2.0, 4.0][i], ..node };
        let cluster = cluster(nodes(3).into_iter().enumerate().map(far).collect());
        let mut world = world("npr-chash", 3);
        let set = |key: &u64| world.policy.candidates(&Request::new(Key(*key)), &cluster).set_size;
        let key = (0..).find(|key| set(key) == 3).unwrap();
        let picks = picks(&mut world, key, &cluster, 7_000);
        for (node, expected) in [4_000, 2_000, 1_000].into_iter().enumerate() {
            assert!(picks[node].abs_diff(expected) < 200, "{picks:?}");
        }
    }

    #[test]
    fn an_idle_near_server_beats_an_idle_far_one() {
        let far = |(i, node)| Node { distance: [1.0, 2.0, 4.0][i], ..node };
        let cluster = cluster(nodes(3).into_iter().enumerate().map(far).collect());
        let mut world = world("nplr-chash", 3);
        let set = |key: &u64| world.policy.candidates(&Request::new(Key(*key)), &cluster).set_size;
        let key = (0..).find(|key| set(key) == 3).unwrap();
        // (outstanding + 1) x distance: 1 2 4, then 3 2 4, then 6 6 4, then 4 6 8.
        for (loads, expected) in [([0, 0, 0], 0), ([2, 0, 0], 1), ([5, 2, 0], 2), ([3, 2, 1], 0)] {
            set_loads(&cluster, &loads);
            assert_eq!(world.node(key, &cluster), expected, "{loads:?}");
        }
    }
}
