//! `levada upgrade`: replaces the process of a running node.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde::Deserialize;

use levada_client::command::{CommandStatus, admin_client};

use super::admin::AdminArgs;

/// Replaces the process of a running node by a new one: of a new program, or of the same.
///
/// The new process takes over the listening sockets, the disk cache and what is stored in memory. The
/// former one ends when its connections have ended. No connection is refused. If the new process does
/// not start, or finds a mistake in its file, the node goes on as before.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    node: AdminArgs,
    /// The program to run, instead of the one that the node was started by. Only root and the
    /// node's user may be able to write to it.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Upgrades.
///
/// # Errors
/// If the node cannot be reached, or does not answer.
pub(crate) fn run(args: &UpgradeArgs) -> anyhow::Result<CommandStatus> {
    let target = match &args.binary {
        None => "/upgrade".to_owned(),
        Some(path) => {
            let path = std::path::absolute(path)?;
            format!("/upgrade?binary={}", admin_client::escaped(&path.to_string_lossy()))
        }
    };
    match args.node.order(&target, UPGRADE_TIMEOUT)? {
        Ok(answer) if args.json => print!("{}", String::from_utf8_lossy(&answer)),
        Ok(answer) => {
            let Upgraded { old, new, objects, bytes } = serde_json::from_slice(&answer)?;
            let mebibytes = bytes as f64 / f64::from(1 << 20);
            println!(
                "upgraded: process {new} has taken over from {old}, with {objects} objects in {mebibytes:.1} MiB of memory"
            );
        }
        Err(reason) => {
            println!("not upgraded, the node goes on as before: {}", reason.trim_end());
            return Ok(CommandStatus::ProblemsFound);
        }
    }
    Ok(CommandStatus::Success)
}

/// The node's answer.
#[derive(Deserialize)]
struct Upgraded {
    old: u32,
    new: u32,
    objects: u64,
    bytes: u64,
}

/// The node answers when the upgrade is done. A large memory tier takes a while to pass on.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(3600);

const EXAMPLES: &str = "\
Examples:
  levada upgrade -c levada.toml
  levada upgrade --binary ./levada-next --admin unix:/run/levada/admin.sock

Exit codes:
  0  the new process serves
  1  it does not, for the reason that is printed; the former one goes on
  2  the node does not answer";
