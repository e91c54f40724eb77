//! The simulator's prediction for an emulated cluster: the world of `levada sim paper lard`, whose front-ends and
//! networks cost nothing (ASPLOS'98 Sec. 3.1), with a lab's trace.

use std::{collections::BTreeMap, ops::ControlFlow};

use levada_policy::ParameterValue;
use levada_sim::{
    Library, Measure, NetworkModel, Outcome, Policy, Scenario, Time, TopologyChoice, Workload,
};
use levada_trace::Trace;

use super::strategy::Strategy;

/// A cluster with this policy whose links have no limits but `network`. It replays the trace without an end.
pub fn cluster<const N: usize>(
    seed: u64,
    strategy: &Strategy,
    network: [(&str, ParameterValue); N],
) -> Scenario {
    let free = [("server_latency", "1us"), ("client_latency", "1us")];
    let free = free.map(|(name, time)| (name.to_owned(), ParameterValue::Text(time.to_owned())));
    let fast =
        ["server_mbps", "client_mbps"].map(|name| (name.to_owned(), ParameterValue::Number(1e6)));
    let network = network.map(|(name, value)| (name.to_owned(), value));
    let parameters: BTreeMap<_, _> = free.into_iter().chain(fast).chain(network).collect();
    Scenario {
        seed,
        topology: TopologyChoice { name: "lan_cluster".to_owned(), file: None, parameters },
        workload: Workload { trace: TRACE.to_owned(), repeat: Some(true), ..Workload::default() },
        policy: Policy { name: strategy.policy.name.to_owned(), parameters: strategy.set.clone() },
        network: NetworkModel { segment: 1460, ..NetworkModel::default() },
        ..Scenario::default()
    }
}

/// Measures from `warm_up` to `end`. The trace starts again at its end, so that only the time ends the run.
pub fn between(warm_up: std::time::Duration, end: std::time::Duration) -> Measure {
    Measure {
        warm_up: Time(warm_up),
        duration: Some(Time(end)),
        requests: Some(u64::MAX),
        ..Measure::default()
    }
}

/// The result of a scenario with this trace.
///
/// # Errors
/// If a parameter is wrong.
pub fn play(scenario: &Scenario, trace: &Trace) -> anyhow::Result<Outcome> {
    let mut library = Library::without_files();
    library.keep(TRACE, trace.clone());
    let prepared = scenario.prepare(&mut library)?;
    Ok(levada_sim::run(&prepared, &mut |_| ControlFlow::Continue(())))
}

const TRACE: &str = "replayed";
