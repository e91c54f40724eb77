//! `levada sign URL`: the URL with the signature that its site demands.

use std::{
    io::{self, Write},
    net::IpAddr,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::configuration;
use anyhow::Context as _;
use clap::Args;
use levada_access::signed::RequestUrl;
use levada_client::command::CommandStatus;
use levada_config::Settings;
use levada_node::explain::ExplainedRequest;
use levada_store::identity::without_port;

/// Signs a URL of a site with signed URLs.
///
/// It takes the keys from the configuration of a node, as the node does: of several secrets the first, of token
/// keys the one that `renewal_kid` names.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SignArgs {
    /// The URL, with scheme and host, as clients request it.
    url: String,
    /// The configuration file of a node.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The time for which the URL is valid, such as 10m or 1d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = levada_types::parse_duration)]
    valid: Duration,
    /// The address of the client, if the signature is for one client.
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,
}

/// Signs.
///
/// # Errors
/// If the configuration cannot be used, or the site of the URL has no signed URLs.
pub(crate) fn run(args: &SignArgs) -> anyhow::Result<CommandStatus> {
    let settings = configuration::usable(&args.config)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let expires = now.saturating_add(args.valid).as_secs();
    writeln!(io::stdout(), "{}", signed(&settings, args, expires)?)?;
    Ok(CommandStatus::Success)
}

fn signed(settings: &Settings, args: &SignArgs, expires: u64) -> anyhow::Result<String> {
    let mut asked = ExplainedRequest::new(&args.url);
    let url = asked.resource();
    let url = url.with_context(|| format!("{:?} has no scheme and host", args.url))?;
    let host = url.host();
    let site = settings.site(without_port(host));
    let site = site.with_context(|| format!("no site has the host {host}"))?;
    asked.client = args.client.unwrap_or(asked.client);
    let route = asked.place(site, &url).0.number;
    let handling = route.map_or(&site.handling, |number| &site.routes.all[number].handling);
    let keys = handling.access.signed.as_ref();
    let keys = keys.with_context(|| match route {
        Some(number) => format!(
            "the route {} of {host} has no `signed_urls`: the URL needs no signature",
            site.routes.all[number].name
        ),
        None => format!("the site of {host} has no `signed_urls`: its URLs need no signature"),
    })?;
    let signed = RequestUrl { scheme: url.scheme(), host, target: url.target() };
    Ok(format!("{}{}", url.root(), keys.sign(&signed, args.client, expires)?))
}

const EXAMPLES: &str = "\
Examples:
  levada sign https://www.example.com/film.mp4 -c levada.toml
  levada sign https://www.example.com/film.mp4 -c levada.toml --valid 1d --client 192.0.2.7";
