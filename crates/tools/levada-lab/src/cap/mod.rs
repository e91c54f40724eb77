//! `levada lab cap`: WWW10's prototype over real sockets, next to the simulation of the same cluster.
//!
//! [`run`] is the lab from top to bottom. For every mix, number of clients and policy the plan is played
//! in virtual time; then the same cluster is started as processes, and clients who think between pages
//! use it.

mod load;
mod report;

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use levada_client::command::CommandStatus;
use levada_sim::{
    machine::Hardware,
    prototype::{Habits, Measured, Plan, Site, play},
};
use levada_testbed::emulation::{
    cluster::Spec,
    run::{self, Run, Window},
    strategy::Strategy,
};
use levada_types::ServiceClass;

use super::args::cap::{CapArgs, MixName};

/// Measurements and their predictions.
struct CapRow {
    mix: MixName,
    clients: usize,
    policy: &'static str,
    /// The mean of all.
    run: Run,
    predicted: Measured,
    /// For each seed, the measured and the simulated throughput.
    each: Vec<[f64; 2]>,
}

/// The checked options.
struct CapSetup {
    mixes: Vec<MixName>,
    seeds: Vec<u64>,
    clients: Vec<usize>,
    strategies: Vec<Strategy>,
    /// Times in emulated time.
    window: Window,
}

/// Measures every policy with every mix and number of clients.
///
/// # Errors
/// If an option is invalid, or processes cannot be started.
pub(super) fn run(args: &CapArgs) -> anyhow::Result<CommandStatus> {
    let setup = CapSetup::new(args)?;
    let mut report = report::begin(args, &setup)?;
    let mut rows = Vec::new();
    for mix in setup.mixes.iter().copied() {
        for clients in setup.clients.iter().copied() {
            for strategy in &setup.strategies {
                let mut all = Vec::new();
                for seed in setup.seeds.iter().copied() {
                    match one(args, &setup, (mix, clients, seed), strategy)? {
                        Some(one) => all.push(one),
                        None => return Ok(CommandStatus::ProblemsFound),
                    }
                }
                let row = CapRow::of(mix, clients, strategy, all);
                report::row(&mut report, &row)?;
                rows.push(row);
            }
        }
    }
    report::end(args, report, &rows)
}

/// One measurement and its prediction; `None` when it was interrupted.
fn one(
    args: &CapArgs,
    setup: &CapSetup,
    (mix, clients, seed): (MixName, usize, u64),
    strategy: &Strategy,
) -> anyhow::Result<Option<(Run, Measured)>> {
    let common = &args.prototype;
    let site = Arc::new(site(args, mix, seed));
    let plan = setup.plan(args, &site, clients, seed);
    let predicted = play(&plan, strategy.build()?);
    let spec = Spec {
        backends: plan.servers,
        options: options(args, &site),
        policy: strategy.table(common.time_scale),
        at_once: clients,
        site: classes(&site),
        seed,
    };
    let start = |cluster: &_| load::start(&plan, common.time_scale, common.asks_once(), cluster);
    let window = setup.window.scaled(common.time_scale);
    let run = run::measure(common.transport, &spec, window, start)?;
    Ok(run.map(|run| (run, predicted)))
}

impl CapRow {
    fn of(mix: MixName, clients: usize, strategy: &Strategy, all: Vec<(Run, Measured)>) -> Self {
        let each =
            |(run, predicted): &(Run, Measured)| [run.measured.throughput, predicted.throughput];
        let each = all.iter().map(each).collect();
        let (runs, predicted): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let (run, predicted) = (Run::mean(&runs), run::mean_of(predicted.iter()));
        Self { mix, clients, policy: strategy.policy.name, run, predicted, each }
    }
}

/// The plan of the options.
fn site(args: &CapArgs, mix: MixName, seed: u64) -> Site {
    let files = args.files as usize;
    match mix {
        MixName::Static => Site::files(files, seed),
        MixName::Light => Site::light(files, seed),
        MixName::Intensive => Site::intensive(files, seed),
    }
}

impl CapSetup {
    fn new(args: &CapArgs) -> anyhow::Result<Self> {
        let common = &args.prototype;
        let (mixes, clients, policies, warm_up, measure, seeds) = match args.quick {
            true => {
                let policies = vec!["cap".to_owned(), "lard".to_owned()];
                let (warm_up, measure) = (Duration::from_secs(10), Duration::from_secs(40));
                (vec![MixName::Intensive], vec![240], policies, warm_up, measure, 1)
            }
            false => {
                let (warm_up, measure) = (common.warm_up, common.duration);
                let policies = common.policy.clone();
                (args.mix.clone(), args.clients.clone(), policies, warm_up, measure, args.seeds)
            }
        };
        ensure!(measure >= SHORTEST, "--duration: at least {SHORTEST:?} must be measured");
        let strategies = policies.iter().map(|name| strategy(name));
        let strategies = strategies.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self {
            mixes,
            seeds: (args.prototype.seed.into()..).take(seeds.into()).collect(),
            clients: clients.into_iter().map(usize::from).collect(),
            strategies,
            window: Window { warm_up, measure, sample: GATHER },
        })
    }

    fn plan(&self, args: &CapArgs, site: &Arc<Site>, clients: usize, seed: u64) -> Plan {
        let machine = &args.prototype.machine;
        let Window { warm_up, measure, sample } = self.window;
        let (cpu, disk) = (machine.cpu, machine.disk);
        Plan {
            servers: args.servers.into(),
            hardware: Hardware { cpu, disk, ..Hardware::default() },
            memory: args.memory.0,
            eviction: machine.eviction,
            clients,
            habits: Habits::default(),
            site: site.clone(),
            warm_up,
            measure,
            sample,
            seed,
        }
    }
}

/// WRR uses active connections, gathered as often as in the prototype (Sec. 5.1).
fn strategy(name: &str) -> anyhow::Result<Strategy> {
    let strategy = Strategy::named(name)?.as_published();
    Ok(match name {
        "weighted_round_robin" => {
            strategy.with("weights", "active_connections").with("refresh", "10s")
        }
        _ => strategy,
    })
}

fn options(args: &CapArgs, site: &Site) -> Vec<String> {
    let mut options = args.prototype.backend(args.memory.0);
    let service = |service: &levada_sim::prototype::Service| {
        let (cpu, disk) = (service.cpu.as_millis(), service.disk.as_millis());
        format!("--service={}={cpu}ms+{disk}ms", service.name)
    };
    options.extend(site.services().iter().map(service));
    options
}

/// The rules for service classes at the switch, as an operator would write them.
fn classes(site: &Site) -> String {
    let dear = site.services().iter().filter(|service| service.class != ServiceClass::Normal);
    let rule = |service: &levada_sim::prototype::Service| {
        let (class, name) = (service.class.as_str(), service.name);
        format!("[[site.class]]\nclass = \"{class}\"\nprefix = \"/service/{name}/\"\n")
    };
    dear.map(rule).collect()
}

/// The prototype gathers load every 10 s (Sec. 5.1); the lab samples utilisations as often.
const GATHER: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_millis(100);
