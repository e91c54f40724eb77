//! `levada dns`: the name server of a configuration, and nothing else of it.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
};

use anyhow::Context as _;
use clap::Args;
use levada_client::command::CommandStatus;

use super::{configuration, default_config::DEFAULT_CONFIG, run::reader};

/// Answers DNS queries for the names of the CDN, without serving sites.
///
/// Each client gets the nodes of its region that are well: docs/operate/dns.md. The configuration is that of any node,
/// with its `[dns]`. TERM, INT and QUIT stop the server, HUP reloads zones and nodes. A node with `[dns]` in its
/// configuration is a name server by itself: `levada run`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DnsArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// An address for metrics.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
}

const EXAMPLES: &str = "\
Examples:
  levada dns -c levada.toml
  levada dns -c levada.toml --metrics 127.0.0.1:9153
  kdig @192.0.2.53 www.cdn.example.com +subnet=198.51.100.0/24

Exit codes:
  0  it was stopped
  2  it could not start: the configuration has errors, an address is taken";

/// Runs until a signal ends it.
///
/// # Errors
/// If the configuration cannot be used or the server cannot start.
pub(crate) fn run(args: &DnsArgs) -> anyhow::Result<CommandStatus> {
    let checked = configuration::load(&args.config)?;
    let _ = write!(io::stderr(), "{}", checked.report);
    let settings =
        checked.settings.with_context(|| format!("{} cannot be used", args.config.display()))?;
    levada_node::run_dns(settings, reader(args.config.clone()), args.metrics)?;
    Ok(CommandStatus::Success)
}
