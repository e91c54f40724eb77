//! `levada status`: the state of a running node, or of its cluster, on one screen.

use std::io::Write as _;

use clap::Args;
use levada_client::command::{CommandStatus, admin_client, block_on, output};
use levada_control::status::{
    ClusterNode, NodeStatus,
    text::{cluster, is_well, one},
};
use levada_fleet::FleetStatus;
use levada_types::AdminAddress;
use serde::de::DeserializeOwned;

use super::{
    admin::{ANSWER_TIMEOUT, AdminArgs, USUAL_ADMIN},
    configuration, default_config,
};

/// Shows the state of a running node, or of its cluster, on one screen.
///
/// Without --config and --admin it asks the node of levada.toml or /etc/levada/levada.toml, or the one at
/// 127.0.0.1:9180.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    node: AdminArgs,
    /// Shows all nodes of the cluster. The node asks its peers, as it does for purges.
    #[arg(long)]
    cluster: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Asks the node, and prints.
///
/// # Errors
/// If the configuration has no admin address.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<CommandStatus> {
    if args.cluster {
        let Some(nodes) = ask::<Vec<ClusterNode>>(&args.node, "/cluster")? else {
            return Ok(CommandStatus::ProblemsFound);
        };
        let well = nodes.iter().all(|node| node.status.as_ref().is_some_and(is_well));
        output::print(args.json, &nodes, |out| cluster(out, &nodes))?;
        return Ok(exit(well));
    }
    let Some(node) = ask::<NodeStatus>(&args.node, "/status")? else {
        return Ok(CommandStatus::ProblemsFound);
    };
    let fleet = if args.json { None } else { ask_quietly::<FleetStatus>(&args.node, "/fleet")? };
    output::print(args.json, &node, |out| {
        one(out, &node)?;
        fleet.iter().try_for_each(|fleet| writeln!(out, "{fleet}"))
    })?;
    Ok(exit(is_well(&node)))
}

fn exit(well: bool) -> CommandStatus {
    if well { CommandStatus::Success } else { CommandStatus::Exit(NOT_WELL) }
}

/// The exit code if a node is not ready, or a server is down.
const NOT_WELL: u8 = 3;

/// A page that not every node has.
fn ask_quietly<T: DeserializeOwned>(node: &AdminArgs, page: &str) -> anyhow::Result<Option<T>> {
    let asked = |admin| block_on(admin_client::get(admin, page, ANSWER_TIMEOUT)).ok()?.ok();
    let answer = addresses(node)?.into_iter().find_map(asked);
    Ok(answer.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// The page of the first node that answers; `None` if none does, which is said.
fn ask<T: DeserializeOwned>(node: &AdminArgs, page: &str) -> anyhow::Result<Option<T>> {
    let mut tried = Vec::new();
    for admin in addresses(node)? {
        let answer = block_on(admin_client::get(&admin, page, ANSWER_TIMEOUT))?;
        match answer.and_then(|text| Ok(serde_json::from_slice(&text)?)) {
            Ok(state) => return Ok(Some(state)),
            Err(error) => tried.push(format!("{admin}: {error:#}")),
        }
    }
    eprintln!("levada: no node answers; tried:\n  {}", tried.join("\n  "));
    eprintln!("name one with --admin ADDRESS or --config FILE");
    Ok(None)
}

/// The admin addresses that are tried, in their order.
pub(super) fn addresses(node: &AdminArgs) -> anyhow::Result<Vec<AdminAddress>> {
    if node.is_named() {
        return Ok(vec![node.address()?]);
    }
    let files = default_config::existing();
    let known = files.filter_map(|file| configuration::load(&file).ok()?.admin);
    Ok(known.chain([USUAL_ADMIN.into()]).collect())
}

const EXAMPLES: &str = "\
Examples:
  levada status
  levada status --admin 127.0.0.1:9180
  levada status --cluster -c levada.toml
  levada status --json | jq .now.hit_ratio

Exit codes:
  0  the node is ready, every node and server that it knows is up, and no certificate ends soon
  1  no node answers
  2  the configuration cannot be read
  3  a node is not ready, a node or server is down, or a certificate ends soon";
