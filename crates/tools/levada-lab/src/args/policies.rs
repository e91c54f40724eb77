//! The options of `levada lab policies`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use levada_client::command::option::{rate, time};

/// Compares policies in real processes: capacity, cold starts and crowds.
///
/// Two front-ends choose among cache nodes, each behind a link of limited rate, for requests that
/// arrive whether or not earlier ones have been answered. Next to every figure is the simulator's
/// for the same cluster.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PoliciesArgs {
    /// Policies of the front-ends.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "adaptive,bounded_hash,fdr,lard/r,maglev",
        default_value_if("quick", "true", "adaptive,fdr,bounded_hash")
    )]
    pub(crate) policy: Vec<String>,
    /// Events that the cluster meets.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "links,links-flash,disk,disk-flash,mixed,cold,crowd,killed",
        default_value_if("quick", "true", "disk,cold,crowd")
    )]
    pub(crate) scenario: Vec<PoliciesScenario>,
    /// Cache nodes.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(2..=32))]
    pub(crate) nodes: u8,
    /// The rate of each node's link.
    #[arg(long, value_name = "RATE", default_value = "4Mbit/s", value_parser = rate)]
    pub(crate) rate: u64,
    /// The first rate of a ramp, in requests per second.
    #[arg(long, value_name = "N", default_value_t = 110.0, value_parser = per_second)]
    pub(crate) from: f64,
    /// Time at the first rate before a ramp, a crowd or the first node that is killed.
    #[arg(long, value_name = "TIME", default_value = "30s", default_value_if("quick", "true", "15s"), value_parser = time)]
    pub(crate) warm_up: Duration,
    /// Length of a step of a ramp.
    #[arg(long, value_name = "TIME", default_value = "8s", default_value_if("quick", "true", "4s"), value_parser = time)]
    pub(crate) step: Duration,
    /// Length of a cold start, of a crowd, and of the time in which nodes are killed.
    #[arg(long, value_name = "TIME", default_value = "60s", default_value_if("quick", "true", "45s"), value_parser = time)]
    pub(crate) duration: Duration,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u32,
    /// Fewer policies and scenarios, and shorter times: done in less than ten minutes.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints a table in Markdown at the end: each figure with the simulator's.
    #[arg(long, conflicts_with = "json")]
    pub(crate) table: bool,
    /// Prints JSON; progress goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The events that the cluster meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoliciesScenario {
    /// The rate grows by a twentieth each step; only the nodes' links limit it.
    Links,
    /// The same, and a quarter of the requests ask for one of ten documents.
    LinksFlash,
    /// The rate grows, and each miss takes its time on the node's emulated disk.
    Disk,
    /// The same with a quarter of the requests for one of ten documents.
    DiskFlash,
    /// As `disk`, and the disk of every second node has half the speed.
    Mixed,
    /// Empty caches with disks meet 150 requests per second.
    Cold,
    /// Within one second, half of 170 requests per second are for one document.
    Crowd,
    /// Every 20 s of 130 requests per second the next node is killed, and started again after 5 s.
    Killed,
}

impl PoliciesScenario {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

fn per_second(text: &str) -> Result<f64, &'static str> {
    let rate = text.parse().ok().filter(|rate| (1.0..=10_000.0).contains(rate));
    rate.ok_or("a rate is a number from 1 to 10000")
}

const EXAMPLES: &str = "\
Examples:
  levada lab policies --quick
  levada lab policies --scenario disk,disk-flash --policy adaptive,bounded_hash
  levada lab policies --scenario crowd --policy adaptive --nodes 4 --seed 2 --json
  levada lab policies --table

It needs Linux, root, /dev/net/tun and iproute2.

Exit codes:
  0  the first policy is at least 0.95 of the best in every scenario
  1  it is not in one of them, or the simulator is wrong by more than a tenth or in the order
  2  it could not run";
