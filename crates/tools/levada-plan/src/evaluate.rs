//! A candidate in the simulator, at the rate of the peak hour.

use std::{collections::BTreeMap, time::Duration};

use anyhow::bail;
use levada_curves::CurveReport;
use levada_sim::{
    Arrivals, Cache, End, Library, Measure, Metric, NetworkModel, Origin, Policy, Scenario,
    Servers, Size, Time, TopologyChoice, Workload, run,
};
use serde::{Deserialize, Serialize};

use crate::{
    cluster,
    costs::{Costs, OriginTime},
    expiry::Expiry,
    peak::Load,
    watch::Progress,
};

/// Memory of an object in addition to its body, in bytes: its head, and what a node notes of it.
const HEAD: u64 = 500;

/// A cluster that might do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The number of nodes.
    pub nodes: usize,
    /// Bytes of each node.
    pub memory: u64,
    /// Bytes of the disk tier of each node; 0 if it has none.
    pub disk: u64,
    /// The policy by which nodes choose a node.
    pub policy: String,
    /// The eviction of each node, in both tiers.
    pub eviction: &'static str,
}

impl Candidate {
    /// Bytes of both tiers of so many nodes: as one cache, what they could hold at most.
    pub(crate) fn cache(&self, nodes: usize) -> u64 {
        self.memory.saturating_add(self.disk).saturating_mul(nodes as u64)
    }
}

/// The conditions that all candidates have in common.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) costs: Costs,
    /// Of a requested object.
    pub(crate) mean_bytes: f64,
    pub(crate) origin: OriginTime,
    pub(crate) expiry: Expiry,
    /// From a node to a client.
    pub(crate) client_latency: Duration,
    /// Mbit/s of the requests that no cache can answer, for each request per second of others.
    pub(crate) passed: f64,
    /// Runs of each load.
    pub(crate) parts: usize,
}

/// The mean of some runs, the least and the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Range {
    fn of(values: &[f64]) -> Self {
        Self {
            mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// The figures of a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The share of the requests that memory or disk answers.
    pub hit: Range,
    /// The share that the disk answers, without waiting for the origin.
    pub disk_hit: Range,
    /// The share that memory or disk answers after the origin has confirmed the copy.
    pub confirmed: Range,
    /// The share of the bytes that the origin does not send.
    pub byte_hit: Range,
    /// Mbit/s from the origin.
    pub origin: Range,
    /// The share of the time in which the busiest node's CPU works.
    pub cpu: Range,
    /// The same of all nodes in the mean.
    pub mean_cpu: Range,
    /// The share of the time in which the busiest node's disk works.
    pub disk: Range,
    /// The 99th percentile of the latency, in seconds.
    pub p99: Range,
    /// A node failed under the load in one of the runs.
    pub overloaded: bool,
}

/// The scenario of a candidate under a load: requests `begin..begin + count` of its trace are measured.
pub(crate) fn scenario(
    candidate: &Candidate,
    load: &Load,
    around: &Surroundings,
    begin: usize,
    count: usize,
) -> Scenario {
    let rate = around.origin.rate.map(|rate| rate as u64);
    Scenario {
        title: "levada plan".to_owned(),
        seed: 1 + begin as u64,
        topology: TopologyChoice {
            file: Some(cluster::name(candidate.nodes)),
            ..TopologyChoice::default()
        },
        servers: Servers {
            count: candidate.nodes,
            cpu: around.costs.speed(around.mean_bytes, candidate.nodes),
            disk_latency: Some(Time(around.costs.disk_latency())),
            disk_bytes_per_second: Some(around.costs.disk_bytes_per_second()),
            ..Servers::default()
        },
        origin: Some(Origin {
            latency: Time(around.origin.latency),
            bits_per_second: rate.filter(|_| around.origin.is_shared),
            body_bits_per_second: rate.filter(|_| !around.origin.is_shared),
            ..Origin::default()
        }),
        freshness: around.expiry.simulated(),
        workload: Workload {
            trace: load.model.to_owned(),
            arrivals: Arrivals::Constant,
            rate: load.rate,
            repeat: Some(true),
            ..Workload::default()
        },
        policy: Policy { name: candidate.policy.clone(), parameters: BTreeMap::new() },
        cache: Cache {
            memory: Size(candidate.memory),
            disk: (candidate.disk > 0).then_some(Size(candidate.disk)),
            eviction: candidate.eviction.to_owned(),
            head: Size(HEAD),
            warm_requests: begin as u64,
            ..Cache::default()
        },
        network: NetworkModel {
            segment: 1460,
            initial_window: 10,
            window: 200,
            ..NetworkModel::default()
        },
        measure: Measure { requests: Some(count as u64), ..Measure::default() },
        ..Scenario::default()
    }
}

/// The runs of a candidate under each load, in parts: the bits per second that a run asks for, and its scenario.
pub(crate) fn scenarios<'a>(
    candidate: &'a Candidate,
    loads: &'a [(Load, CurveReport)],
    around: &'a Surroundings,
) -> impl Iterator<Item = (&'a Load, f64, Scenario)> {
    loads.iter().flat_map(move |(load, _)| {
        let count = (load.measured() / around.parts).max(1);
        (0..around.parts.min(load.measured())).map(move |part| {
            let begin = load.warm + part * count;
            let scenario = scenario(candidate, load, around, begin, count);
            (load, load.bits(begin, count), scenario)
        })
    })
}

