//! The options of `levada lab faults`.

use std::time::Duration;

use clap::Args;
use levada_client::command::option::time;

/// Disturbs a cluster of real nodes under load, and verifies every byte that clients receive.
///
/// Nodes are killed, suspended and restarted, links become slow, disks full or damaged, clients stop
/// reading, and an origin lies. Each fault has limits on what clients may notice of it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FaultsArgs {
    /// Faults. By default all that this machine can make.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Length of each fault. The default is 3 minutes for kill and suspend, 1 minute for the others.
    #[arg(long, value_name = "TIME", default_value_if("quick", "true", "8s"), value_parser = time)]
    pub(crate) duration: Option<Duration>,
    /// Requests per second.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rate: u32,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u32,
    /// 8 seconds for each fault: done in less than three minutes.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints JSON; progress goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  levada lab faults --quick
  levada lab faults --only kill,suspend
  levada lab faults --only readers --duration 30s --json

It needs Linux. slow-link, one-way and disk-full need root, and are left out without it.

Exit codes:
  0  all limits hold
  1  a limit does not hold: a wrong or stale response, a failed request, or one of docs/lab/faults.md
  2  it could not run";
