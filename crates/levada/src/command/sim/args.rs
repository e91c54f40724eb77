//! The options of `levada sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use levada_config::text::{Rate, Size, Time};
use levada_curves::command::CacheArgs;

/// Simulates policies, numbers of servers and latencies.
///
/// The same policies and caches as in a node decide over simulated servers and a simulated network.
/// The same seed gives the same numbers.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: SimCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    List(ListArgs),
    Run(SimRunArgs),
    Paper(PaperArgs),
    Matrix(MatrixArgs),
    Large(LargeArgs),
    Cache(CacheArgs),
}

/// Lists scenarios, papers, topologies, workloads, metrics, policies and evictions.
#[derive(Args, Debug)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// Prints only one of the lists.
    #[arg(value_name = "LIST")]
    pub(crate) list: Option<List>,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum List {
    /// Scenario files that come with Levada.
    Scenarios,
    /// The papers' tables and figures.
    Papers,
    /// Networks.
    Topologies,
    /// Workloads: generated traces, and rules for the times of requests.
    Workloads,
    /// Metrics.
    Collectors,
    /// Policies that choose the server.
    Policies,
    /// Eviction algorithms.
    Evictions,
}

/// Runs a scenario, or several that differ in policy, servers or seed.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct SimRunArgs {
    /// The scenario file, or the name of one that comes with Levada; docs/simulate/scenarios.md describes its keys.
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenario: PathBuf,
    /// Policies instead of the file's, one run each. Parameters in the file apply only to the file's policy.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// Numbers of servers instead of the file's, one run each.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub(crate) servers: Vec<usize>,
    /// Seeds instead of the file's, one run each.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub(crate) seed: Vec<u64>,
    /// This many seeds, from the file's on. The report begins with the means, their intervals, and
    /// the differences that may be chance.
    #[arg(long, value_name = "N", conflicts_with = "seed", value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub(crate) seeds: Option<u16>,
    /// Any other key of the file, such as workload.rate=500; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Compares policies over many scenarios and seeds, relative to the best policy of each scenario.
///
/// A scenario with growing load is compared by the rate that it sustains, any other by the requests
/// that it finishes per second, a commerce site by its pages within 2.5 s. Next to it stands the 90th
/// percentile of latency in seconds; with growing load, at three quarters of what the best policy
/// sustains.
#[derive(Args, Debug)]
#[command(after_help = MATRIX_EXAMPLES)]
pub(crate) struct MatrixArgs {
    /// Scenario files. The default is the list that comes with Levada, examples/sim/matrix.
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenarios: Vec<PathBuf>,
    /// Only scenarios of the list whose names contain one of these texts.
    #[arg(long, value_name = "TEXT,...", value_delimiter = ',', conflicts_with = "scenarios")]
    pub(crate) only: Vec<String>,
    /// Policies, each with its parameters: `bounded_hash:order=ring`.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_values = MATRIX_POLICIES)]
    pub(crate) policy: Vec<String>,
    /// Number of seeds. Each draws other traces, clients and places in hash orders.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) seeds: u16,
    /// Only the first seed, and of the list only scenarios with at most 16 servers.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints JSON: each number of each seed.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also writes a page.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
}

/// The policies of a matrix unless others are named.
const MATRIX_POLICIES: [&str; 7] =
    ["adaptive", "fdr", "fdr-t-s", "bounded_hash", "lard/r", "least_conn", "p2c"];

