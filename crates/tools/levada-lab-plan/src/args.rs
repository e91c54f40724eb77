//! The options of `levada lab plan`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use levada_client::command::option::{rate, size, time};
use levada_testbed::emulation::requests::Phase;
use levada_types::ByteSize;

/// Proves `levada plan` by real processes: four nodes are logged, the plan from their logs is run, and both compared.
///
/// `levada plan` predicts the figures of the logged cluster, and proposes one with fewer nodes that finds as much in memory.
/// Both meet fresh requests of the same kind, and each figure is compared with the predicted one.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanLabArgs {
    /// Requests per second.
    #[arg(long, value_name = "N", default_value_t = 100.0, value_parser = per_second)]
    pub(crate) rate: f64,
    /// Length of each of the four phases: log, fresh requests, filling of the planned cluster, fresh requests.
    #[arg(long, value_name = "TIME", default_value = "90s", default_value_if("quick", "true", "30s"), value_parser = time)]
    pub(crate) duration: Duration,
    /// Nodes that are logged.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=16))]
    pub(crate) nodes: u8,
    /// Documents, generated like Rice University's. With few, the log has nearly all of them.
    #[arg(long, value_name = "N", default_value_t = 1000, default_value_if("quick", "true", "500"), value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub(crate) documents: u32,
    /// Memory of each logged node. The default is a sixteenth of all documents, 1 MiB at least.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<ByteSize>,
    /// Time of the origin for each request.
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = time)]
    pub(crate) origin_latency: Duration,
    /// Rate of the origin's link, which all nodes share.
    #[arg(long, value_name = "RATE", default_value = "20Mbit/s", value_parser = rate)]
    pub(crate) origin_rate: u64,
    /// Keeps logs and configurations in this directory, which must not exist.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) output: Option<PathBuf>,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u32,
    /// Shorter phases and fewer documents: done in three minutes.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints JSON; progress goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

impl PlanLabArgs {
    /// The requests of each phase.
    pub(crate) fn phase(&self) -> Phase {
        Phase { rate: self.rate, length: self.duration, crowd: None }
    }
}

fn per_second(text: &str) -> Result<f64, &'static str> {
    let rate = text.parse().ok().filter(|rate| (1.0..=10_000.0).contains(rate));
    rate.ok_or("a rate is a number from 1 to 10000")
}

const EXAMPLES: &str = "\
Examples:
  levada lab plan --quick
  levada lab plan --rate 200 --duration 3m --seed 2
  levada lab plan --output logged && levada plan logged/*.log

It needs Linux, root, /dev/net/tun and iproute2.

Exit codes:
  0  every figure is predicted within the bounds of docs/lab/plan.md
  1  one is not
  2  it could not run";
