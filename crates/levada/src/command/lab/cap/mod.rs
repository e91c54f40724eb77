//! `levada lab cap`: WWW10's prototype over real sockets, beside the simulation of the same cluster.
//!
//! [`run`] is the lab from top to bottom. For every mix, number of clients and policy the plan is played
//! in virtual time; then the same cluster is started as processes, and clients who think between pages
//! use it.

mod load;
mod report;

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use levada_sim::{
    machine::Hardware,
    prototype::{Habits, Measured, Plan, Site, play},
};
use levada_types::ServiceClass;

use super::{
    cap_args::{CapArgs, MixName},
    emulation::{
        cluster::{Cluster, Spec},
        run::{self, Run, Window},
        strategy::Strategy,
    },
};
use crate::command::Verdict;

/// One measurement and its prediction.
struct Row {
    mix: MixName,
    clients: usize,
    policy: &'static str,
    run: Run,
    predicted: Measured,
}

/// What is asked for, checked.
struct Setup {
    mixes: Vec<(MixName, Arc<Site>)>,
    clients: Vec<usize>,
    strategies: Vec<Strategy>,
    /// In emulated time.
    window: Window,
}

/// Measures every policy with every mix and number of clients.
///
/// # Errors
/// When an option cannot be met, or processes cannot be started.
pub(super) fn run(args: &CapArgs) -> anyhow::Result<Verdict> {
    let setup = Setup::new(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut report = report::begin(args, &setup)?;
    let mut rows = Vec::new();
    for (mix, site) in &setup.mixes {
        for clients in setup.clients.iter().copied() {
            let plan = setup.plan(args, site, clients);
            for strategy in &setup.strategies {
                let predicted = play(&plan, strategy.build()?);
                let spec = Spec {
                    backends: plan.servers,
                    options: options(args, site),
                    policy: strategy.table(args.time_scale),
                    at_once: clients,
                    site: classes(site),
                    seed: args.seed.into(),
                };
                let start = |cluster: &_| load::start(&plan, args.time_scale, cluster);
                let window = setup.window.scaled(args.time_scale);
                let running = run::run(Cluster::start(&spec), window, start);
                let Some(run) = runtime.block_on(running)? else { return Ok(Verdict::FoundWrong) };
                let row = Row { mix: *mix, clients, policy: strategy.policy.name, run, predicted };
                report::row(&mut report, &row)?;
                rows.push(row);
            }
        }
    }
    report::end(report, &rows)
}

impl Setup {
    fn new(args: &CapArgs) -> anyhow::Result<Self> {
        let (mixes, clients, policies, warm_up, measure) = match args.quick {
            true => {
                let policies = vec!["cap".to_owned(), "lard".to_owned()];
                let (warm_up, measure) = (Duration::from_secs(10), Duration::from_secs(40));
                (vec![MixName::Intensive], vec![240], policies, warm_up, measure)
            }
            false => {
                let (warm_up, measure) = (args.warm_up.0, args.duration.0);
                let policies = args.policy.clone();
                (args.mix.clone(), args.clients.clone(), policies, warm_up, measure)
            }
        };
        ensure!(measure >= SHORTEST, "--duration: at least {SHORTEST:?} must be measured");
        let strategies = policies.iter().map(|name| strategy(name));
        let strategies = strategies.collect::<anyhow::Result<Vec<_>>>()?;
        let (files, seed) = (args.files as usize, args.seed.into());
        let site = |mix: MixName| match mix {
            MixName::Static => Site::files(files, seed),
            MixName::Light => Site::light(files, seed),
            MixName::Intensive => Site::intensive(files, seed),
        };
        Ok(Self {
            mixes: mixes.into_iter().map(|mix| (mix, Arc::new(site(mix)))).collect(),
            clients: clients.into_iter().map(usize::from).collect(),
            strategies,
            window: Window { warm_up, measure, sample: GATHER },
        })
    }

    fn plan(&self, args: &CapArgs, site: &Arc<Site>, clients: usize) -> Plan {
        let Window { warm_up, measure, sample } = self.window;
        let (cpu, disk) = (args.machine.cpu, args.machine.disk);
        Plan {
            servers: args.servers.into(),
            hardware: Hardware { cpu, disk, ..Hardware::default() },
            memory: args.memory.0,
            eviction: args.machine.eviction,
            clients,
            habits: Habits::default(),
            site: site.clone(),
            warm_up,
            measure,
            sample,
            seed: args.seed.into(),
        }
    }
}

/// WRR goes by active connections, gathered as often as in the prototype (Sec. 5.1).
fn strategy(name: &str) -> anyhow::Result<Strategy> {
    let strategy = Strategy::named(name)?;
    Ok(match name {
        "weighted_round_robin" => {
            strategy.with("weights", "active_connections").with("refresh", "10s")
        }
        _ => strategy,
    })
}

fn options(args: &CapArgs, site: &Site) -> Vec<String> {
    let mut options = vec![format!("--memory={}B", args.memory.0)];
    options.push(format!("--time-scale={}", args.time_scale));
    options.extend(args.machine.options());
    let service = |service: &levada_sim::prototype::Service| {
        let (cpu, disk) = (service.cpu.as_millis(), service.disk.as_millis());
        format!("--service={}={cpu}ms+{disk}ms", service.name)
    };
    options.extend(site.services().iter().map(service));
    options
}

/// The rules by which the switch tells classes apart, as an operator would write them.
fn classes(site: &Site) -> String {
    let dear = site.services().iter().filter(|service| service.class != ServiceClass::Normal);
    let rule = |service: &levada_sim::prototype::Service| {
        let (class, name) = (service.class.as_str(), service.name);
        format!("[[site.class]]\nclass = \"{class}\"\nprefix = \"/service/{name}/\"\n")
    };
    dear.map(rule).collect()
}

/// Load is gathered every 10 s in the prototype (Sec. 5.1), and utilisations here.
const GATHER: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_millis(100);
