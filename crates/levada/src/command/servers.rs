//! `levada servers`: the servers behind a running node's switches, and the drain of one server.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use levada_client::command::{CommandStatus, admin_client, block_on, output};

use super::admin::{ANSWER_TIMEOUT, AdminArgs};

/// Lists the servers behind a running node's switches, or drains one of them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServersArgs {
    #[command(flatten)]
    node: AdminArgs,
    /// Prints JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    order: Option<ServersCommand>,
}

#[derive(Debug, Subcommand)]
enum ServersCommand {
    /// Sends no new requests to a server; running requests may end.
    Drain(Which),
    /// Takes a drained server into service again.
    Resume(Which),
}

#[derive(Args, Debug)]
struct Which {
    /// The server's name.
    server: String,
    /// Only on the site with this host.
    #[arg(long, value_name = "HOST")]
    site: Option<String>,
}

/// Lists, drains or resumes.
///
/// # Errors
/// If the node does not answer, or has no server of this name.
pub(crate) fn run(args: &ServersArgs) -> anyhow::Result<CommandStatus> {
    let told = match &args.order {
        None => {
            let admin = args.node.address()?;
            block_on(admin_client::get(&admin, "/servers", ANSWER_TIMEOUT))?.map(Ok)?
        }
        Some(order) => args.node.order(&target(order), ANSWER_TIMEOUT)?,
    };
    let body = match told {
        Ok(body) => body,
        Err(reason) => {
            eprintln!("{}", reason.trim_end());
            return Ok(CommandStatus::ProblemsFound);
        }
    };
    let sites: Json = serde_json::from_slice(&body)?;
    output::print(args.json, &sites, |out| print(out, &sites))?;
    Ok(CommandStatus::Success)
}

fn target(order: &ServersCommand) -> String {
    let (verb, Which { server, site }) = match order {
        ServersCommand::Drain(which) => ("drain", which),
        ServersCommand::Resume(which) => ("resume", which),
    };
    let mut target = format!("/servers/{verb}?server={}", admin_client::escaped(server));
    if let Some(site) = site {
        target += "&site=";
        target += &admin_client::escaped(site);
    }
    target
}

fn print(out: &mut impl Write, sites: &Json) -> io::Result<()> {
    let sites = sites.as_array().map_or(&[][..], Vec::as_slice);
    if sites.is_empty() {
        return writeln!(out, "no site has servers");
    }
    let word = |value: &Json| value.as_str().unwrap_or("-").to_owned();
    let count = |value: &Json| value.as_u64().unwrap_or_default();
    for (place, site) in sites.iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        writeln!(
            out,
            "{}: {}, {} of at most {} at the servers, {} waiting",
            word(&site["site"]),
            word(&site["policy"]),
            site["outstanding"],
            site["limit"],
            site["waiting"]
        )?;
        let servers = site["servers"].as_array().map_or(&[][..], Vec::as_slice);
        let width = servers.iter().map(|server| word(&server["name"]).len()).max().unwrap_or(0);
        let width = width.max("SERVER".len());
        writeln!(
            out,
            "  {:width$}  {:10}  {:>6}  {:>11}  {:>9}  {:>10}  {:>8}  ADDRESS",
            "SERVER", "STATE", "WEIGHT", "OUTSTANDING", "MAX_CONNS", "REQUESTS", "FAILURES"
        )?;
        for server in servers {
            writeln!(
                out,
                "  {:width$}  {:10}  {:>6}  {:>11}  {:>9}  {:>10}  {:>8}  {}",
                word(&server["name"]),
                word(&server["state"]),
                server["weight"].as_f64().unwrap_or_default(),
                count(&server["outstanding"]),
                count(&server["max_conns"]),
                count(&server["requests"]),
                count(&server["failures"]),
                word(&server["address"]),
            )?;
        }
        for learned in site["learned"].as_array().into_iter().flatten() {
            writeln!(out, "  learned: {} is {}", word(&learned[0]), word(&learned[1]))?;
        }
    }
    Ok(())
}

const EXAMPLES: &str = "\
Examples:
  levada servers -c levada.toml
  levada servers --admin 127.0.0.1:9180 --json | jq '.[].servers[].state'
  levada servers drain web-1 -c levada.toml
  levada servers resume web-1 --site www.example.com -c levada.toml

Exit codes:
  0  done
  1  no server has this name
  2  the node does not answer";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_read_as_a_table() {
        let server = |name: &str, state: &str, held: u32| {
            json!({"name": name, "address": "10.0.0.1:80", "state": state, "weight": 1.5,
                   "outstanding": held, "max_conns": 100, "requests": 7, "failures": 1})
        };
        let sites = json!([{
            "site": "*", "policy": "lard/r", "outstanding": 4, "limit": 154, "waiting": 0,
            "servers": [server("web-1", "up", 4), server("b", "slow start", 0)],
            "learned": [["/search/", "cpu"]],
        }]);
        let mut out = Vec::new();
        print(&mut out, &sites).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "*: lard/r, 4 of at most 154 at the servers, 0 waiting
  SERVER  STATE       WEIGHT  OUTSTANDING  MAX_CONNS    REQUESTS  FAILURES  ADDRESS
  web-1   up             1.5            4        100           7         1  10.0.0.1:80
  b       slow start     1.5            0        100           7         1  10.0.0.1:80
  learned: /search/ is cpu
"
        );
    }

    #[test]
    fn names_are_escaped() {
        let which = Which { server: "a b".to_owned(), site: Some("x.y".to_owned()) };
        assert_eq!(target(&ServersCommand::Drain(which)), "/servers/drain?server=a%20b&site=x.y");
    }
}
