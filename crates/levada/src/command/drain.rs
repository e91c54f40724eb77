//! `levada drain`: moves the clients of a running node to other nodes.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value as Json, json};

use levada_client::command::{CommandStatus, admin_client, block_on, option::time};
use levada_types::AdminAddress;

use super::admin::{AdminArgs, ORDER_TIMEOUT, POLL_INTERVAL};

/// Moves the clients of a running node to other nodes, at a pace that those can take.
///
/// The node reports itself as not ready, withdraws its route if it has one, closes connections after
/// their current request, and ends long downloads in the middle at a limited rate. It still serves
/// new clients until it is stopped or drained with --undo.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    node: AdminArgs,
    /// Takes the node into service again.
    #[arg(long, conflicts_with_all = ["rate", "wait"])]
    undo: bool,
    /// Downloads to end per second, instead of `limits.drain_rate`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Waits until no request runs any more, at most for this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    wait: Option<Duration>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Drains, or undoes it.
///
/// # Errors
/// If the node cannot be reached, or refuses.
pub(crate) fn run(args: &DrainArgs) -> anyhow::Result<CommandStatus> {
    let admin = args.node.address()?;
    let (state, over) = block_on(drain(args, admin))??;
    if args.json {
        println!("{state:#}");
    } else {
        let word = if args.undo { "in service" } else { "draining" };
        let (running, moved) = (&state["in_flight"], &state["moved"]);
        println!("{word}: {running} requests run, {moved} downloads were sent away");
    }
    Ok(CommandStatus::of(over))
}

/// The node's last report, and whether the drain is complete.
async fn drain(args: &DrainArgs, admin: AdminAddress) -> anyhow::Result<(Json, bool)> {
    let target = match (args.undo, args.rate) {
        (true, _) => "/drain?undo".to_owned(),
        (false, Some(rate)) => format!("/drain?rate={rate}"),
        (false, None) => "/drain".to_owned(),
    };
    let token = args.node.token()?;
    let nothing = json!({});
    let told = admin_client::post(&admin, &target, &nothing, token.as_deref(), ORDER_TIMEOUT);
    let mut body = told.await?;
    let began = Instant::now();
    loop {
        let state: Json = serde_json::from_slice(&body)?;
        let Some(wait) = args.wait else { return Ok((state, true)) };
        let over = state["in_flight"] == 0;
        if over || began.elapsed() >= wait {
            return Ok((state, over));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        body = admin_client::get(&admin, "/drain", ORDER_TIMEOUT).await?;
    }
}

const EXAMPLES: &str = "\
Examples:
  levada drain -c levada.toml
  levada drain --rate 10 --wait 5m -c levada.toml && systemctl stop levada
  levada drain --undo --admin 127.0.0.1:9180

Exit codes:
  0  done
  1  something runs still, after --wait
  2  the node does not answer";
