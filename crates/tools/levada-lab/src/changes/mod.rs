//! `levada lab changes`: changes of a running cluster under load.
//!
//! [`run`] is the lab from top to bottom: for every change a cluster is started and loaded, first without the
//! change and then with it.
//!
//! ```text
//! register           all changes: what is done, and how it is known to have taken effect
//! nodes, settings    the nodes, their configurations and certificates
//! handed             the front-end that hands connections off, and its back-ends
//! held_sockets       listening sockets that outlive the processes of a node
//! load, client       the requests, and what counts as an error of a node
//! counts, report     what is counted and printed
//! ```

mod client;
mod counts;
mod handed;
mod held_sockets;
mod load;
mod nodes;
mod register;
mod report;
mod settings;

use std::{net::Ipv4Addr, rc::Rc};

use levada_client::command::CommandStatus;
use levada_net::lab::{self, LabCluster};
use levada_testbed::cluster::{chosen, objects::Objects, origin, until_interrupted};
use levada_types::Rng;
use tokio::time::{Instant, sleep_until};

use self::{
    counts::{Counts, Phase},
    handed::BACKS,
    load::ChangeLoad,
    nodes::ChangedNodes,
    register::Change,
};

use crate::args::changes::ChangesArgs;

/// The results of a row.
struct ChangeOutcome {
    counts: Counts,
    /// How often the change was made.
    made: u32,
    /// Connections that were handed off, if there is a front-end that does it.
    handed: Option<u64>,
    /// The reason why a change did not take effect.
    failed: Option<String>,
}

/// Makes all chosen changes.
///
/// # Errors
/// If there is no such change, or a process cannot be started.
pub(super) fn run(args: &ChangesArgs) -> anyhow::Result<CommandStatus> {
    let chosen = chosen(&args.only, ("change", register::CHANGES), |change| change.name)?;
    let left_out = match args.no_handoff {
        true => Some("as --no-handoff says".to_owned()),
        false => lab::possible().err().map(|why| why.to_string()),
    };
    let mut report = report::begin(args, left_out.as_deref())?;
    let mut rows = Vec::new();
    for change in chosen {
        let Some(outcome) = one(args, change, left_out.is_none())? else {
            return Ok(CommandStatus::ProblemsFound);
        };
        report::row(&mut report, change, &outcome)?;
        rows.push((change, outcome));
    }
    report::end(report, &rows)
}

/// One change; `None` when it was interrupted. All but front-end and back-ends is on the clients' host.
fn one(
    args: &ChangesArgs,
    change: &Change,
    hands_off: bool,
) -> anyhow::Result<Option<ChangeOutcome>> {
    let hosts = hands_off.then(|| LabCluster::new(BACKS)).transpose()?;
    let hosts = hosts.as_ref();
    until_interrupted(hosts.map(|hosts| &hosts.client), || play(args, change, hosts))
}

/// Starts a cluster and loads it: to fill the caches, then to measure, then while it changes.
async fn play(
    args: &ChangesArgs,
    change: &Change,
    hosts: Option<&LabCluster>,
) -> anyhow::Result<ChangeOutcome> {
    let objects = Rc::new(Objects::default());
    let address = hosts.map_or(Ipv4Addr::LOCALHOST, |_| LabCluster::CLIENT);
    let (origin, _) = origin::start(address.into(), objects.clone()).await?;
    let mut nodes = ChangedNodes::start(origin, args.seed, change.holds_sockets, hosts).await?;
    let front = nodes.handed.as_ref().map(|handed| handed.door.clone());
    let counts = Rc::new(Counts::default());
    let begin = Instant::now();
    let [measured, changed] = [1, 2].map(|part| begin + args.duration * part / 2);
    let end = changed + args.duration;
    let load = ChangeLoad { objects, nodes: nodes.doors.clone(), front, counts: counts.clone() };
    let change = async {
        sleep_until(measured).await;
        counts.enter(Phase::Before);
        sleep_until(changed).await;
        counts.enter(Phase::During);
        let mut made = 0;
        while Instant::now() < end && change.most.is_none_or(|most| made < most) {
            if let Err(error) = (change.make)(&mut nodes, made).await {
                return (made, Some(format!("{error:#}")));
            }
            made += 1;
        }
        (made, None)
    };
    let rng = Rng::new(args.seed.into());
    let ((made, failed), ()) = tokio::join!(change, load.offer(args.rate.into(), end, rng));
    let handed = match &nodes.handed {
        Some(handed) => Some(handed.count().await?),
        None => None,
    };
    Ok(ChangeOutcome { counts: Counts::clone(&counts), made, handed, failed })
}