/// Runs the tables and figures of a paper, and prints our results next to the paper's.
#[derive(Args, Debug)]
#[command(after_help = PAPER_EXAMPLES)]
pub(crate) struct PaperArgs {
    /// The paper.
    pub(crate) paper: String,
    /// Only this table; may be repeated. `levada sim list papers` lists the tables.
    #[arg(long, value_name = "N")]
    pub(crate) table: Vec<String>,
    /// Only this figure; may be repeated.
    #[arg(long, value_name = "N")]
    pub(crate) figure: Vec<String>,
    /// All tables and figures of the paper.
    #[arg(long, conflicts_with_all = ["table", "figure"])]
    pub(crate) all: bool,
    /// The main comparisons with few servers, for order and ratios only.
    #[arg(long, conflicts_with_all = ["table", "figure", "all"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Simulates large files in pieces: throughput, origin bytes and retries for given settings.
///
/// The transfers of a real node run over simulated nodes, links and an origin. Each seed is another file.
/// Every file is fetched first and cached, undisturbed, with one slow node, and with a node that dies.
#[derive(Args, Debug)]
#[command(after_help = LARGE_EXAMPLES)]
pub(crate) struct LargeArgs {
    /// Nodes of the cluster.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=256))]
    pub(crate) nodes: u16,
    /// Clients that ask at the same time, spread over the nodes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) clients: u16,
    /// Bytes in the file.
    #[arg(long, value_name = "SIZE", default_value = "50MB")]
    pub(crate) size: Size,
    /// Bytes in a piece, as `chunk_size` in `[site.large]`.
    #[arg(long, value_name = "SIZE", default_value = "512KiB")]
    pub(crate) piece: Size,
    /// Pieces of one transfer at once, as `window` in `[site.large]`.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) window: u16,
    /// Measures against slow pieces, as `retry` in `[site.large]`.
    #[arg(long, value_enum, default_value_t = Retry::Timeout)]
    pub(crate) retry: Retry,
    /// The rate of each node's link.
    #[arg(long, value_name = "RATE", default_value = "100Mbit/s")]
    pub(crate) node_rate: Rate,
    /// The round trip between two nodes.
    #[arg(long, value_name = "TIME", default_value = "20ms")]
    pub(crate) round_trip: Time,
    /// The rate of the origin's link.
    #[arg(long, value_name = "RATE", default_value = "50Mbit/s")]
    pub(crate) origin_rate: Rate,
    /// The round trip between a node and the origin; no less than half of that between two nodes.
    #[arg(long, value_name = "TIME", default_value = "40ms")]
    pub(crate) origin_round_trip: Time,
    /// How many times slower the slow node's link is.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) slower: u32,
    /// Files, each with other pieces at other nodes.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) seeds: u16,
    /// Prints JSON: each fetch of each file.
    #[arg(long)]
    pub(crate) json: bool,
}

/// As `retry` in `[site.large]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Retry {
    /// A late piece is given up and requested from another node.
    Timeout,
    /// A piece that blocks the window is requested from a second node as well.
    Hedge,
    /// A transfer uses only as much of the window as fills the client's link.
    Deadline,
}

/// Execution and storage of runs.
#[derive(Args, Debug)]
pub(crate) struct SweepArgs {
    /// Number of runs at a time. The default is one per core; each takes up to some hundred megabytes.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Directory of finished runs, so that the same command continues from there. The default is
    /// $XDG_CACHE_HOME/levada/sim, or ~/.cache/levada/sim.
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// Runs everything again, and ignores finished runs.
    #[arg(long)]
    pub(crate) fresh: bool,
}

/// The form of the output.
#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// Prints JSON: the tables, and all measurements of each run.
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Prints comma-separated values, a line for each number.
    #[arg(long)]
    pub(crate) csv: bool,
    /// Also writes a page with tables and figures.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  levada sim list
  levada sim run examples/sim/osdi02.toml --policy fdr,lr-hrw,random
  levada sim paper osdi02 --quick

Exit codes:
  0  done
  1  it ran, and a number is out of its tolerance, or it was stopped
  2  it could not run";

const LIST_EXAMPLES: &str = "\
Examples:
  levada sim list
  levada sim list papers
  levada sim list --json | jq '.topologies[].name'";

const RUN_EXAMPLES: &str = "\
Examples:
  levada sim run examples/sim/osdi02.toml
  levada sim run examples/sim/osdi02.toml --policy fdr,lr-hrw,p2c --servers 16,32 --html report.html
  levada sim run site.toml --set workload.trace=access.log.gz --set cache.memory=4GiB
  levada sim run site.toml --json | jq '.runs[0].outcome.readings'

Exit codes:
  0  done
  1  it ran, and some result does not mean what it says: it was overloaded, its trace ended; or it
     was stopped
  2  it could not run: the scenario has errors, a file cannot be read";

const MATRIX_EXAMPLES: &str = "\
Examples:
  levada sim matrix --quick
  levada sim matrix --only osdi02,rice --policy adaptive,bounded_hash,bounded_hash:order=ring
  levada sim matrix site.toml --seeds 5 --html matrix.html

Finished runs are kept; the same command goes on where it was stopped.

Exit codes:
  0  done
  1  it was stopped before its end
  2  it could not run";

const LARGE_EXAMPLES: &str = "\
Examples:
  levada sim large
  levada sim large --clients 60 --size 5MB
  levada sim large --window 32 --piece 256KiB --node-rate 1Gbit/s --origin-rate 200Mbit/s --json

Exit codes:
  0  done
  2  it could not run";

const PAPER_EXAMPLES: &str = "\
Examples:
  levada sim paper osdi02 --quick
  levada sim paper osdi02 --figure 5 --html fig5.html
  levada sim paper osdi02 --all --csv > osdi02.csv

Exit codes:
  0  every number and claim is within its tolerance
  1  some are not, or it was stopped; finished rows are kept
  2  it could not run";
