//! The simulator's prediction of a ramp's capacity: the same rates, each for as long, meet the same
//! cluster, documents and policy.

use std::{collections::BTreeMap, ops::ControlFlow};

use levada_sim::{
    Arrivals, Cache, Flash, Library, Measure, Metric, NetworkModel, Policy, Scalar, Scenario,
    Servers, Share, Size, Time, TopologyChoice, Workload,
};

use super::{
    PoliciesSetup,
    cluster::FRONTS,
    load::LIMIT,
    scenario::{self, MISSED},
};
use crate::{
    args::policies::{PoliciesArgs, PoliciesScenario},
    emulation::strategy::Strategy,
};

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
    let mut library = Library::without_files();
    library.keep(TRACE, setup.documents.trace().clone());
    let warm_up = args.warm_up.as_secs_f64() / args.step.as_secs_f64();
    let mut rates = vec![args.from; warm_up.ceil() as usize];
    let (mut carried, mut missed) = (0.0, 0);
    for rate in scenario::rates(args.from) {
        rates.push(rate);
        let ramp = cluster(args, setup, scenario, strategy, rates.clone());
        let outcome =
            levada_sim::run(&ramp.prepare(&mut library)?, &mut |_| ControlFlow::Continue(()));
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

/// The cluster under these rates, of which the last is measured. Processors, front-ends and the Ethernet cost
/// nothing.
fn cluster(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
    rates: Vec<f64>,
) -> Scenario {
    let length = args.step * rates.len() as u32;
    let text = |text: &str| Scalar::Text(text.to_owned());
    let network = [
        ("server_latency", text("1us")),
        ("client_latency", text("1us")),
        ("server_mbps", Scalar::Number(args.rate as f64 * 8e-6)),
        ("client_mbps", Scalar::Number(1e6)),
        ("front_ends", Scalar::Integer(FRONTS.into())),
    ];
    Scenario {
        seed: args.seed.into(),
        topology: TopologyChoice {
            name: "lan_cluster".to_owned(),
            file: None,
            parameters: BTreeMap::from(network.map(|(name, value)| (name.to_owned(), value))),
        },
        servers: Servers {
            count: args.nodes.into(),
            cpu: 1000.0,
            disk: scenario::disk(scenario),
            active: 10_000,
            ..Servers::default()
        },
        workload: Workload {
            trace: TRACE.to_owned(),
            arrivals: Arrivals::Constant,
            repeat: Some(true),
            step: Time(args.step),
            steps: rates,
            flash: scenario::crowd(scenario).map(|crowd| Flash {
                clients: Share(crowd.share),
                urls: crowd.documents,
                ..Flash::default()
            }),
            ..Workload::default()
        },
        policy: Policy { name: strategy.policy.name.to_owned(), parameters: BTreeMap::new() },
        cache: Cache { memory: Size(setup.memory), ..Cache::default() },
        network: NetworkModel {
            segment: 1460,
            initial_window: 10,
            window: 1000,
            ..NetworkModel::default()
        },
        measure: Measure {
            warm_up: Time(length - args.step),
            // The last requests have time to finish.
            duration: Some(Time(length + LIMIT)),
            requests: Some(u64::MAX),
            ..Measure::default()
        },
        ..Scenario::default()
    }
}

const TRACE: &str = "replayed";