/// Runs the candidate under each load, in parts.
///
/// # Errors
/// If a policy or eviction does not exist, nothing was measured, or the plan is to end.
pub(crate) fn evaluate(
    candidate: &Candidate,
    loads: &[(Load, CurveReport)],
    library: &mut Library,
    around: &Surroundings,
    progress: &mut Progress<'_>,
) -> anyhow::Result<Figures> {
    let (mut hits, mut disk_hits, mut confirmed) = (vec![], vec![], vec![]);
    let (mut bytes, mut origins) = (vec![], vec![]);
    let (mut cpus, mut mean_cpus, mut disks, mut p99s) = (vec![], vec![], vec![], vec![]);
    let mut overloaded = false;
    for (load, requested, scenario) in scenarios(candidate, loads, around) {
        let prepared = match scenario.prepare(library) {
            Ok(prepared) => prepared,
            Err(problems) => bail!("the candidate cannot be simulated: {problems}"),
        };
        let outcome = run(&prepared, &mut |_| progress.goes_on());
        if outcome.end == End::Stopped {
            progress.say("stopped")?;
        }
        overloaded |= outcome.end == End::Overload;
        let reading = |metric: Metric| outcome.reading(metric).unwrap_or(0.0);
        let origin = reading(Metric::OriginEgress);
        let from_disk = reading(Metric::DiskHits);
        confirmed.push(reading(Metric::Confirmed));
        hits.push(reading(Metric::HitRatio) + from_disk + reading(Metric::Confirmed));
        disk_hits.push(from_disk);
        bytes.push((1.0 - origin / requested.max(1.0)).clamp(0.0, 1.0));
        origins.push(origin * 1e-6 + load.rate * around.passed);
        let busy = around.costs.busy(&outcome.servers, load.rate, around.mean_bytes);
        cpus.push(busy.iter().copied().fold(0.0, f64::max));
        mean_cpus.push(busy.iter().sum::<f64>() / candidate.nodes as f64);
        disks.push(outcome.servers.iter().map(|server| server.disk).fold(0.0, f64::max));
        p99s.push(reading(Metric::LatencyP99));
    }
    Ok(Figures {
        hit: Range::of(&hits),
        disk_hit: Range::of(&disk_hits),
        confirmed: Range::of(&confirmed),
        byte_hit: Range::of(&bytes),
        origin: Range::of(&origins),
        cpu: Range::of(&cpus),
        mean_cpu: Range::of(&mean_cpus),
        disk: Range::of(&disks),
        p99: Range::of(&p99s),
        overloaded,
    })
}
