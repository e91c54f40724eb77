//! `levada reload`: makes a running node reload its configuration.

use clap::Args;
use serde::Deserialize;

use levada_client::command::CommandStatus;

use super::admin::{AdminArgs, ORDER_TIMEOUT};

/// Makes a running node reload its configuration, all or nothing.
///
/// Running requests keep the old configuration. If the file has a mistake, nothing changes, and the
/// mistakes are printed. The node reads the file that it was started with.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    node: AdminArgs,
}

/// Reloads.
///
/// # Errors
/// If the node cannot be reached, or refuses.
pub(crate) fn run(args: &ReloadArgs) -> anyhow::Result<CommandStatus> {
    match args.node.order("/reload", ORDER_TIMEOUT)? {
        Ok(answer) => {
            let answer: Reloaded = serde_json::from_slice(&answer).unwrap_or_default();
            match answer.changed.is_empty() {
                true => println!("reloaded: nothing else than certificates and files can differ"),
                false => println!("reloaded: {}", answer.changed.join(", ")),
            }
            Ok(CommandStatus::Success)
        }
        Err(reason) => {
            println!("reload failed, the previous settings stay in use:\n{}", reason.trim_end());
            Ok(CommandStatus::ProblemsFound)
        }
    }
}

/// The node's answer.
#[derive(Default, Deserialize)]
struct Reloaded {
    /// The names of the changed parts.
    changed: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  levada reload -c levada.toml
  levada reload --admin 127.0.0.1:9180
  kill -HUP $(pidof levada)

Exit codes:
  0  the node uses the new configuration
  1  it refuses: what is printed is wrong with it, or cannot change while the node runs
  2  the node does not answer";
