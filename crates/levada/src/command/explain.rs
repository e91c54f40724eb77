//! `levada explain URL`: the node that would serve it, and the reason.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use serde_json::Value as Json;

use levada_client::command::{CommandStatus, admin_client, block_on, output};
use levada_node::explain::{ExplainedRequest, explanation_text::print};
use levada_types::AdminAddress;

use super::{
    admin::{ANSWER_TIMEOUT, USUAL_ADMIN},
    configuration, default_config,
};

/// Shows which node would serve a URL, and why.
///
/// With a configuration, it shows the choice of a node that has just started, with every node up and
/// idle. With a running node, it shows the node's choice now. Neither changes anything. Without --config and
/// --admin it asks the node of levada.toml or /etc/levada/levada.toml, or the one at 127.0.0.1:9180.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The URL, with scheme and host, as clients request it.
    url: String,
    /// The configuration file of a node.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The admin address of a running node: an IP address and a port, or unix: and a path.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    admin: Option<AdminAddress>,
    /// The source of the site's key, if it is not the URL: the value of the header or the cookie,
    /// or the body.
    #[arg(long, value_name = "VALUE")]
    key: Option<String>,
    /// A header field of the request, by which the site's routes may be matched.
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The client's address, by which the site's routes may be matched.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    client: IpAddr,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Explains.
///
/// # Errors
/// If the configuration cannot be used, the node does not answer, or no site has the URL's host.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<CommandStatus> {
    let explanation = match (&args.admin, &args.config) {
        (Some(admin), _) => of_node(admin, args).context("--admin")?,
        (None, Some(file)) => of_configuration(file, args)?,
        (None, None) => of_some_node(args)?,
    };
    output::print(args.json, &explanation, |out| print(out, &explanation))?;
    Ok(CommandStatus::of(!explanation["node"].is_null()))
}

/// The explanation of the node that runs here: where its configuration usually is, or at the usual address.
fn of_some_node(args: &ExplainArgs) -> anyhow::Result<Json> {
    let mut tried = Vec::new();
    for file in default_config::PLACES {
        match configuration::load(Path::new(file)).map(|checked| checked.admin) {
            Ok(Some(admin)) => match of_node(&admin, args) {
                Ok(explanation) => {
                    eprintln!("levada: the node at {admin}, by {file}");
                    return Ok(explanation);
                }
                Err(error) => tried.push(format!("{file}: {error:#}")),
            },
            Ok(None) => tried.push(format!("{file} has no admin address: set `listen` in [admin]")),
            Err(error) => tried.push(format!("{file}: {}", error.root_cause())),
        }
    }
    match of_node(&USUAL_ADMIN.into(), args) {
        Ok(explanation) => {
            eprintln!("levada: the node at {USUAL_ADMIN}");
            Ok(explanation)
        }
        Err(error) => {
            tried.push(format!("{error:#}"));
            anyhow::bail!(
                "no running node explains it; tried:\n  {}\nname one with --admin ADDRESS, or explain \
                 a configuration with -c FILE",
                tried.join("\n  ")
            )
        }
    }
}

fn of_node(admin: &AdminAddress, args: &ExplainArgs) -> anyhow::Result<Json> {
    let mut target = admin_client::explain_target(&args.url);
    if let Some(key) = &args.key {
        target += "&key=";
        target += &admin_client::escaped(key);
    }
    for header in &args.header {
        target += "&header=";
        target += &admin_client::escaped(header);
    }
    target += &format!("&client={}", admin_client::escaped(&args.client.to_string()));
    let body = block_on(admin_client::get(admin, &target, ANSWER_TIMEOUT))??;
    serde_json::from_slice(&body).with_context(|| format!("{admin} is no node's admin address"))
}

fn of_configuration(file: &Path, args: &ExplainArgs) -> anyhow::Result<Json> {
    let settings = configuration::usable(file)?;
    let mut asked = ExplainedRequest::new(&args.url);
    (asked.key, asked.client) = (args.key.clone(), args.client);
    if let Some(wrong) = args.header.iter().find(|line| !asked.add_header(line)) {
        anyhow::bail!("--header {wrong:?}: write it as in `Accept-Language: en`");
    }
    Ok(serde_json::to_value(levada_node::explain::explain_settings(&settings, &asked)?)?)
}

const EXAMPLES: &str = "\
Examples:
  levada explain http://www.example.com/logo.png -c levada.toml
  levada explain http://www.example.com/logo.png --admin 127.0.0.1:9180
  levada explain http://www.example.com/logo.png -c levada.toml --json | jq .set

Exit codes:
  0  a node would serve it
  1  no node is up
  2  the configuration cannot be used, the node does not answer, no site has the host";
