//! The simulator's prediction of a ramp's capacity: the same rates, each for as long, meet the same
//! cluster, documents and policy.

use levada_policy::ParameterValue;
use levada_sim::{
    Arrivals, Cache, Flash, Metric, NetworkModel, Scenario, Servers, Share, Size, Time, Workload,
};
use levada_testbed::emulation::{
    predict::{between, cluster, play},
    strategy::Strategy,
};

use super::{
    PoliciesSetup,
    cluster::FRONTS,
    load::LIMIT,
    scenario::{self, MISSED},
};
use crate::args::policies::{PoliciesArgs, PoliciesScenario};

/// The capacity in virtual time, 0 if even the first rate is not carried; `None` for a scenario that
/// is no ramp.
///
/// # Errors
/// If a parameter is wrong.
pub(super) fn capacity(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
) -> anyhow::Result<Option<f64>> {
    if matches!(scenario, PoliciesScenario::Cold | PoliciesScenario::Crowd) {
        return Ok(None);
    }
    let warm_up = args.warm_up.as_secs_f64() / args.step.as_secs_f64();
    let mut rates = vec![args.from; warm_up.ceil() as usize];
    let (mut carried, mut missed) = (0.0, 0);
    for rate in scenario::rates(args.from) {
        rates.push(rate);
        let ramp = ramp(args, setup, scenario, strategy, rates.clone());
        let outcome = play(&ramp, setup.documents.trace())?;
        let p95 = outcome.reading(Metric::LatencyP95);
        match p95.is_some_and(|seconds| seconds < LIMIT.as_secs_f64()) {
            true => (carried, missed) = (rate, 0),
            false => missed += 1,
        }
        if missed == MISSED {
            break;
        }
    }
    Ok(Some(carried))
}

/// The cluster under these rates, of which the last is measured. Processors cost nothing.
fn ramp(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
    rates: Vec<f64>,
) -> Scenario {
    let length = args.step * rates.len() as u32;
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
        cache: Cache { memory: Size(setup.memory), ..Cache::default() },
        network: NetworkModel { initial_window: 10, window: 1000, ..ramp.network },
        // The last requests have time to finish.
        measure: between(length - args.step, length + LIMIT),
        ..ramp
    }
}
