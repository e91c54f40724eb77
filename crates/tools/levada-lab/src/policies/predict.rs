//! The simulator's prediction: the same rates, each for as long, meet the same cluster, documents and
//! policy. The servers have the names and the eviction of the real nodes, and a rate is carried by the
//! same rule: requests without an answer count.

use std::time::Duration;

use levada_cache::eviction::DEFAULT_EVICTION;
use levada_policy::ParameterValue;
use levada_sim::prototype::server_name;
use levada_sim::{
    Arrivals, Cache, Failure, Flash, Metric, NetworkModel, Outcome, Scenario, Servers, Share, Size,
    Time, Workload,
};
use levada_testbed::emulation::{
    predict::{between, cluster as emulated, play},
    strategy::Strategy,
};

use super::{
    Figures, PoliciesSetup,
    cluster::FRONTS,
    load::{ANSWER_TIMEOUT, LIMIT},
    scenario::{self, COLD_RATE, CROWD_RATE, KILLED_EVERY, KILLED_FOR, KILLED_RATE, MISSED, ONSET},
};
use crate::args::policies::{PoliciesArgs, PoliciesScenario};

/// The figures in virtual time.
///
/// # Errors
/// If a parameter is wrong.
pub(super) fn predict(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
) -> anyhow::Result<Figures> {
    let (warm_up, length) = (args.warm_up, args.duration);
    let time = match scenario {
        PoliciesScenario::Cold => Constant { rate: COLD_RATE, from: length * 2 / 3, to: length },
        PoliciesScenario::Crowd => {
            Constant { rate: CROWD_RATE, from: warm_up, to: warm_up + ONSET }
        }
        PoliciesScenario::Killed => {
            Constant { rate: KILLED_RATE, from: warm_up, to: warm_up + length }
        }
        _ => return capacity(args, setup, scenario, strategy),
    };
    let steps = Steps { rates: vec![time.rate], each: time.to };
    let outcome =
        play(&cluster(args, setup, scenario, strategy, steps, time.from), setup.documents.trace())?;
    Ok(figures(&outcome, None))
}

/// A constant rate, and the measured time.
struct Constant {
    rate: f64,
    from: Duration,
    to: Duration,
}

/// Rates, each for as long.
struct Steps {
    rates: Vec<f64>,
    each: Duration,
}

fn figures(outcome: &Outcome, capacity: Option<f64>) -> Figures {
    let of = |metric| outcome.reading(metric).unwrap_or_default();
    Figures { capacity, hit_ratio: of(Metric::HitRatio), p95: of(Metric::LatencyP95) }
}

/// The capacity by a ramp.
fn capacity(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
) -> anyhow::Result<Figures> {
    let warm_up = args.warm_up.as_secs_f64() / args.step.as_secs_f64();
    let mut rates = vec![args.from; warm_up.ceil() as usize];
    let (mut carried, mut missed) = (Figures::default(), 0);
    for rate in scenario::rates(args.from) {
        rates.push(rate);
        let steps = Steps { rates: rates.clone(), each: args.step };
        let from = args.step * (rates.len() - 1) as u32;
        let ramp = cluster(args, setup, scenario, strategy, steps, from);
        let outcome = play(&ramp, setup.documents.trace())?;
        match is_fine(&outcome) {
            true => (carried, missed) = (figures(&outcome, Some(rate)), 0),
            false => missed += 1,
        }
        if missed == MISSED {
            break;
        }
    }
    Ok(carried)
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

/// The cluster under these rates, measured from `from` to the last request. Processors cost nothing.
fn cluster(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
    mut steps: Steps,
    from: Duration,
) -> Scenario {
    let length = steps.each * steps.rates.len() as u32;
    // Every request has its answer at the end, however late.
    steps.rates.push(NO_MORE);
    let network = [
        ("server_mbps", ParameterValue::Number(args.rate as f64 * 8e-6)),
        ("front_ends", ParameterValue::Integer(FRONTS.into())),
    ];
    let base = emulated(args.seed.into(), strategy, network);
    let flash = match scenario {
        PoliciesScenario::Crowd => {
            Some(Flash { clients: Share(0.5), urls: 1, begin: Time(from), ..Flash::default() })
        }
        _ => scenario::crowd(scenario).map(|crowd| Flash {
            clients: Share(crowd.share),
            urls: crowd.documents,
            ..Flash::default()
        }),
    };
    let failure = (scenario == PoliciesScenario::Killed).then(|| Failure {
        at: Time(from),
        r#for: Time(KILLED_FOR),
        every: Some(Time(KILLED_EVERY)),
        ..Failure::default()
    });
    Scenario {
        servers: Servers {
            count: args.nodes.into(),
            cpu: 1000.0,
            speeds: scenario::disks(scenario, args.nodes),
            active: 10_000,
            names: (0..args.nodes.into()).map(server_name).collect(),
            tries: scenario::tries(scenario),
            noticed_after: Time(NOTICED_AFTER),
            failure: failure.into_iter().collect(),
            ..Servers::default()
        },
        workload: Workload {
            arrivals: Arrivals::Constant,
            step: Time(steps.each),
            steps: steps.rates,
            flash,
            ..base.workload
        },
        cache: Cache {
            memory: Size(setup.memory),
            eviction: DEFAULT_EVICTION.name.to_owned(),
            ..Cache::default()
        },
        network: NetworkModel { initial_window: 10, window: 1000, ..base.network },
        measure: between(from, length + DRAIN),
        ..base
    }
}

/// Requests per second after the last step.
const NO_MORE: f64 = 1e-6;
/// A front-end ejects a node after three requests that found it gone, and tries it again soon after it is back.
const NOTICED_AFTER: Duration = Duration::from_millis(200);
/// Time for the last requests, longer than the client waits.
const DRAIN: Duration = Duration::from_secs(60);
