//! `levada fleet apply` and `rollback`: a revision on its way to all nodes.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Args;
use levada_client::command::{CommandStatus, option::time};
use levada_fleet::{
    Directory, KEPT_REVISIONS, StartError, Tolerance,
    apply::{Applied, Canary, Plan, Progress, Seen, apply},
    check as check_fleet, content,
    difference::changed_files,
    state::{Followed, State},
};

use crate::{
    access::{Access, from},
    directory::print,
};

/// Brings a directory to all nodes.
///
/// It is checked for every node first, and an error changes nothing. Then one node tries it, then a share of each
/// region, then all use it. If a node that tries it cannot use it, or answers with more errors or later than the others,
/// all go back.
#[derive(Args, Debug)]
#[command(after_help = APPLY_EXAMPLES)]
pub(crate) struct ApplyArgs {
    /// The directory of the fleet.
    fleet: PathBuf,
    #[command(flatten)]
    way: Way,
}

/// Brings the files of an earlier revision to all nodes again, as a new revision.
#[derive(Args, Debug)]
#[command(after_help = ROLLBACK_EXAMPLES)]
pub(crate) struct RollbackArgs {
    /// The number of the revision. Without it, the last one whose files differ from those in use.
    revision: Option<u64>,
    #[command(flatten)]
    way: Way,
}

#[derive(Args, Debug)]
struct Way {
    /// Why, for the history.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// Brings it to all nodes at once, without a canary. A roll-back always does.
    #[arg(long)]
    at_once: bool,
    /// The share of the nodes of each region that try it after the first node, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u8).range(1..=100))]
    canary: u8,
    /// How long each step of the canary is watched.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    hold: Duration,
    /// How long nodes may take to use it.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    timeout: Duration,
    /// The number of revisions that stay in the state. Those that nodes use stay in any case.
    #[arg(long, value_name = "COUNT", default_value_t = KEPT_REVISIONS)]
    keep: usize,
}

/// Checks and applies.
///
/// # Errors
/// If the state cannot be reached, or another command applies.
pub(crate) async fn run(
    args: &ApplyArgs,
    access: &Access,
    start_error: StartError<'_>,
) -> anyhow::Result<CommandStatus> {
    let directory = Directory::read(&args.fleet)?;
    let (_, state) = access.open()?;
    let seen = Seen::of(&state).await?;
    let is_behind = is_behind(&seen);
    if let Some(head) = seen.head().filter(|_| !is_behind) {
        let differing = changed_files(&head.files, &content::stored_files(&directory));
        if differing.is_empty() {
            println!("the fleet has these files already: nothing changes");
            return Ok(CommandStatus::Success);
        }
        differing.iter().for_each(|line| println!("{line}"));
    }
    bring(&state, &seen.followed, &directory, &args.way, !args.way.at_once, start_error).await
}

/// Applies the files of an earlier revision.
///
/// # Errors
/// If there is none, or the state cannot be reached.
pub(crate) async fn roll_back(
    args: &RollbackArgs,
    access: &Access,
    start_error: StartError<'_>,
) -> anyhow::Result<CommandStatus> {
    let (_, state) = access.open()?;
    let seen = Seen::of(&state).await?;
    let Some(wanted) = seen.earlier(args.revision) else {
        bail!("there is no such revision: levada fleet history")
    };
    println!("brings the files of revision {} again", wanted.number);
    let directory = content::fetch(&state, wanted, &Directory::default()).await?;
    bring(&state, &seen.followed, &directory, &args.way, false, start_error).await
}

async fn bring(
    state: &State,
    followed: &Followed,
    directory: &Directory,
    way: &Way,
    has_canary: bool,
    start_error: StartError<'_>,
) -> anyhow::Result<CommandStatus> {
    let found = check_fleet(directory, &followed.members, start_error)?;
    print(&mut io::stdout().lock(), &found)?;
    if !found.is_usable() {
        println!("nothing has changed");
        return Ok(CommandStatus::ProblemsFound);
    }
    let share = f64::from(way.canary) / 100.0;
    let canary = Canary { share, hold: way.hold, tolerance: Tolerance::default() };
    let plan = Plan {
        from: from(),
        note: way.note.clone(),
        canary: has_canary.then_some(canary),
        patience: way.timeout,
        base: None,
        kept: way.keep,
    };
    let began = Instant::now();
    let mut said = |progress: Progress| {
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{:>6.2} s  {}", began.elapsed().as_secs_f64(), progress);
    };
    let applied = apply(state, directory, &plan, &mut said).await?;
    println!("{:>6.2} s  {applied}", began.elapsed().as_secs_f64());
    Ok(CommandStatus::of(matches!(applied, Applied::Everywhere { .. })))
}

/// Whether a node has seen a later head than the state has, which was restored from an old copy.
fn is_behind(seen: &Seen) -> bool {
    let (head, highest) =
        (seen.followed.head.as_ref().map_or(0, |head| head.number), seen.highest());
    if highest > head {
        println!(
            "the state is at revision {head}, and a node has seen {highest}: it was restored from an old copy, and goes on from there"
        );
    }
    highest > head
}

const APPLY_EXAMPLES: &str = "\
Examples:
  levada fleet apply ./fleet --note 'new site shop.example.com'
  levada fleet apply ./fleet --canary 10 --hold 1m
  levada fleet apply ./fleet --at-once

Exit codes:
  0  every node uses the revision
  1  the directory has errors, the canary went back, or a node does not use the revision
  2  another command applies, or the state cannot be reached or refuses";

const ROLLBACK_EXAMPLES: &str = "\
Examples:
  levada fleet rollback
  levada fleet rollback 7 --note 'shop is slow'

Exit codes:
  0  every node uses the files
  1  a node does not use them, or they have errors
  2  there is no such revision, or the state cannot be reached or refuses";
