//! Peak EWMA: of two random nodes the one with the lower expected latency.
//!
//! From Twitter's Finagle, also in linkerd and tower. A node's cost is its latency, estimated by a
//! moving average, times the requests that it would have outstanding. The estimate rises at once to
//! every longer latency and falls exponentially with `decay`. So a node that stalls is avoided at
//! once and gets requests again slowly. The estimate also falls while a node gets no requests, so
//! that the node is tried again.

use std::{any::Any, time::Duration};

use levada_types::{Request, Timestamp};

use crate::p2c::better_of_two;
use crate::per_node::PerNode;
use crate::relative_load::RelativeLoad;
use crate::{
    Candidates, Cluster, Deployment, Kind, Need, NodeIndex, Parameter, Parameters, Pick,
    PickContext, PickReason, Policy, PolicyEntry, RequestOutcome, Setting,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[PolicyEntry {
    name: "peak_ewma",
    paper: "Finagle, linkerd, tower",
    summary: "of two random nodes the one with the lower recent peak latency x outstanding requests",
    keyed: false,
    needs: &[Need::Outcomes],
    parameters: &[Parameter {
        name: "decay",
        kind: Kind::Duration(Duration::from_millis(10), Duration::from_secs(3600)),
        default: Setting::Duration(Duration::from_secs(10)),
        unit: "",
        help: "The time in which an estimate falls to 1/e of its value without new peaks (Finagle: 10s).",
    }],
    build: |parameters: &Parameters, _: &Deployment| {
        Box::new(PeakEwma {
            decay: parameters.duration("decay").as_nanos() as f64,
            estimates: PerNode::default(),
            usual: None,
        })
    },
}];

#[derive(Clone)]
struct PeakEwma {
    /// In nanoseconds, like all times here.
    decay: f64,
    estimates: PerNode<Option<Estimate>>,
    /// The average over all nodes: the estimate of a node without a response so far.
    usual: Option<Estimate>,
}

impl Policy for PeakEwma {
    fn pick(
        &mut self,
        _request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        self.estimates.follow(cluster);
        let relative_load = |node| self.relative_load(node, cluster, context.now);
        let node = better_of_two(cluster.up(), relative_load, context.rng)?;
        Some(Pick { node, reason: PickReason::Least, set_size: cluster.up().len() as u32 })
    }

    fn candidates(&self, _request: &Request, cluster: &Cluster) -> Candidates {
        // Without the time there are no estimates, and so no order.
        Candidates { order: cluster.up().to_vec(), set_size: cluster.up().len() }
    }

    fn observe(&mut self, outcome: &RequestOutcome, context: &mut PickContext<'_>) {
        let Some(estimate) = self.estimates.of_mut(outcome.node) else { return };
        let mut latency = outcome.latency.as_nanos() as f64;
        if !outcome.ok {
            // A quick failure must not lower a node's estimate.
            latency = estimate.map_or(latency, |e| latency.max(e.latency));
        }
        let (now, decay) = (context.now, self.decay);
        let peak = Estimate { latency, at: now };
        *estimate = Some(match *estimate {
            Some(e) if latency < e.at(now, decay) => {
                e.towards(latency, 1.0 - e.kept(now, decay), now)
            }
            _ => peak,
        });
        self.usual = Some(self.usual.map_or(peak, |e| e.towards(latency, 1.0 / 16.0, now)));
    }

    fn observes(&self) -> bool {
        true
    }

    fn inherit(&mut self, former: Box<dyn Any>) {
        if let Ok(former) = former.downcast::<Self>() {
            (self.estimates, self.usual) = (former.estimates, former.usual);
        }
    }
}

impl PeakEwma {
    #[inline]
    fn relative_load(&self, node: NodeIndex, cluster: &Cluster, now: Timestamp) -> RelativeLoad {
        let estimate = self.estimates.values()[node.get()].or(self.usual);
        // Before the first response of any node, outstanding requests alone decide.
        RelativeLoad::of(node, estimate.map_or(1.0, |e| e.at(now, self.decay)), cluster)
    }
}

/// A latency estimate and its time.
#[derive(Clone, Copy)]
struct Estimate {
    latency: f64,
    at: Timestamp,
}

impl Estimate {
    /// The estimate after its decay. It is never zero, because then idle nodes would not differ by
    /// load and ramp.
    #[inline]
    fn at(self, now: Timestamp, decay: f64) -> f64 {
        (self.latency * self.kept(now, decay)).max(1.0)
    }

    /// The moving average including a new `latency`, which has the weight `part`.
    fn towards(self, latency: f64, part: f64, now: Timestamp) -> Self {
        Self { latency: self.latency + (latency - self.latency) * part, at: now }
    }

    /// e^-x, approximated by 1 / (1 + x + x^2/2 + x^3/6), where x is the elapsed time over `decay`.
    /// This is several times faster, and gives the same result on every machine. It falls a little
    /// more slowly (0.375 instead of 0.368 at x = 1).
    #[inline]
    fn kept(self, now: Timestamp, decay: f64) -> f64 {
        let x = now.0.saturating_sub(self.at.0) as f64 / decay;
        1.0 / (1.0 + x * (1.0 + x * (0.5 + x * (1.0 / 6.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, cluster, loaded, nodes};

    impl World {
        fn answered(&mut self, node: u32, millis: u64, ok: bool) -> &mut Self {
            let latency = Duration::from_millis(millis);
            let outcome =
                RequestOutcome { node: NodeIndex(node), latency, service_time: latency, ok };
            let mut context = PickContext { now: self.now, rng: &mut self.rng };
            self.policy.observe(&outcome, &mut context);
            self
        }
    }

    /// A world whose policy has seen the nodes of `cluster`.
    fn world(cluster: &Cluster) -> World {
        let mut world = World::new("peak_ewma", &[]);
        world.node(0, cluster);
        world
    }

    #[test]
    fn the_faster_node_is_taken_until_it_is_busier() {
        let two = loaded(&[0, 0]);
        let mut world = world(&two);
        world.answered(0, 10, true).answered(1, 45, true);
        assert_eq!(world.spread(100, &two), [100, 0]);
        assert_eq!(world.spread(100, &loaded(&[4, 0])), [0, 100]);
    }

    #[test]
    fn a_stall_counts_at_once_and_is_forgotten_slowly() {
        let two = loaded(&[0, 0]);
        let mut world = world(&two);
        world.answered(0, 10, true).answered(1, 20, true).answered(0, 1000, true);
        assert_eq!(world.spread(100, &two), [0, 100]);
        world.at_secs(10).answered(0, 10, true).answered(1, 20, true);
        assert_eq!(world.spread(100, &two), [0, 100], "1000 ms have decayed to 375 ms");
        world.at_secs(60).answered(0, 10, true).answered(1, 20, true);
        assert_eq!(world.spread(100, &two), [100, 0]);
    }

    #[test]
    fn estimate_falls_nearly_as_an_exponential_function_does() {
        let estimate = Estimate { latency: 1.0, at: Timestamp::ZERO };
        for x in 0..=10u32 {
            let exact = (-f64::from(x) / 10.0).exp();
            let kept = estimate.kept(Timestamp(x.into()), 10.0);
            assert!((exact..exact + 0.008).contains(&kept), "{kept} at {x} tenths");
        }
    }

    #[test]
    fn quick_failures_do_not_attract() {
        let two = loaded(&[0, 0]);
        let mut world = world(&two);
        world.answered(0, 30, true).answered(1, 20, true).answered(0, 1, false);
        assert_eq!(world.spread(100, &two), [0, 100]);
    }

    #[test]
    fn a_new_node_begins_with_the_usual_latency() {
        let three = nodes(3);
        let mut world = world(&cluster(three[..2].to_vec()));
        world.answered(0, 10, true).answered(1, 30, true);
        let spread = world.spread(3_000, &cluster(three));
        // It is behind the fast node and before the slow one in each pair.
        assert!((1_900..2_100).contains(&spread[0]) && spread[1] == 0, "{spread:?}");
    }
}
