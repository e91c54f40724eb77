//! The simulator's prediction of a ramp's capacity: the same rates, each for as long, meet the same
//! cluster, documents and policy. The servers have the names and the eviction of the real nodes, and a rate
//! is carried by the same rule: requests without an answer count.

use std::time::Duration;

use levada_cache::eviction::DEFAULT_EVICTION;
use levada_policy::ParameterValue;
use levada_sim::prototype::server_name;
use levada_sim::{
    Arrivals, Cache, Flash, Metric, NetworkModel, Outcome, Scenario, Servers, Share, Size, Time,
    Workload,
};
use levada_testbed::emulation::{
    predict::{between, cluster, play},
    strategy::Strategy,
};

use super::{
    PoliciesSetup,
    cluster::FRONTS,
    load::{ANSWER_TIMEOUT, LIMIT},
    scenario::{self, MISSED},
};
use crate::args::policies::{PoliciesArgs, PoliciesScenario};

/// The simulator's figures of a ramp.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Predicted {
    /// The highest rate that was carried; 0 if even the first was not.
    pub(super) capacity: f64,
    /// At this rate, the part of the requests found in memory.
    pub(super) hit_ratio: f64,
    /// At this rate, the 95th percentile of the latency, in seconds.
    pub(super) p95: f64,
}

/// The capacity in virtual time; `None` for a scenario that is no ramp.
///
/// # Errors
/// If a parameter is wrong.
pub(super) fn capacity(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
) -> anyhow::Result<Option<Predicted>> {
    if matches!(scenario, PoliciesScenario::Cold | PoliciesScenario::Crowd) {
        return Ok(None);
    }
    let warm_up = args.warm_up.as_secs_f64() / args.step.as_secs_f64();
    let mut rates = vec![args.from; warm_up.ceil() as usize];
    let (mut carried, mut missed) = (Predicted::default(), 0);
    for rate in scenario::rates(args.from) {
        rates.push(rate);
        let ramp = ramp(args, setup, scenario, strategy, rates.clone());
        let outcome = play(&ramp, setup.documents.trace())?;
        let of = |metric| outcome.reading(metric).unwrap_or_default();
        match is_fine(&outcome) {
            true => {
                let (hit_ratio, p95) = (of(Metric::HitRatio), of(Metric::LatencyP95));
                (carried, missed) = (Predicted { capacity: rate, hit_ratio, p95 }, 0);
            }
            false => missed += 1,
        }
        if missed == MISSED {
            break;
        }
    }
    Ok(Some(carried))
}

/// Whether the load was carried: as [`Period::is_fine`](super::load::Period::is_fine), where a request
/// that takes longer than the client waits has failed.
fn is_fine(outcome: &Outcome) -> bool {
    let latencies = outcome.series.iter().find(|series| series.name == "latency_cdf");
    let longest = latencies.and_then(|series| series.points.last()).map(|(seconds, _)| *seconds);
    let p95 = outcome.reading(Metric::LatencyP95);
    p95.is_some_and(|seconds| seconds < LIMIT.as_secs_f64())
        && longest.is_some_and(|seconds| seconds < ANSWER_TIMEOUT.as_secs_f64())
}

/// The cluster under these rates, of which the last is measured. Processors cost nothing.
fn ramp(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
    mut rates: Vec<f64>,
) -> Scenario {
    let length = args.step * rates.len() as u32;
    // Every request has its answer at the end, however late.
    rates.push(NO_MORE);
    let network = [
        ("server_mbps", ParameterValue::Number(args.rate as f64 * 8e-6)),
        ("front_ends", ParameterValue::Integer(FRONTS.into())),
    ];
    let ramp = cluster(args.seed.into(), strategy, network);
    Scenario {
        servers: Servers {
            count: args.nodes.into(),
            cpu: 1000.0,
            disk: scenario::disk(scenario),
            active: 10_000,
            names: (0..args.nodes.into()).map(server_name).collect(),
            ..Servers::default()
        },
        workload: Workload {
            arrivals: Arrivals::Constant,
            step: Time(args.step),
            steps: rates,
            flash: scenario::crowd(scenario).map(|crowd| Flash {
                clients: Share(crowd.share),
                urls: crowd.documents,
                ..Flash::default()
            }),
            ..ramp.workload
        },
        cache: Cache {
            memory: Size(setup.memory),
            eviction: DEFAULT_EVICTION.name.to_owned(),
            ..Cache::default()
        },
        network: NetworkModel { initial_window: 10, window: 1000, ..ramp.network },
        measure: between(length - args.step, length + DRAIN),
        ..ramp
    }
}

/// Requests per second after the last step.
const NO_MORE: f64 = 1e-6;
/// Time for the last requests, longer than the client waits.
const DRAIN: Duration = Duration::from_secs(60);
