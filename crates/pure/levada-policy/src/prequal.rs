//! Prequal: of the nodes that are not crowded, the one that answers fastest.
//!
//! B. Wydrowski, R. Kleinberg, S. M. Rumble and A. Archer, "Load is not what you should balance: Introducing
//! Prequal", NSDI'24. Requests in flight (RIF) say at once that a node is crowded, and latency says that it is
//! slow though it is not. Products of the two, as in Peak EWMA, mix them up. Prequal takes them one after the
//! other: nodes whose RIF is above a quantile of all are hot, and the cold node with the lowest latency serves.
//! If all are hot, the one with the lowest RIF does (the hot-cold lexicographic rule).
//!
//! The paper's client probes a few random servers with each request and chooses among the results that it has
//! in a pool. A redirector of Levada has no probes; it has what probes would tell, as far as it has seen it:
//!
//! ```text
//!            probe of the paper                     here
//! RIF        of the server, over all clients        outstanding requests of this redirector, at the decision
//! latency    median at the server, near its RIF     median of the last answers, for `max_age`
//! ```
//!
//! So a probe is a look at a random node, and costs nothing. Results of the pool do not grow stale; they are
//! what is remembered between requests, as in "The Power of Two Choices with memory". A count of the requests
//! in flight at a node over all redirectors would need an answer that carries it; none does.

mod pool;

use std::{any::Any, time::Duration};

use levada_types::{Request, Timestamp};

use crate::choose::one_of;
use crate::p2c::better_of_two;
use crate::per_node::PerNode;
use crate::{
    Candidates, Cluster, Deployment, Kind, Need, NodeIndex, Parameter, Parameters, Pick,
    PickContext, PickReason, Policy, PolicyEntry, RequestOutcome, Setting,
};
use pool::{Facts, Pool};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "prequal",
    paper: "Wydrowski et al., NSDI'24",
    summary: "of a few random nodes that are not crowded the one with the lowest recent latency",
    keyed: false,
    needs: &[Need::Outcomes],
    parameters: &[Q_RIF, PROBES, REUSE, MAX_AGE],
    build: |parameters: &Parameters, _: &Deployment| Box::new(Prequal::new(parameters)),
}];

const Q_RIF: Parameter = Parameter {
    name: "q_rif",
    kind: Kind::Number(0.0, 1.0),
    default: Setting::Number(0.5),
    unit: "",
    help: "Q_RIF: nodes are hot above this quantile of the requests in flight; 0 balances requests in flight \
           alone, 1 latency alone; 0.84 in NSDI'24.",
};

const PROBES: Parameter = Parameter {
    name: "probes",
    kind: Kind::Integer(1, pool::MOST as u64),
    default: Setting::Integer(3),
    unit: "nodes",
    help: "r_probe: random nodes that join the pool with each request (NSDI'24: 3).",
};

const REUSE: Parameter = Parameter {
    name: "reuse",
    kind: Kind::Integer(1, 1_000),
    default: Setting::Integer(2),
    unit: "requests",
    help: "b_reuse: requests that a node of the pool gets before it must be drawn again (NSDI'24: by a formula, \
           1.3 with 100 servers).",
};

const MAX_AGE: Parameter = Parameter {
    name: "max_age",
    kind: Kind::Duration(Duration::from_millis(10), Duration::from_secs(3600)),
    default: Setting::Duration(Duration::from_secs(1)),
    unit: "",
    help: "How long the last answer of a node tells its latency; then that of all nodes counts, and the node is \
           tried again (NSDI'24: probes of more than 1s are removed).",
};

#[derive(Clone)]
struct Prequal {
    q_rif: f64,
    probes: u64,
    latencies: Latencies,
    pool: Pool,
    recent: RecentRif,
}

impl Prequal {
    fn new(parameters: &Parameters) -> Self {
        let integer = |p: &Parameter| parameters.integer(p.name).unwrap_or(1);
        Self {
            q_rif: parameters.number(Q_RIF.name).unwrap_or_default(),
            probes: integer(&PROBES),
            latencies: Latencies {
                max_age: parameters.duration(MAX_AGE.name),
                answers: PerNode::default(),
                usual: None,
            },
            pool: Pool::new(integer(&REUSE) as u32),
            recent: RecentRif::default(),
        }
    }

