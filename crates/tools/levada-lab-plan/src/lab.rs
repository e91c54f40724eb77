//! The lab from top to bottom: nodes are logged, their logs are planned from by the code of `levada plan`, and the
//! logged cluster and the planned one meet fresh requests.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use levada_cache::eviction::DEFAULT_EVICTION;
use levada_client::command::CommandStatus;
use levada_plan::{Backtest, Candidate, Figures, Row, node_configuration};
use levada_testbed::{
    cluster::until_interrupted,
    emulation::{cluster::PREFIX, open_load::Load, report::LabReport, requests::Documents},
};
use levada_types::ByteSize;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    args::PlanLabArgs,
    cluster::{PlanCluster, PlanHosts},
    measure::{Measured, measure},
    origin::Sent,
    planning, report,
};

/// The checked options.
pub(crate) struct PlanSetup {
    pub(crate) documents: Documents,
    /// The cluster that is logged.
    pub(crate) logged: Candidate,
}

/// A cluster with its predicted and its measured figures.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) candidate: Candidate,
    pub(crate) predicted: Figures,
    /// By the logs that have the measured requests, too: without the error of other requests.
    pub(crate) informed: Figures,
    pub(crate) measured: Measured,
}

/// Logs, plans, runs what was planned, and compares.
///
/// # Errors
/// If an option is invalid, or the network or a process cannot be started.
pub fn run(args: &PlanLabArgs) -> anyhow::Result<CommandStatus> {
    let setup = PlanSetup::new(args)?;
    let hosts = PlanHosts::new(args)?;
    let (kept, temporary);
    let directory = match &args.output {
        Some(output) => {
            std::fs::create_dir(output)
                .with_context(|| format!("--output: cannot create {}", output.display()))?;
            kept = std::fs::canonicalize(output)?;
            kept.as_path()
        }
        None => {
            temporary = TempDir::with_prefix(PREFIX)?;
            temporary.path()
        }
    };
    let mut report = report::begin(args, &setup)?;
    // This thread makes all its connections on the hub.
    let played =
        until_interrupted(Some(&hosts.hub), || play(args, &setup, &hosts, directory, &mut report))?;
    let Some((outcomes, backtest)) = played else { return Ok(CommandStatus::ProblemsFound) };
    report::end(report, &outcomes, backtest.as_ref())
}

/// All phases. Each cluster's figures are printed as soon as they are measured.
async fn play(
    args: &PlanLabArgs,
    setup: &PlanSetup,
    hosts: &PlanHosts,
    directory: &Path,
    report: &mut LabReport,
) -> anyhow::Result<(Vec<Outcome>, Option<Backtest>)> {
    let sent = hosts.origin(args.origin_latency)?;
    let logged = &setup.logged;
    let texts = (1..=logged.nodes).map(|number| node_configuration(logged, number));
    let nodes = hosts.start(&texts.collect::<Vec<_>>()).await?;
    let mut load = Load::new(&setup.documents, &nodes.clients(), args.seed.into());
    load.offer(args.phase()).await;
    sleep(LOG_DELAY).await;
    let logs = nodes.copy(directory)?;
    let (same, planned) = planning::plans(logged, &logs, &nodes.admins(), directory).await?;
    let logged = fresh("logged", same.answer.row, (args, &sent), nodes, load, directory).await?;
    report::cluster(report, &logged)?;

    let row = planned.answer.row;
    let texts = planning::configurations(directory, row.candidate.nodes)?;
    let nodes = hosts.start(&texts).await?;
    let mut load = Load::new(&setup.documents, &nodes.clients(), u64::from(args.seed) + 1);
    load.offer(args.phase()).await;
    let planned = fresh("planned", row, (args, &sent), nodes, load, directory).await?;
    report::cluster(report, &planned)?;
    Ok((vec![logged, planned], same.backtest))
}

/// Measures a cluster under fresh requests, and ends it.
async fn fresh(
    name: &'static str,
    row: Row,
    (args, sent): (&PlanLabArgs, &Sent),
    nodes: PlanCluster,
    mut load: Load<'_>,
    directory: &Path,
) -> anyhow::Result<Outcome> {
    let measured = measure(args, &nodes, &mut load, sent).await?;
    let directory = directory.join(format!("{name}-fresh"));
    std::fs::create_dir(&directory)?;
    sleep(LOG_DELAY).await;
    let logs = nodes.copy(&directory)?;
    // The second half of these logs is measured, as in every short log: the fresh requests.
    let informed = planning::of_cluster(&row.candidate, &logs, &nodes.admins()).await?;
    nodes.stop().await;
    Ok(Outcome {
        name,
        candidate: row.candidate,
        predicted: row.figures,
        informed: informed.answer.row.figures,
        measured,
    })
}

impl PlanSetup {
    fn new(args: &PlanLabArgs) -> anyhow::Result<Self> {
        let requests = args.rate * args.duration.as_secs_f64();
        ensure!(
            requests >= LEAST_REQUESTS,
            "--duration: {requests:.0} requests are too few to plan from; {:.0} s at this rate are enough",
            LEAST_REQUESTS / args.rate
        );
        let documents = Documents::new(args.documents as usize, args.seed.into());
        let sixteenth = documents.bytes() / MEMORY_PART;
        let memory = args.memory.map_or(sixteenth.max(LEAST_MEMORY), |memory| memory.0);
        ensure!(
            memory >= LEAST_MEMORY,
            "--memory: a node needs at least {}",
            ByteSize(LEAST_MEMORY)
        );
        let logged = Candidate {
            nodes: args.nodes.into(),
            // As a configuration states it, in tenths.
            memory: memory / EXACT * EXACT,
            disk: 0,
            policy: POLICY.to_owned(),
            eviction: DEFAULT_EVICTION.name,
        };
        Ok(Self { documents, logged })
    }
}

/// Multiples of this are written exactly.
const EXACT: u64 = 512 << 10;
const POLICY: &str = "adaptive";
/// The part of all documents that a node's memory holds is one in this many.
const MEMORY_PART: u64 = 16;
/// Nodes take no less.
const LEAST_MEMORY: u64 = 1 << 20;
/// Fewest requests of a phase. A node must have handled 1,000 before it tells its costs.
const LEAST_REQUESTS: f64 = 1000.0;
/// Longer than a node takes to write a line of its log.
const LOG_DELAY: Duration = Duration::from_secs(2);
