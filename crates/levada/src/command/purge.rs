//! `levada purge`: invalidates stored responses on a node and its cluster.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use serde_json::{Value as Json, json};

use super::{
    admin::{POLL_INTERVAL, read_token},
    configuration,
};
use levada_client::command::{CommandStatus, admin_client, block_on, option::time, output};
use levada_types::AdminAddress;

/// Purges stored responses on every node of the cluster.
///
/// By default they are removed; with --soft they become stale and are revalidated with the origin.
/// The node forwards the purge to its peers and reports which of them have confirmed it. A peer that
/// cannot be reached gets the purge from any other node when it is back, before it serves clients.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("what").required(true).args(["urls", "prefix", "tag", "all"])))]
#[command(group(ArgGroup::new("node").required(true).args(["config", "admin"])))]
pub(crate) struct PurgeArgs {
    /// URLs, with scheme and host, as clients request them.
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// All URLs that begin with this one.
    #[arg(long, value_name = "URL")]
    prefix: Vec<String>,
    /// All responses that the origin has given this tag.
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// All responses.
    #[arg(long)]
    all: bool,
    /// Limits --tag and --all to the site of this host.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["urls", "prefix"])]
    site: Option<String>,
    /// Makes responses stale instead of removing them.
    #[arg(long)]
    soft: bool,
    /// The configuration file of a running node, which has the admin address and the token.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The admin address of a running node: an IP address and a port, or unix: and a path.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<AdminAddress>,
    /// A file with the token, if the node requires one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Waits until every node has confirmed, at most for this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    wait: Option<Duration>,
    /// Prints the node's report as JSON.
    #[arg(long)]
    json: bool,
}

/// Purges.
///
/// # Errors
/// If the node cannot be reached, or refuses.
pub(crate) fn run(args: &PurgeArgs) -> anyhow::Result<CommandStatus> {
    let (admin, token) = node(args)?;
    let report = block_on(purge(args, admin, token.as_deref()))??;
    output::print(args.json, &report, |out| print(out, &report))?;
    Ok(CommandStatus::of(report["confirmed"] == true))
}

/// The node's report, the last one if it was waited for more.
async fn purge(args: &PurgeArgs, admin: AdminAddress, token: Option<&str>) -> anyhow::Result<Json> {
    let began = Instant::now();
    let body = admin_client::post(&admin, "/purge", &order(args), token, CONFIRM_TIMEOUT).await?;
    let mut report: Json = serde_json::from_slice(&body)
        .with_context(|| format!("{admin} is no node's admin address"))?;
    let target = format!("/purge?order={}", report["order"].as_str().unwrap_or_default());
    let wait = args.wait.unwrap_or_default();
    while report["confirmed"] != true && began.elapsed() < wait {
        tokio::time::sleep(POLL_INTERVAL).await;
        // The node may be restarted meanwhile.
        let Ok(body) = admin_client::get(&admin, &target, CONFIRM_TIMEOUT).await else { continue };
        let newer: Json = serde_json::from_slice(&body)?;
        for key in ["confirmed", "nodes"] {
            report[key] = newer[key].clone();
        }
    }
    Ok(report)
}

/// The node's admin address and token.
fn node(args: &PurgeArgs) -> anyhow::Result<(AdminAddress, Option<String>)> {
    let mut token = std::env::var(TOKEN_VARIABLE).ok();
    let mut admin = args.admin.clone();
    if let Some(file) = &args.config {
        let settings = configuration::usable(file)?;
        let own = settings.admin.as_ref().and_then(|admin| admin.token.clone());
        admin = settings.admin.map(|admin| admin.listen);
        token = settings.purge.access.token.or(own).or(token);
    }
    if let Some(file) = &args.token_file {
        token = Some(read_token(file)?);
    }
    let admin = admin.context("the node has no admin address: set `listen` in [admin]")?;
    Ok((admin, token))
}

fn order(args: &PurgeArgs) -> Json {
    let PurgeArgs { urls, prefix, tag, all, site, soft, .. } = args;
    let mut order = json!({ "soft": soft });
    for (key, list) in [("url", urls), ("prefix", prefix), ("tag", tag)] {
        if !list.is_empty() {
            order[key] = json!(list);
        }
    }
    if *all {
        order["all"] = json!(true);
    }
    if let Some(site) = site {
        order["site"] = json!(site);
    }
    order
}

fn print(out: &mut impl Write, report: &Json) -> io::Result<()> {
    let word = |value: &Json| value.as_str().unwrap_or("-").to_owned();
    let nodes = report["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let width = nodes.iter().map(|node| word(&node["node"]).len()).max().unwrap_or(0);
    for node in nodes {
        let result = match word(&node["result"]).as_str() {
            "confirmed" => "purged".to_owned(),
            other => other.to_owned(),
        };
        write!(out, "{:width$}  {result}", word(&node["node"]))?;
        if let Some(detail) = node["detail"].as_str() {
            write!(out, ": {detail}")?;
        }
        match result.as_str() {
            "pending" => write!(out, "; will be told again")?,
            "unreachable" => write!(out, "; will be told when it is back")?,
            _ => {}
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The node answers when its peers have confirmed: this is longer than it waits for them.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(15);

const TOKEN_VARIABLE: &str = "LEVADA_PURGE_TOKEN";

const EXAMPLES: &str = "\
Examples:
  levada purge http://www.example.com/logo.png -c levada.toml
  levada purge --prefix http://www.example.com/img/ --soft -c levada.toml
  levada purge --tag product-17 --tag frontpage --admin 127.0.0.1:9180
  levada purge --all --site www.example.com -c levada.toml --json | jq .nodes
  levada purge http://www.example.com/logo.png -c levada.toml --wait 10m

The token, where the node asks for one, comes from the configuration, from --token-file, or
from the environment variable LEVADA_PURGE_TOKEN.

Exit codes:
  0  every node has confirmed
  1  some have not yet, also after --wait: the report says which
  2  nothing was purged: wrong arguments, no such site, a wrong token, the node does not answer or
     cannot write its purge journal";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_line_for_each_node() {
        let report = json!({
            "confirmed": false,
            "nodes": [
                {"node": "a", "result": "confirmed"},
                {"node": "edge-2", "result": "unreachable", "detail": "no route"},
                {"node": "d", "result": "pending", "detail": "it does not answer"},
                {"node": "c", "result": "refused", "detail": "it answered 403 Forbidden"},
            ],
        });
        let mut out = Vec::new();
        print(&mut out, &report).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "a       purged
edge-2  unreachable: no route; will be told when it is back
d       pending: it does not answer; will be told again
c       refused: it answered 403 Forbidden
"
        );
    }
}