    /// Draws random nodes into the pool, and notes their RIF.
    fn probe(&mut self, cluster: &Cluster, context: &mut PickContext<'_>) {
        for _ in 0..self.probes {
            let Some(node) = one_of(cluster.up(), context.rng) else { return };
            self.pool.add(node);
            self.recent.note(rif(node, cluster), self.q_rif);
        }
    }
}

impl Policy for Prequal {
    fn pick(
        &mut self,
        _request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        if self.latencies.answers.follow(cluster) {
            self.pool.clear();
        }
        self.pool.retain(|node| cluster.is_up(node));
        self.probe(cluster, context);
        let rif = |node| rif(node, cluster);
        let (latencies, threshold) = (&self.latencies, self.recent.threshold);
        let facts = |node| {
            let (rif, latency) = (rif(node), latencies.of(node, context.now));
            Facts { is_hot: rif > threshold, rif, latency }
        };
        let node = match self.pool.choose(facts) {
            Some(node) => node,
            None => better_of_two(cluster.up(), rif, context.rng)?,
        };
        Some(Pick { node, reason: PickReason::Least, set_size: cluster.up().len() as u32 })
    }

    fn candidates(&self, _request: &Request, cluster: &Cluster) -> Candidates {
        // Without the time there are no latencies, and so no order.
        Candidates { order: cluster.up().to_vec(), set_size: cluster.up().len() }
    }

    fn observe(&mut self, outcome: &RequestOutcome, context: &mut PickContext<'_>) {
        self.latencies.note(outcome, context.now);
    }

    fn observes(&self) -> bool {
        true
    }

    fn inherit(&mut self, former: Box<dyn Any>) {
        if let Ok(former) = former.downcast::<Self>() {
            let max_age = self.latencies.max_age;
            self.latencies = Latencies { max_age, ..former.latencies };
        }
    }
}

/// Requests in flight per unit of weight, the new one included, so that idle nodes differ by weight and ramp.
#[inline]
fn rif(node: NodeIndex, cluster: &Cluster) -> f64 {
    (f64::from(cluster.load(node)) + 1.0) / cluster.capacity(node)
}

/// The latencies of all nodes, in seconds.
#[derive(Clone)]
struct Latencies {
    max_age: Duration,
    answers: PerNode<Answers>,
    /// The average over all nodes.
    usual: Option<f64>,
}

impl Latencies {
    #[inline]
    fn of(&self, node: NodeIndex, now: Timestamp) -> f64 {
        let answers = &self.answers.values()[node.get()];
        let own = answers.median.filter(|_| now.since(answers.at) <= self.max_age);
        own.or(self.usual).unwrap_or_default()
    }

    fn note(&mut self, outcome: &RequestOutcome, now: Timestamp) {
        let Some(answers) = self.answers.of_mut(outcome.node) else { return };
        let mut latency = outcome.latency.as_secs_f64();
        if !outcome.ok {
            // A node that fails quickly must not attract requests.
            latency = latency.max(answers.median.or(self.usual).unwrap_or_default());
        }
        answers.note(latency, now);
        self.usual = Some(self.usual.map_or(latency, |usual| usual + (latency - usual) / 16.0));
    }
}

/// The last latencies of a node, in seconds.
#[derive(Clone, Default)]
struct Answers {
    last: Vec<f64>,
    next: usize,
    median: Option<f64>,
    at: Timestamp,
}

impl Answers {
    const KEPT: usize = 9;

    fn note(&mut self, latency: f64, now: Timestamp) {
        match self.last.get_mut(self.next) {
            Some(oldest) => *oldest = latency,
            None => self.last.push(latency),
        }
        self.next = (self.next + 1) % Self::KEPT;
        self.at = now;
        self.median = Some(quantile(&self.last, 0.5));
    }
}

/// RIF of the nodes that were drawn lately: a sample of all nodes.
#[derive(Clone, Default)]
struct RecentRif {
    last: Vec<f64>,
    next: usize,
    /// Above it a node is hot.
    threshold: f64,
}

impl RecentRif {
    const KEPT: usize = 64;
    /// The threshold is computed again after so many nodes.
    const PERIOD: usize = 16;

