//! `levada route`: the state of a running node's route, and the process that controls ExaBGP.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::Value as Json;

use levada_client::command::{CommandStatus, admin_client, block_on};
use levada_cluster::announce::GuardedRoute;
use levada_types::AdminAddress;

use super::{admin::AdminArgs, configuration};

/// Shows the state of a running node's anycast route.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RouteArgs {
    #[command(flatten)]
    node: AdminArgs,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    order: Option<RouteCommand>,
}

#[derive(Debug, Subcommand)]
enum RouteCommand {
    /// Forwards the node's decisions to ExaBGP, line by line. ExaBGP runs this process.
    ///
    /// If the node is gone, the route is withdrawn.
    Exabgp,
    /// Withdraws the route at BIRD when no more beats come through standard input. A node runs it by itself.
    #[command(hide = true)]
    Guard {
        /// BIRD's control socket.
        #[arg(long)]
        socket: PathBuf,
        /// The protocol that has the route.
        protocol: String,
        /// The protocol that has it with a lower preference.
        backup: Option<String>,
    },
    /// Withdraws the route at BIRD directly, for a node that has died.
    Withdraw {
        /// The configuration file of the node.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Shows, forwards or withdraws.
///
/// # Errors
/// If the node or BIRD cannot be reached.
pub(crate) fn run(args: &RouteArgs) -> anyhow::Result<CommandStatus> {
    match &args.order {
        None => {
            let admin = args.node.address()?;
            let state = block_on(admin_client::get(&admin, "/route", CHANGE_TIMEOUT))??;
            show(args, &serde_json::from_slice(&state)?)
        }
        Some(RouteCommand::Exabgp) => block_on(tell(args.node.address()?))?,
        Some(RouteCommand::Guard { socket, protocol, backup }) => {
            let (socket, protocol, backup) = (socket.clone(), protocol.clone(), backup.clone());
            block_on(GuardedRoute { socket, protocol, backup }.run())??;
            Ok(CommandStatus::Success)
        }
        Some(RouteCommand::Withdraw { file }) => {
            let route = configuration::load(file)?.settings.and_then(|settings| settings.route);
            let Some(route) = route else { bail!("{} has no usable [route]", file.display()) };
            block_on(levada_cluster::announce::withdraw(&route))??;
            Ok(CommandStatus::Success)
        }
    }
}

fn show(args: &RouteArgs, state: &Json) -> anyhow::Result<CommandStatus> {
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{state:#}")?;
    } else {
        let word = |name: &str| state[name].as_str().unwrap_or("-").to_owned();
        let number = |name: &str| state[name].as_f64().unwrap_or_default();
        let dry = if state["dry_run"] == true { " (dry run)" } else { "" };
        let (level, reason) = (word("level"), word("reason"));
        let (seconds, load) = (number("seconds"), number("load"));
        writeln!(out, "{level}{dry}, because of {reason}, for {seconds:.0} s; load {load:.2}")?;
        if let Some(error) = state["error"].as_str() {
            writeln!(out, "{error}")?;
        }
    }
    Ok(CommandStatus::of(state["error"].is_null()))
}

/// Prints every change until standard output is closed.
async fn tell(admin: AdminAddress) -> anyhow::Result<CommandStatus> {
    let (mut said, mut withdrawal, mut number) = (Vec::new(), Vec::new(), Json::Null);
    loop {
        let target = match number.as_u64() {
            Some(number) => format!("/route?after={number}"),
            None => "/route".to_owned(),
        };
        let lines = match admin_client::get(&admin, &target, CHANGE_TIMEOUT).await {
            Ok(body) => {
                let state: Json = serde_json::from_slice(&body)?;
                number = state["number"].clone();
                withdrawal = strings(&state["withdrawal"]);
                strings(&state["lines"])
            }
            // The node is gone, and may come back.
            Err(_) => {
                number = Json::Null;
                tokio::time::sleep(RETRY_BACKOFF).await;
                withdrawal.clone()
            }
        };
        if lines != said {
            let mut out = io::stdout().lock();
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            out.flush()?;
            said = lines;
        }
    }
}

fn strings(list: &Json) -> Vec<String> {
    let strings = list.as_array().into_iter().flatten().filter_map(Json::as_str);
    strings.map(str::to_owned).collect()
}

/// The node answers when the route changes: this is longer than it keeps a waiting request open.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait before a node that does not answer is asked again: it may be restarting.
const RETRY_BACKOFF: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  levada route -c levada.toml
  levada route exabgp --admin 127.0.0.1:9180
  levada route withdraw levada.toml

Exit codes:
  0  done
  1  the BGP daemon refuses
  2  the node does not answer, or has no route";
