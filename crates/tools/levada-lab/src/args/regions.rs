//! The options of `levada lab regions`.

use std::time::Duration;

use clap::Args;
use levada_client::command::option::time;

/// Measures twelve real nodes in three regions: warm requests, requests at the origin, a region that is cut off, purges.
///
/// The round trips are 80 ms between eu and us, 150 ms between us and ap, and 200 ms between eu and ap; the origin is
/// in us. One cluster with regions and a shield is compared with one without them, and with a cluster for each region.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RegionsArgs {
    /// Arrangements of the nodes. By default all.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value_if("quick", "true", "shield")
    )]
    pub(crate) only: Vec<String>,
    /// Objects that every region requests at the same time, when no node has them.
    #[arg(long, value_name = "N", default_value_t = 300, default_value_if("quick", "true", "100"), value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) objects: u32,
    /// Requests of each region for what nodes have.
    #[arg(long, value_name = "N", default_value_t = 1000, default_value_if("quick", "true", "300"), value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) requests: u32,
    /// The time for which the long links of ap are cut.
    #[arg(long, value_name = "TIME", default_value = "30s", default_value_if("quick", "true", "6s"), value_parser = time)]
    pub(crate) cut: Duration,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u32,
    /// Fewer objects and requests, a shorter cut, and the arrangement with a shield only: done in half a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints JSON; progress goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  levada lab regions --quick
  levada lab regions --only shield --cut 1m
  levada lab regions --json

It needs Linux, root, /dev/net/tun and iproute2.

Exit codes:
  0  the cluster with a shield keeps all limits of docs/lab/regions.md
  1  it does not
  2  it could not run";