    fn note(&mut self, rif: f64, quantile_of_hot: f64) {
        match self.last.get_mut(self.next) {
            Some(oldest) => *oldest = rif,
            None => self.last.push(rif),
        }
        self.next = (self.next + 1) % Self::KEPT;
        if self.next.is_multiple_of(Self::PERIOD) || self.last.len() < Self::PERIOD {
            self.threshold = quantile(&self.last, quantile_of_hot);
        }
    }
}

/// The value of `values` below which the part `of` of them lies; there is at least one.
fn quantile(values: &[f64], of: f64) -> f64 {
    let mut sorted = [0.0; RecentRif::KEPT];
    let sorted = &mut sorted[..values.len()];
    sorted.copy_from_slice(values);
    let place = ((values.len() - 1) as f64 * of).round() as usize;
    *sorted.select_nth_unstable_by(place, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, cluster, loaded, nodes};
    use crate::{ParameterValue, PickContext};

    /// A world of `policy` in which each node has answered after so many milliseconds.
    fn world(given: &[(&str, ParameterValue)], cluster: &Cluster, millis: &[u64]) -> World {
        let mut world = World::new("prequal", given);
        world.node(0, cluster);
        for (node, millis) in (0..).zip(millis) {
            answer(&mut world, node, *millis, true);
        }
        world
    }

    fn answer(world: &mut World, node: u32, millis: u64, ok: bool) {
        let latency = Duration::from_millis(millis);
        let outcome = RequestOutcome { node: NodeIndex(node), latency, service_time: latency, ok };
        let mut context = PickContext { now: world.now, rng: &mut world.rng };
        world.policy.observe(&outcome, &mut context);
    }

    /// Each node is drawn nearly always.
    const WIDE: [(&str, ParameterValue); 2] =
        [("probes", ParameterValue::Integer(16)), ("reuse", ParameterValue::Integer(1_000))];

    #[test]
    fn the_fastest_of_the_nodes_that_are_not_crowded_serves() {
        let four = loaded(&[90, 8, 7, 9]);
        let given = [&WIDE[..], &[("q_rif", ParameterValue::Number(0.62))]].concat();
        let spread = world(&given, &four, &[5, 20, 40, 10]).spread(200, &four);
        assert!(spread[0] < 10 && spread[3] > 150, "the fastest is hot: {spread:?}");
    }

    #[test]
    fn at_the_ends_of_the_quantile_one_of_both_decides_alone() {
        let four = loaded(&[90, 8, 7, 9]);
        let at = |q_rif| {
            let given = [&WIDE[..], &[("q_rif", ParameterValue::Number(q_rif))]].concat();
            world(&given, &four, &[5, 20, 40, 10]).spread(200, &four)
        };
        let (by_rif, by_latency) = (at(0.0), at(1.0));
        assert!(by_rif[2] > 180, "{by_rif:?}");
        assert!(by_latency[0] > 180, "{by_latency:?}");
    }

    #[test]
    fn a_slow_node_is_tried_again_when_its_answers_are_old() {
        let two = loaded(&[0, 0]);
        let mut world = world(&WIDE, &two, &[10, 1_000]);
        assert_eq!(world.spread(100, &two), [100, 0]);
        let spread = world.at_secs(2).spread(100, &two);
        assert!(spread[1] > 20, "{spread:?}");
    }

    #[test]
    fn quick_failures_do_not_attract() {
        let two = loaded(&[0, 0]);
        let mut world = world(&WIDE, &two, &[30, 20]);
        for _ in 0..20 {
            answer(&mut world, 0, 1, false);
        }
        assert_eq!(world.spread(100, &two), [0, 100]);
    }

    #[test]
    fn equal_nodes_without_answers_get_similar_shares() {
        let spread = World::new("prequal", &[]).spread(8_000, &cluster(nodes(8)));
        assert!(spread.iter().all(|n| (850..1_150).contains(n)), "{spread:?}");
    }

    #[test]
    fn a_cold_node_is_taken_only_when_alone() {
        let mut two = nodes(2);
        two[0].ramp = 0.0;
        let two = cluster(two);
        assert!(World::new("prequal", &[]).spread(100, &two)[0] < 5);
        assert_eq!(World::new("prequal", &[]).spread(100, &two.without(&[NodeIndex(1)])), [100, 0]);
    }
}
