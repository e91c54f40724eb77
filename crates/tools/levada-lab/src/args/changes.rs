//! The options of `levada lab changes`.

use std::time::Duration;

use clap::Args;
use levada_client::command::option::time;

/// Changes a cluster of real nodes under load: certificates, listeners, limits, sites, policies, peers.
///
/// The load comes over HTTP/1, HTTP/2 and TLS, on kept and on new connections, with small and large
/// responses. No request may be refused, fail or be cut.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChangesArgs {
    /// Changes. By default all.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Length of the load during each change. Before it, the same load is measured without a change.
    #[arg(long, value_name = "TIME", default_value = "15s", default_value_if("quick", "true", "1500ms"), value_parser = time)]
    pub(crate) duration: Duration,
    /// Requests per second.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rate: u32,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u32,
    /// Leaves out the front-end that hands connections off, which needs root.
    #[arg(long)]
    pub(crate) no_handoff: bool,
    /// 1.5 seconds for each change: done in less than a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints JSON; progress goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  levada lab changes --quick
  levada lab changes --only certificate,peer-added
  levada lab changes --duration 1m --json

It needs Linux. Without root, no connection is handed off.

Exit codes:
  0  no request was refused, failed, cut or wrong
  1  one was, or a change did not take effect
  2  it could not run";
