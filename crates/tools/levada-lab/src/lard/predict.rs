//! The simulator's prediction for the emulated cluster, with this trace, these memories and these machines.

use levada_sim::{
    Arrivals, Cache, Metric, NetworkModel, Servers, Size, Workload, prototype::Measured,
};
use levada_testbed::emulation::{
    predict::{between, cluster, play},
    strategy::Strategy,
};

use super::LardSetup;
use crate::args::lard::LardArgs;

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
    let machine = &args.prototype.machine;
    let mut scenario = cluster(args.prototype.seed.into(), strategy, []);
    scenario.servers = Servers {
        count: nodes,
        cpu: machine.cpu,
        disk: machine.disk,
        // As many active requests as clients could send.
        active: 10_000,
        ..Servers::default()
    };
    scenario.workload = Workload {
        arrivals: Arrivals::Closed,
        outstanding: Some(setup.outstanding(nodes) as u32),
        ..scenario.workload
    };
    let eviction = machine.eviction.name.to_owned();
    scenario.cache = Cache { memory: Size(setup.memory), eviction, ..Cache::default() };
    let (initial_window, window) = (1_000_000, 1_000_000);
    scenario.network = NetworkModel { initial_window, window, ..scenario.network };
    let begin = setup.window.warm_up;
    scenario.measure = between(begin, begin + setup.window.measure);
    let outcome = play(&scenario, &setup.replay.trace)?;
    let reading = |metric| outcome.reading(metric).unwrap_or(0.0);
    Ok(Measured {
        throughput: reading(Metric::Throughput),
        hit_ratio: reading(Metric::HitRatio),
        idle: reading(Metric::Idle),
        ..Measured::default()
    })
}
