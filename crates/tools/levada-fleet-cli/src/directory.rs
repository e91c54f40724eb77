//! `levada fleet check` and `diff`: what a directory makes of the nodes.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
};

use clap::Args;
use levada_client::command::{CommandStatus, output};
use levada_fleet::{
    Directory, FleetCheck, StartError, check as check_fleet, content,
    difference::{changed_files, changed_settings, head_files},
    enrol::new_member,
    model::Member,
};

use crate::access::Access;

/// Checks a directory for all nodes, without a state.
///
/// Each node's configuration is made and checked as `levada validate` does. Without --node, one node of each region is
/// assumed.
#[derive(Args, Debug)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct CheckArgs {
    /// The directory of the fleet.
    fleet: PathBuf,
    /// A node, its region if the fleet has regions, and its address for peers: NAME=REGION=ADDRESS or NAME=ADDRESS.
    #[arg(long, value_name = "NODE", value_parser = node)]
    node: Vec<Member>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Shows what `apply` would change: files, and the settings of the nodes.
#[derive(Args, Debug)]
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArgs {
    /// The directory of the fleet.
    fleet: PathBuf,
}

/// Checks.
///
/// # Errors
/// If the directory is none of a fleet.
pub(crate) fn check(
    args: &CheckArgs,
    start_error: StartError<'_>,
) -> anyhow::Result<CommandStatus> {
    let directory = Directory::read(&args.fleet)?;
    let found = check_fleet(&directory, &args.node, start_error)?;
    output::print(args.json, &found.problems, |out| print(out, &found))?;
    Ok(CommandStatus::of(found.is_usable()))
}

/// Prints the problems of a check, each once, and then how it ended.
pub(crate) fn print(out: &mut impl Write, found: &FleetCheck) -> io::Result<()> {
    for problem in &found.problems {
        writeln!(out, "{}", problem.problem)?;
        writeln!(out, "    nodes: {}", problem.nodes.join(", "))?;
    }
    found.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
    match found.is_usable() {
        true => writeln!(out, "the directory can be used: {} nodes checked", found.settings.len()),
        false => writeln!(out, "the directory cannot be used"),
    }
}

/// Shows the difference.
///
/// # Errors
/// If the state cannot be reached.
pub(crate) async fn diff(
    args: &DiffArgs,
    access: &Access,
    start_error: StartError<'_>,
) -> anyhow::Result<CommandStatus> {
    let directory = Directory::read(&args.fleet)?;
    let (_, state) = access.open()?;
    let followed = state.followed().await?;
    let former = head_files(&state, &followed).await?;
    let mut out = io::stdout().lock();
    let [before, after] = [&former, &directory].map(content::stored_files);
    for line in changed_files(&before, &after) {
        writeln!(out, "{line}")?;
    }
    let found = check_fleet(&directory, &followed.members, start_error)?;
    if !found.is_usable() {
        print(&mut out, &found)?;
        return Ok(CommandStatus::ProblemsFound);
    }
    for line in changed_settings(&former, &found, &followed.members, start_error)? {
        writeln!(out, "{line}")?;
    }
    Ok(CommandStatus::Success)
}

fn node(text: &str) -> Result<Member, String> {
    let wrong = || {
        "a node is NAME=REGION=ADDRESS or NAME=ADDRESS, such as eu-1=eu=10.1.0.1:7070".to_owned()
    };
    let parts: Vec<_> = text.split('=').collect();
    let (name, region, address) = match parts[..] {
        [name, address] => (name, None, address),
        [name, region, address] => (name, Some(region), address),
        _ => return Err(wrong()),
    };
    let address: SocketAddr = address.parse().map_err(|_| wrong())?;
    Ok(new_member(name, region, address, &[]))
}

const CHECK_EXAMPLES: &str = "\
Examples:
  levada fleet check ./fleet
  levada fleet check ./fleet --node eu-1=eu=10.1.0.1:7070 --node us-1=us=10.2.0.1:7070

Exit codes:
  0  every node can use its configuration; there may be warnings
  1  it has errors
  2  the directory cannot be read, or is none of a fleet";

const DIFF_EXAMPLES: &str = "\
Examples:
  levada fleet diff ./fleet

Exit codes:
  0  done
  1  the directory has errors
  2  the state cannot be reached or refuses";
