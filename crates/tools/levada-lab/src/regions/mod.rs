//! `levada lab regions`: twelve real nodes in three regions that are far from each other.
//!
//! [`run`] is the lab from top to bottom: every arrangement of the nodes is started from empty and goes through all
//! phases.
//!
//! ```text
//! arrangements     how the nodes work together: one cluster with a shield, or without, or a cluster for each region
//! network, nodes   the hosts and their delays; the nodes on them
//! origin, objects  the origin, which counts requests
//! phases, load     the requests, a cut, purges
//! report           what is printed, and the limits
//! ```

mod arrangements;
mod load;
mod network;
mod nodes;
mod objects;
mod origin;
mod phases;
mod report;

use std::{cell::Cell, net::TcpListener};

use anyhow::Context as _;
use levada_client::command::CommandStatus;
use levada_testbed::cluster::{chosen, until_interrupted};
use levada_types::Rng;

use self::{
    arrangements::{ARRANGEMENTS, Arrangement},
    load::{Answers, RegionClients},
    network::{REGIONS, RegionHosts},
    nodes::{PurgeReport, RegionNodes},
    origin::Origin,
    phases::{CutAnswers, Healing, Stage},
};
use crate::args::regions::RegionsArgs;

/// The results of a row.
struct RegionsOutcome {
    /// Answers to the first requests of each region.
    cold: [Answers; REGIONS.len()],
    /// Requests at the origin for each object.
    per_object: f64,
    warm: [Answers; REGIONS.len()],
    cut: CutAnswers,
    healing: Healing,
    purge: PurgeReport,
    /// The nodes that did not answer with the new version after the purge.
    old: usize,
    /// The name of the node that was away during the second purge.
    away: String,
    purge_without: PurgeReport,
}

/// Measures all chosen arrangements.
///
/// # Errors
/// If there is no such arrangement, or a network or a process cannot be started.
pub(super) fn run(args: &RegionsArgs) -> anyhow::Result<CommandStatus> {
    let chosen = chosen(&args.only, ("arrangement", ARRANGEMENTS), |one| one.name)?;
    let mut report = report::begin(args)?;
    let mut rows = Vec::new();
    for arrangement in chosen {
        let hosts = RegionHosts::new(args.seed.into())?;
        // This thread makes all its connections on the hub.
        let outcome = until_interrupted(Some(&hosts.hub), || play(args, arrangement, &hosts))?;
        let Some(outcome) = outcome else { return Ok(CommandStatus::ProblemsFound) };
        report::row(&mut report, arrangement, &outcome)?;
        rows.push((arrangement, outcome));
    }
    report::end(report, &rows)
}

/// Starts an arrangement, and takes it through all phases.
async fn play(
    args: &RegionsArgs,
    arrangement: &Arrangement,
    hosts: &RegionHosts,
) -> anyhow::Result<RegionsOutcome> {
    let listener = hosts.origin.namespace().run(|| TcpListener::bind(network::origin()))?;
    let origin = Origin::start(listener.context("the origin cannot listen")?)?;
    let nodes = RegionNodes::start(hosts, arrangement, args.seed).await?;
    let (clients, rng) = (RegionClients::new(), Rng::new(args.seed.into()));
    let missed = Cell::default();
    Stage { args, arrangement, hosts, nodes, origin, clients, missed, rng }.play().await
}
