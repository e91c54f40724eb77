//! `levada fleet status` and `history`: the nodes, the revisions, the orders.

use std::{
    io::Write as _,
    time::{Duration, UNIX_EPOCH},
};

use clap::Args;
use levada_client::command::{CommandStatus, output};
use levada_fleet::{History, Overview, model::AuditEntry};

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

/// Shows the nodes.
///
/// # Errors
/// If the state cannot be reached or refuses.
pub(crate) async fn status(args: &StatusArgs, access: &Access) -> anyhow::Result<CommandStatus> {
    let (token, state) = access.open()?;
    let overview = Overview::of(&state, &token.fleet).await?;
    output::print(args.json, &overview, |out| writeln!(out, "{overview}"))?;
    Ok(CommandStatus::of(overview.is_well()))
}

/// Shows the history.
///
/// # Errors
/// If the state cannot be reached or refuses.
pub(crate) async fn history(args: &HistoryArgs, access: &Access) -> anyhow::Result<CommandStatus> {
    let (_, state) = access.open()?;
    let history = History::of(&state).await?;
    output::print(args.json, &history, |out| {
        for one in &history.revisions {
            let mark = if one.number == history.head { "*" } else { " " };
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
