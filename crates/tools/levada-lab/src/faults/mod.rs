//! `levada lab faults`: faults of processes, links, disks, clients and origins under load.
//!
//! [`run`] is the lab from top to bottom: for every fault a cluster is started from empty, loaded and
//! disturbed at the same time, and judged by the fault's limits.
//!
//! ```text
//! register              all faults and their limits
//! processes, links,     the disturbances
//!   disks, clocks,
//!   hostile, many, logs,
//!   lies, slow_disk
//! cluster, network      the nodes, and their hosts where links matter
//! liar                  the origin that lies; the other one is in [`levada_testbed::cluster`]
//! load, client, tally   the requests, and how they are judged
//! purging               changes at the origin, and their purges
//! ```

mod client;
mod clocks;
mod cluster;
mod disks;
mod door;
mod hostile;
mod liar;
mod lies;
mod links;
mod load;
mod logs;
mod many;
mod memory;
mod network;
mod processes;
mod purging;
mod register;
mod report;
mod slow_disk;
mod stage;
mod tally;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use anyhow::bail;
use levada_client::command::CommandStatus;
use levada_net::lab::file_system::HeldBack;
use levada_testbed::cluster::{chosen, objects::Objects, origin, until_interrupted};
use levada_types::Rng;
use tokio::{
    task::spawn_local,
    time::{Instant, sleep},
};

use self::{
    cluster::{Cluster, ClusterSpec, LOOPBACK},
    load::Load,
    network::FaultHosts,
    purging::Purger,
    register::Fault,
    stage::Stage,
    tally::Tally,
};

use crate::args::faults::FaultsArgs;

/// The results of a row.
struct FaultOutcome {
    tally: Tally,
    /// The highest resident memory of a node, in bytes.
    memory: u64,
    /// The processor time of all nodes.
    cpu: Duration,
    /// The time from the end of an attack until all was as before, where that is measured.
    recovery: Option<Duration>,
    /// The most requests of all nodes that the origin had at the same time.
    at_origin: usize,
    purges: usize,
    confirmed: usize,
    /// The value of the metric that counts what the nodes noticed.
    noticed: Option<f64>,
    /// Nodes that ended by themselves.
    lost: Vec<String>,
}

/// Disturbs clusters by all chosen faults.
///
/// # Errors
/// If there is no such fault, or a network or a process cannot be started.
pub(super) fn run(args: &FaultsArgs) -> anyhow::Result<CommandStatus> {
    let chosen = chosen(&args.only, ("fault", register::FAULTS), |fault| fault.name)?;
    // Both ends of all connections; without the right to it, fewer hostile connections are open.
    let _ = levada_net::lab::allow_files(FILES);
    let mut report = report::begin(args)?;
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for fault in chosen {
        match fault.possible() {
            Ok(()) => {}
            Err(why) if args.only.is_empty() => {
                notes.push(format!("{} was left out: {why}", fault.name));
                continue;
            }
            Err(why) => bail!("{}: {why}", fault.name),
        }
        let Some(outcome) = one(args, fault)? else { return Ok(CommandStatus::ProblemsFound) };
        report::row(&mut report, fault, &outcome)?;
        rows.push((fault, outcome));
    }
    report::end(report, &rows, notes)
}

/// One fault; `None` when it was interrupted.
fn one(args: &FaultsArgs, fault: &Fault) -> anyhow::Result<Option<FaultOutcome>> {
    let hosts = fault.hosts.then(|| FaultHosts::new(args.seed.into())).transpose()?;
    let hosts = hosts.as_ref();
    // This thread makes all its connections on the hub.
    until_interrupted(hosts.map(|hosts| &hosts.hub), || play(args, fault, hosts))
}

/// Starts a cluster, and loads and disturbs it for the length of the row.
async fn play(
    args: &FaultsArgs,
    fault: &Fault,
    hosts: Option<&FaultHosts>,
) -> anyhow::Result<FaultOutcome> {
    let length = args.duration.unwrap_or(fault.length);
    let address = hosts.map_or(LOOPBACK, |_| network::hub());
    let held_back = fault.slow_disk.then(HeldBack::new).transpose()?;
    let objects = Rc::new(Objects::default());
    let (origin, asked) = origin::start(address, objects.clone()).await?;
    let liar = liar::start(address).await?;
    let token = format!("{:032x}", u64::from(std::process::id()) << 32 | u64::from(args.seed));
    let spec = ClusterSpec {
        small_disk: fault.small_disk,
        held_back: held_back.as_ref(),
        unread_log: fault.unread_log,
        own_clocks: fault.own_clocks,
        places: (fault.few_places && length < stage::LONG).then_some(FEW),
        hosts,
        origin,
        liar,
        token: &token,
    };
    let mut cluster = Cluster::start(&spec).await?;

    let (doors, highest) = (cluster.doors.clone(), Rc::new(Cell::new(0)));
    let watch = spawn_local(memory::watch(doors.clone(), highest.clone()));
    let tally = Rc::new(RefCell::new(Tally::default()));
    let [of_load, of_purges, of_fault] =
        [1, 2, 3].map(|part| Rng::new(u64::from(args.seed) << 8 | part));
    let begin = Instant::now();
    let end = begin + length;
    let load = Load { objects: objects.clone(), doors: doors.clone(), tally: tally.clone() };
    let purger = Rc::new(Purger { objects: objects.clone(), doors, token: token.as_str().into() });
    let rng = RefCell::new(of_fault);
    let recovery = Cell::default();
    let stage = Stage { begin, end, rng, objects: &objects, tally: &tally, recovery };
    let (struck, (), (purges, confirmed)) = tokio::join!(
        (fault.strike)(&mut cluster, &stage),
        load.offer(args.rate.into(), end, of_load),
        purger.run(end, of_purges),
    );
    struck?;
    // The highest memory is seen once more.
    sleep(AFTERWARDS).await;
    watch.abort();
    let lost = cluster.lost().await;
    let noticed = match fault.noticed {
        Some(metric) => Some(cluster.metric(metric).await),
        None => None,
    };
    Ok(FaultOutcome {
        tally: tally.take(),
        memory: highest.get(),
        cpu: cluster.cpu(),
        recovery: stage.recovery.get(),
        at_origin: asked.most(),
        purges,
        confirmed,
        noticed,
        lost,
    })
}

impl FaultOutcome {
    /// The limits that do not hold, as sentences.
    fn exceeded(&self, fault: &Fault) -> Vec<String> {
        let mut exceeded = fault.exceeded(&self.tally, self.memory);
        exceeded.extend(self.lost.iter().cloned());
        exceeded
    }
}

/// Open files of this process and its nodes.
const FILES: u64 = 20_000;
/// Places at the origin where an attack has few clients.
const FEW: usize = 16;
const AFTERWARDS: Duration = Duration::from_millis(200);
