//! `levada fleet status` and `history`: the nodes, the revisions, the orders.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, UNIX_EPOCH},
};

use clap::Args;
use levada_client::command::{CommandStatus, output};
use levada_fleet::{
    model::{Alive, AuditEntry, Manifest},
    state::{Followed, age},
};
use serde::Serialize;

use crate::access::Access;

/// Shows the nodes: who uses which revision, who is behind, who is away.
#[derive(Args, Debug)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Shows the revisions, and who did what, when, and from where.
#[derive(Args, Debug)]
#[command(after_help = HISTORY_EXAMPLES)]
pub(crate) struct HistoryArgs {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Status {
    fleet: String,
    head: u64,
    rollout: Option<u64>,
    nodes: Vec<NodeLine>,
}

#[derive(Serialize)]
struct NodeLine {
    name: String,
    region: Option<String>,
    address: String,
    drained: bool,
    /// `None` for a node that is away.
    alive: Option<Alive>,
}

/// Shows the nodes.
///
/// # Errors
/// If the state cannot be reached or refuses.
pub(crate) async fn status(args: &StatusArgs, access: &Access) -> anyhow::Result<CommandStatus> {
    let (token, state) = access.open()?;
    let (followed, (_, alive)) = (state.followed().await?, state.alive().await?);
    let status = Status {
        fleet: token.fleet,
        head: followed.head.as_ref().map_or(0, |head| head.number),
        rollout: followed.rollout.as_ref().map(|rollout| rollout.revision.number),
        nodes: lines(&followed, &alive),
    };
    output::print(args.json, &status, |out| print(out, &status))?;
    Ok(CommandStatus::of(status.nodes.iter().all(|node| is_well(node, status.head))))
}

fn lines(followed: &Followed, alive: &BTreeMap<String, Alive>) -> Vec<NodeLine> {
    let line = |member: &levada_fleet::model::Member| NodeLine {
        name: member.name.clone(),
        region: member.region.clone(),
        address: member.address.to_string(),
        drained: member.drained,
        alive: alive.get(&member.name).cloned(),
    };
    followed.members.iter().map(line).collect()
}

fn is_well(node: &NodeLine, head: u64) -> bool {
    node.alive.as_ref().is_some_and(|alive| {
        let serves = alive.ready || node.drained;
        alive.revision >= head && alive.error.is_none() && serves && alive.clock == 0
    })
}

fn print(out: &mut impl Write, status: &Status) -> io::Result<()> {
    let Status { fleet, head, rollout, nodes } = status;
    match rollout {
        Some(number) => writeln!(out, "fleet {fleet}: revision {head}, {number} is tried")?,
        None => writeln!(out, "fleet {fleet}: revision {head}")?,
    }
    for node in nodes {
        let region = node.region.as_deref().unwrap_or("-");
        let state = match &node.alive {
            None => "away".to_owned(),
            Some(alive) => in_words(node, alive, *head),
        };
        writeln!(out, "  {:<16} {region:<8} {:<22} {state}", node.name, node.address)?;
    }
    Ok(())
}

fn in_words(node: &NodeLine, alive: &Alive, head: u64) -> String {
    let mut words = format!("revision {} for {}", alive.revision, age(alive.since));
    if alive.revision < head {
        words += ", behind";
    }
    if node.drained {
        words += ", drained";
    } else if !alive.ready {
        words += &format!(", not ready: {}", alive.missing.join("; "));
    }
    match alive.clock {
        0 => {}
        ahead @ 1.. => words += &format!(", its clock is {ahead} s ahead of the state's"),
        behind => words += &format!(", its clock is {} s behind the state's", -behind),
    }
    if let Some(error) = &alive.error {
        words += &format!(", error: {error}");
    }
    words
}

#[derive(Serialize)]
struct History {
    revisions: Vec<Manifest>,
    audit: Vec<AuditEntry>,
}

/// Shows the history.
///
/// # Errors
/// If the state cannot be reached or refuses.
pub(crate) async fn history(args: &HistoryArgs, access: &Access) -> anyhow::Result<CommandStatus> {
    let (_, state) = access.open()?;
    let head = state.followed().await?.head.map_or(0, |head| head.number);
    let history = History { revisions: state.revisions().await?, audit: state.audit().await? };
    output::print(args.json, &history, |out| {
        for one in &history.revisions {
            let mark = if one.number == head { "*" } else { " " };
            let size: u64 = one.files.values().map(|file| file.size).sum();
            writeln!(
                out,
                "{mark} {:<4} {}  {} files, {size} bytes  by {}  {}",
                one.number,
                date(one.time),
                one.files.len(),
                one.by,
                one.note
            )?;
        }
        for entry in &history.audit {
            let AuditEntry { time, token, from, what } = entry;
            writeln!(out, "{}  {what}  by {token} from {from}", date(*time))?;
        }
        Ok(())
    })?;
    Ok(CommandStatus::Success)
}

/// A time as people read it, in UTC.
fn date(seconds: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

const STATUS_EXAMPLES: &str = "\
Examples:
  levada fleet status
  levada fleet status --json | jq '.nodes[] | select(.alive == null).name'

Exit codes:
  0  every node is alive and uses the head
  1  a node is away, behind, or not ready, or its clock is wrong
  2  the state cannot be reached or refuses";

const HISTORY_EXAMPLES: &str = "\
Examples:
  levada fleet history

Exit codes:
  0  done
  2  the state cannot be reached or refuses";
