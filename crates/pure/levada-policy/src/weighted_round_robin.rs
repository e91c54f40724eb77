//! Weighted round robin: nodes in turn, larger or less busy nodes more often.
//!
//! Every proxy has this policy with static weights. With weights that are computed again every
//! `refresh` it is the dynamic WRR of WWW10 Sec. 3.1 (IBM's Network Dispatcher): WRR_num uses the
//! number of active connections, WRR_time the mean service time. The paper found WRR_num better
//! than WRR_time, and short periods better than long ones (Sec. 4.3).

use std::{any::Any, time::Duration};

use levada_types::{Request, Timestamp};

use crate::per_node::PerNode;
use crate::rotation::{Rotation, takes_turn};
use crate::schedule::Schedule;
use crate::{
    Candidates, Cluster, Deployment, Kind, Need, NodeIndex, Parameter, Parameters, Pick,
    PickContext, PickReason, Policy, PolicyEntry, RequestOutcome, Setting,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "weighted_round_robin",
    paper: "common in proxies; WRR_num, WRR_time in WWW10 Sec. 3.1",
    summary: "in turn, nodes of higher weight more often",
    keyed: false,
    needs: &[Need::Outcomes],
    parameters: &[
        Parameter {
            name: "weights",
            kind: Kind::Choice(&["static", "active_connections", "service_time"]),
            default: Setting::Choice("static"),
            unit: "",
            help: "Where weights come from: the nodes' own, or those divided by the outstanding \
                   requests (WRR_num) or by the mean service time (WRR_time, WWW10 Sec. 3.1).",
        },
        Parameter {
            name: "refresh",
            kind: Kind::Duration(Duration::from_millis(10), Duration::from_secs(3600)),
            default: Setting::Duration(Duration::from_secs(10)),
            unit: "",
            help: "How often the weights that are not static are worked out anew \
                   (WWW10 Sec. 4.3 finds short periods best).",
        },
    ],
    build: |parameters: &Parameters, _: &Deployment| {
        Box::new(WeightedRoundRobin {
            weights: match parameters.choice("weights") {
                "active_connections" => Weights::ActiveConnections,
                "service_time" => Weights::ServiceTime,
                _ => Weights::Static,
            },
            refresh: parameters.duration("refresh"),
            due: Timestamp::ZERO,
            served: PerNode::default(),
            schedule: Schedule::default(),
            rotation: Rotation::default(),
        })
    },
}];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Weights {
    Static,
    ActiveConnections,
    ServiceTime,
}

#[derive(Clone)]
struct WeightedRoundRobin {
    weights: Weights,
    refresh: Duration,
    /// The time at which the weights are computed again.
    due: Timestamp,
    served: PerNode<Served>,
    schedule: Schedule,
    /// Chooses the node when all nodes of the schedule are down.
    rotation: Rotation,
}

/// The requests that one node served.
#[derive(Clone, Copy, Default)]
struct Served {
    /// Their number since the last refresh.
    count: u32,
    /// Their total time since the last refresh, in seconds.
    time: f64,
    /// Seconds per request in the last period with any request.
    mean: Option<f64>,
}

impl Policy for WeightedRoundRobin {
    #[inline]
    fn pick(
        &mut self,
        _request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        if self.served.follow(cluster)
            || (self.weights != Weights::Static && context.now >= self.due)
        {
            self.weigh(cluster, context.now);
        }
        let node = self.turn(cluster, context)?;
        Some(Pick { node, reason: PickReason::Class, set_size: cluster.up().len() as u32 })
    }

    fn candidates(&self, _request: &Request, cluster: &Cluster) -> Candidates {
        Candidates { order: cluster.up().to_vec(), set_size: cluster.up().len() }
    }

    fn observe(&mut self, outcome: &RequestOutcome, _context: &mut PickContext<'_>) {
        // A failed request does not measure the service: quick failures would attract more
        // requests.
        if let Some(served) = self.served.of_mut(outcome.node).filter(|_| outcome.ok) {
            served.count += 1;
            served.time += outcome.service_time.as_secs_f64();
        }
    }

    fn observes(&self) -> bool {
        self.weights == Weights::ServiceTime
    }

    fn inherit(&mut self, former: Box<dyn Any>) {
        // Static weights are computed when a change of membership is noticed. Taking over `served`
        // would also take over the membership, and so skip that.
        if let Ok(former) = former.downcast::<Self>()
            && self.weights != Weights::Static
        {
            self.served = former.served;
        }
    }
}

