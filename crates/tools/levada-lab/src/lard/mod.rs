//! `levada lab lard`: ASPLOS'98's prototype over real sockets, next to the simulation of the same cluster.
//!
//! [`run`] is the lab from top to bottom. For every cluster size and policy the simulator plays the
//! trace. Then the same cluster is started as processes, and as many clients as LARD admits replay the
//! trace without pauses.

mod load;
mod predict;
mod report;

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use levada_client::command::CommandStatus;
use levada_policy::lard_admission_limit;
use levada_sim::prototype::Measured;
use levada_testbed::emulation::{
    cluster::Spec,
    run::{self, Run, Window},
    strategy::Strategy,
};

use self::load::Replay;
use super::args::lard::LardArgs;

/// The checked options.
struct LardSetup {
    nodes: Vec<usize>,
    strategies: Vec<Strategy>,
    replay: Arc<Replay>,
    /// Capacity of a back-end's memory.
    memory: u64,
    clients: Option<u32>,
    /// Times in emulated time.
    window: Window,
}

/// One measurement and its prediction.
struct LardRow {
    nodes: usize,
    policy: &'static str,
    run: Run,
    predicted: Measured,
}

/// Measures every policy on every cluster.
///
/// # Errors
/// If an option is invalid, or processes cannot be started.
pub(super) fn run(args: &LardArgs) -> anyhow::Result<CommandStatus> {
    let (setup, common) = (LardSetup::new(args)?, &args.prototype);
    let mut report = report::begin(args, &setup)?;
    let mut rows = Vec::new();
    for nodes in setup.nodes.iter().copied() {
        for strategy in &setup.strategies {
            let predicted = predict::predict(args, &setup, nodes, strategy)?;
            let outstanding = setup.outstanding(nodes);
            let spec = Spec {
                backends: nodes,
                options: common.backend(setup.memory),
                policy: strategy.table(common.time_scale),
                at_once: outstanding,
                site: String::new(),
                seed: common.seed.into(),
            };
            let window = setup.window.scaled(common.time_scale);
            let clients =
                |cluster: &_| setup.replay.start(spec.at_once, common.asks_once(), cluster);
            let Some(run) = run::measure(common.transport, &spec, window, clients)? else {
                return Ok(CommandStatus::ProblemsFound);
            };
            let row = LardRow { nodes, policy: strategy.policy.name, run, predicted };
            report::row(&mut report, &row)?;
            rows.push(row);
        }
    }
    report::end(args, report, &rows)
}

impl LardSetup {
    fn new(args: &LardArgs) -> anyhow::Result<Self> {
        let policies = match args.quick {
            true => vec!["wrr".to_owned(), "lard/r".to_owned()],
            false => args.prototype.policy.clone(),
        };
        let strategies = policies.iter().map(|name| Ok(Strategy::named(name)?.as_published()));
        let strategies = strategies.collect::<anyhow::Result<Vec<_>>>()?;
        let (warm_up, measure) = match args.quick {
            true => (Duration::from_secs(4), Duration::from_secs(8)),
            false => (args.prototype.warm_up, args.prototype.duration),
        };
        ensure!(measure >= SHORTEST, "--duration: at least {SHORTEST:?} must be measured");
        let replay = Replay::new(args)?;
        let memory = args.memory.map_or_else(|| replay.paper_memory(), |memory| memory.0);
        ensure!(memory > 0, "--memory 0B: a back-end must have some");
        Ok(Self {
            nodes: match args.quick {
                true => vec![4],
                false => args.nodes.iter().copied().map(usize::from).collect(),
            },
            strategies,
            replay: Arc::new(replay),
            memory,
            clients: args.clients,
            window: Window { warm_up, measure, sample: measure },
        })
    }

    /// Outstanding requests: the limit of LARD's front-end (Sec. 2.3), for every policy.
    fn outstanding(&self, nodes: usize) -> usize {
        self.clients.map_or_else(|| lard_admission_limit(nodes, 25, 65), u64::from).max(1) as usize
    }
}

const SHORTEST: Duration = Duration::from_millis(100);
