//! `levada health`: whether a running node is ready, for supervisors that run a command to know.

use std::time::Duration;

use clap::Args;
use levada_client::command::{CommandStatus, admin_client, block_on};
use serde::Deserialize;

use super::{admin::AdminArgs, default_config::DEFAULT_CONFIG};

/// Asks a running node whether it is ready to serve.
///
/// Containers and supervisors run it as their check. The node is that of --admin or of the
/// configuration file, by default /etc/levada/levada.toml.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    node: AdminArgs,
    /// Asks only whether the process lives, as /healthz tells; not whether origins are up.
    #[arg(long)]
    live: bool,
}

/// Asks.
///
/// # Errors
/// If the node does not answer.
pub(crate) fn run(args: &HealthArgs) -> anyhow::Result<CommandStatus> {
    let admin = args.node.address_or(DEFAULT_CONFIG)?;
    let page = if args.live { "/healthz" } else { "/readyz" };
    match block_on(admin_client::try_get(&admin, page, HEALTH_TIMEOUT))?? {
        Ok(answer) => {
            match args.live {
                true => println!("{}", String::from_utf8_lossy(&answer).trim_end()),
                false => println!("ready"),
            }
            Ok(CommandStatus::Success)
        }
        Err(reason) => {
            let page = serde_json::from_str(&reason)
                .unwrap_or_else(|_| Readiness { missing: vec![reason.trim_end().to_owned()] });
            println!("not ready: {}", page.missing.join("; "));
            Ok(CommandStatus::ProblemsFound)
        }
    }
}

/// The answer of `/readyz`.
#[derive(Deserialize)]
struct Readiness {
    missing: Vec<String>,
}

/// As long as the health checks of the container images give the command.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);

const EXAMPLES: &str = "\
Examples:
  levada health
  levada health --admin 127.0.0.1:9180
  levada health --live -c levada.toml

Exit codes:
  0  the node is ready
  1  it is not: what is printed says why
  2  it does not answer";
