//! The simulator's prediction of a ramp's capacity: the highest of the same rates at which the same
//! cluster, documents and policy keep the 95th percentile below the limit.

use std::{collections::BTreeMap, ops::ControlFlow};

use levada_sim::{
    Arrivals, Cache, Flash, Library, Measure, Metric, NetworkModel, Policy, Scalar, Scenario,
    Servers, Share, Size, Time, TopologyChoice, Workload,
};

use super::{PoliciesSetup, cluster::FRONTS, load::LIMIT, scenario};
use crate::{
    emulation::strategy::Strategy,
    policies_args::{PoliciesArgs, PoliciesScenario},
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
    let mut carried = 0.0;
    for rate in scenario::rates(args.from) {
        let at_rate = cluster(args, setup, scenario, strategy, rate);
        let outcome =
            levada_sim::run(&at_rate.prepare(&mut library)?, &mut |_| ControlFlow::Continue(()));
        let p95 = outcome.reading(Metric::LatencyP95);
        if p95.is_none_or(|seconds| seconds >= LIMIT.as_secs_f64()) {
            break;
        }
        carried = rate;
    }
    Ok(Some(carried))
}

/// The cluster under a constant rate. Processors, front-ends and the Ethernet cost nothing.
fn cluster(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
    rate: f64,
) -> Scenario {
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
            rate,
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
            warm_up: Time(args.warm_up),
            duration: Some(Time(args.warm_up + args.step * MEASURED)),
            requests: Some(u64::MAX),
            ..Measure::default()
        },
        ..Scenario::default()
    }
}

/// How many steps are simulated at each rate.
const MEASURED: u32 = 8;
const TRACE: &str = "replayed";
