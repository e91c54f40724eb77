//! The simulator's prediction for the emulated cluster: the world of `levada sim paper lard`, with
//! this trace, these memories and these machines.

use std::{collections::BTreeMap, ops::ControlFlow};

use levada_sim::{
    Arrivals, Cache, Library, Measure, Metric, NetworkModel, Policy, Scalar, Scenario, Servers,
    Size, Time, TopologyChoice, Workload, prototype::Measured,
};

use super::LardSetup;
use crate::{args::lard::LardArgs, emulation::strategy::Strategy};

/// Plays the trace in virtual time.
///
/// # Errors
/// If a parameter is wrong.
pub(super) fn predict(
    args: &LardArgs,
    setup: &LardSetup,
    nodes: usize,
    strategy: &Strategy,
) -> anyhow::Result<Measured> {
    let mut library = Library::without_files();
    library.keep(TRACE, setup.replay.trace.clone());
    let prepared = scenario(args, setup, nodes, strategy).prepare(&mut library)?;
    let outcome = levada_sim::run(&prepared, &mut |_| ControlFlow::Continue(()));
    let reading = |metric| outcome.reading(metric).unwrap_or(0.0);
    Ok(Measured {
        throughput: reading(Metric::Throughput),
        hit_ratio: reading(Metric::HitRatio),
        idle: reading(Metric::Idle),
        ..Measured::default()
    })
}

/// Front-end and networks cost nothing (Sec. 3.1).
fn scenario(args: &LardArgs, setup: &LardSetup, nodes: usize, strategy: &Strategy) -> Scenario {
    let microsecond = || Scalar::Text("1us".to_owned());
    let fast = || Scalar::Number(1e6);
    let network = [
        ("server_latency", microsecond()),
        ("client_latency", microsecond()),
        ("server_mbps", fast()),
        ("client_mbps", fast()),
    ];
    Scenario {
        seed: args.prototype.seed.into(),
        topology: TopologyChoice {
            name: "lan_cluster".to_owned(),
            file: None,
            parameters: BTreeMap::from(network.map(|(name, value)| (name.to_owned(), value))),
        },
        servers: Servers {
            count: nodes,
            cpu: args.prototype.machine.cpu,
            disk: args.prototype.machine.disk,
            // As many active requests as clients could send.
            active: 10_000,
            ..Servers::default()
        },
        workload: Workload {
            trace: TRACE.to_owned(),
            arrivals: Arrivals::Closed,
            outstanding: Some(setup.outstanding(nodes) as u32),
            repeat: Some(true),
            ..Workload::default()
        },
        policy: Policy { name: strategy.policy.name.to_owned(), parameters: BTreeMap::new() },
        cache: Cache {
            memory: Size(setup.memory),
            eviction: args.prototype.machine.eviction.name.to_owned(),
            ..Cache::default()
        },
        network: NetworkModel {
            segment: 1460,
            initial_window: 1_000_000,
            window: 1_000_000,
            ..NetworkModel::default()
        },
        measure: Measure {
            warm_up: Time(setup.window.warm_up),
            duration: Some(Time(setup.window.warm_up + setup.window.measure)),
            // The trace starts again at its end, so that only the time ends the run.
            requests: Some(u64::MAX),
            ..Measure::default()
        },
        ..Scenario::default()
    }
}

const TRACE: &str = "replayed";