impl WeightedRoundRobin {
    /// The first node of the schedule that is up and accepts its turn. The weights of the other
    /// nodes keep their proportions, and a ramp scales a node's weight.
    #[inline]
    fn turn(&mut self, cluster: &Cluster, context: &mut PickContext<'_>) -> Option<NodeIndex> {
        // Two turns contain every node at least once, unless its weight is far below the mean.
        let mut tries = 2 * self.schedule.turn_len().max(64);
        while tries > 0 {
            let node = NodeIndex(self.schedule.next()? as u32);
            if cluster.is_up(node) && takes_turn(node, cluster, context.rng) {
                return Some(node);
            }
            tries -= 1;
        }
        self.rotation.turn(cluster.up(), cluster, context.rng)
    }

    #[cold]
    fn weigh(&mut self, cluster: &Cluster, now: Timestamp) {
        self.due = now + self.refresh;
        let nodes = (0..).map(NodeIndex).zip(cluster.nodes());
        let weights = match self.weights {
            Weights::Static => nodes.map(|(_, node)| node.weight).collect(),
            Weights::ActiveConnections => nodes
                .map(|(index, node)| node.weight / (1.0 + f64::from(cluster.load(index))))
                .collect(),
            Weights::ServiceTime => {
                let times = self.service_times();
                nodes.zip(times).map(|((_, node), time)| node.weight / time).collect()
            }
        };
        self.schedule.set(weights);
    }

    /// The mean service time of each node; for a node without requests so far the mean of the
    /// others.
    fn service_times(&mut self) -> Vec<f64> {
        // A service time is never zero, so that weights stay finite.
        const SHORTEST: f64 = 1e-6;
        for served in self.served.values_mut().iter_mut().filter(|served| served.count > 0) {
            let mean = (served.time / f64::from(served.count)).max(SHORTEST);
            *served = Served { mean: Some(mean), ..Served::default() };
        }
        let known: Vec<f64> =
            self.served.values().iter().filter_map(|served| served.mean).collect();
        let usual =
            if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        self.served.values().iter().map(|served| served.mean.unwrap_or(usual)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParameterValue;
    use crate::testing::{World, cluster, loaded, nodes, set_loads};

    fn weighted(weights: &str) -> World {
        World::new("weighted_round_robin", &[("weights", ParameterValue::Text(weights.into()))])
    }

    fn uneven() -> Vec<crate::Node> {
        let mut three = nodes(3);
        (three[0].weight, three[1].weight) = (5.0, 2.0);
        three
    }

    #[test]
    fn shares_follow_the_weights() {
        assert_eq!(weighted("static").spread(8_000, &cluster(uneven())), [5_000, 2_000, 1_000]);
    }

    #[test]
    fn the_rest_keep_their_proportions_when_one_is_down() {
        let rest = cluster(uneven()).without(&[NodeIndex(0)]);
        let spread = weighted("static").spread(3_000, &rest);
        assert!(spread[0] == 0 && (1_990..2_010).contains(&spread[1]), "{spread:?}");
    }

    #[test]
    fn a_ramp_scales_the_weight() {
        let mut slow = uneven();
        slow[0].ramp = 0.2;
        let spread = weighted("static").spread(8_000, &cluster(slow));
        assert!((1_900..2_100).contains(&spread[0]), "5 x 0.2 of 1 + 2 + 1, got {spread:?}");
    }

    #[test]
    fn connections_count_only_at_a_refresh() {
        let (mut world, two) = (weighted("active_connections"), loaded(&[1, 3]));
        assert_eq!(world.spread(300, &two), [200, 100]);
        set_loads(&two, &[3, 1]);
        assert_eq!(world.at_secs(9).spread(300, &two), [200, 100]);
        assert_eq!(world.at_secs(10).spread(300, &two), [100, 200]);
    }

    #[test]
    fn slow_nodes_get_less_and_new_ones_a_mean_share() {
        let (mut world, three) = (weighted("service_time"), cluster(nodes(3)));
        assert_eq!(world.spread(300, &three), [100, 100, 100]);
        for (node, millis) in [(0, 10), (1, 30)] {
            let took = Duration::from_millis(millis);
            let outcome = RequestOutcome {
                node: NodeIndex(node),
                latency: took,
                service_time: took,
                ok: true,
            };
            let mut context = PickContext { now: world.now, rng: &mut world.rng };
            world.policy.observe(&outcome, &mut context);
        }
        // 1/10 : 1/30 : 1/20
        let spread = world.at_secs(10).spread(1_100, &three);
        assert_eq!(spread, [600, 200, 300]);
    }
}
