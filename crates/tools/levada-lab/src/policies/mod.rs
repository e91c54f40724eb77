//! `levada lab policies`: policies compared in real processes.
//!
//! [`run`] is the lab from top to bottom: for every scenario and policy a cluster is started from
//! empty, and the scenario's load is offered to it.

mod cluster;
mod period;
mod predict;
mod report;
mod scenario;
mod table;

use std::time::Duration;

use anyhow::ensure;
use levada_client::command::CommandStatus;
use levada_testbed::{
    cluster::until_interrupted,
    emulation::{open_load::Load, requests::Documents, strategy::Strategy},
};

use self::{
    cluster::{ClusterHosts, NodeSpec},
    period::LIMIT,
    scenario::ScenarioOutcome,
};

use crate::args::policies::{PoliciesArgs, PoliciesScenario};

/// The checked options.
struct PoliciesSetup {
    strategies: Vec<Strategy>,
    documents: Documents,
    /// Capacity of a node's memory, in bytes.
    memory: u64,
}

/// A policy in a scenario.
struct PolicyRow {
    scenario: PoliciesScenario,
    policy: &'static str,
    outcome: ScenarioOutcome,
    /// The figures of the simulator.
    predicted: Figures,
}

/// The figures that are compared with the simulator.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// The highest rate of a ramp that was carried; `None` for other scenarios, and if not even the first
    /// was.
    capacity: Option<f64>,
    /// The lowest and the highest capacity of several plays; 0 if not even the first rate was carried.
    range: Option<(f64, f64)>,
    /// At this rate, or in the measured time, the part of the requests found in memory.
    hit_ratio: f64,
    /// The 95th percentile of the latency there, in seconds.
    p95: f64,
}

/// Measures every policy in every scenario.
///
/// # Errors
/// If an option is invalid, or the network or a process cannot be started.
pub(super) fn run(args: &PoliciesArgs) -> anyhow::Result<CommandStatus> {
    let setup = PoliciesSetup::new(args)?;
    let hosts = ClusterHosts::new(args)?;
    let mut report = report::begin(args, &setup)?;
    let mut rows = Vec::new();
    for scenario in args.scenario.iter().copied() {
        for strategy in &setup.strategies {
            let predicted = predict::predict(args, &setup, scenario, strategy)?;
            let Some(outcome) = one(args, &setup, &hosts, scenario, strategy)? else {
                return Ok(CommandStatus::ProblemsFound);
            };
            let row = PolicyRow { scenario, policy: strategy.policy.name, outcome, predicted };
            report::row(&mut report, &row)?;
            rows.push(row);
        }
    }
    if args.table {
        table::print(&rows)?;
    }
    report::end(report, &rows)
}

/// One measurement; `None` when it was interrupted.
fn one(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    hosts: &ClusterHosts,
    scenario: PoliciesScenario,
    strategy: &Strategy,
) -> anyhow::Result<Option<ScenarioOutcome>> {
    let policy = strategy.table(1.0);
    let spec = NodeSpec {
        policy: &policy,
        disks: scenario::disks(scenario, args.nodes),
        tries: scenario::tries(scenario),
        memory: setup.memory,
    };
    // This thread makes all its connections on the hub.
    until_interrupted(Some(&hosts.hub), async || {
        let mut cluster = hosts.start(&spec).await?;
        let load = Load::new(&setup.documents, &cluster.fronts, args.seed.into());
        scenario::play(scenario, args, load, (hosts, &mut cluster)).await
    })
}

impl PoliciesSetup {
    fn new(args: &PoliciesArgs) -> anyhow::Result<Self> {
        ensure!(args.step >= LIMIT, "--step: a step must be as long as the limit, {LIMIT:?}");
        ensure!(args.duration >= SHORTEST, "--duration: at least {SHORTEST:?} must be measured");
        let strategies = args.policy.iter().map(|name| Ok(Strategy::named(name)?.of_several()));
        let documents = Documents::new(DOCUMENTS, args.seed.into());
        Ok(Self {
            strategies: strategies.collect::<anyhow::Result<_>>()?,
            memory: documents.bytes() / MEMORY_PART,
            documents,
        })
    }
}

/// Documents of the trace.
const DOCUMENTS: usize = 2_000;
/// The part of all documents that a node's memory holds is one in this many.
const MEMORY_PART: u64 = 16;
const SHORTEST: Duration = Duration::from_secs(1);
