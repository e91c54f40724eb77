//! The options of `levada lab anycast`.

use clap::{Args, Subcommand};
use levada::config::text::{Rate, Size, Time};
use levada_net::wire::parse_loss;

use super::args::{rate, size, time};

/// The experiments of WWW'09: what a route that moves costs downloads, connections and queues.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AnycastArgs {
    #[command(subcommand)]
    pub(crate) command: AnycastCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AnycastCommand {
    Disruptions(DisruptionsArgs),
    Purging(PurgingArgs),
    Synchronization(SynchronizationArgs),
}

/// Sec. 4.1, Figure 5: throughput of a download whose connection is reset again and again.
///
/// Each download runs in real time on a network of its own; the whole figure takes hours, whatever the
/// machine, and about a twentieth of a core for each job.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DisruptionsArgs {
    /// Losses of what the server sends, one block each.
    #[arg(long, value_name = "LOSS,...", value_delimiter = ',', default_value = "0.01%,1%,10%", value_parser = parse_loss)]
    pub(crate) loss: Vec<f64>,
    /// Round-trip times, one line each.
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_value = "10ms,40ms,70ms,100ms", value_parser = time)]
    pub(crate) rtt: Vec<Time>,
    /// Ages at which connections are reset, one column each; never is always among them.
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_value = "30s,10s,2s,1s", value_parser = time)]
    pub(crate) reset: Vec<Time>,
    /// Downloads for each point; 10 in the paper.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) trials: u64,
    /// The file.
    #[arg(long, value_name = "SIZE", default_value = "50MB", value_parser = size)]
    pub(crate) size: Size,
    /// The wire.
    #[arg(long, value_name = "RATE", default_value = "10Mbit/s", value_parser = rate)]
    pub(crate) rate: Rate,
    /// Packets that may wait for it.
    #[arg(long, value_name = "PACKETS", default_value_t = 50)]
    pub(crate) queue: usize,
    /// A download is measured so long at most: those over poor paths are not waited for.
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = time)]
    pub(crate) limit: Time,
    /// Downloads at the same time.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) jobs: usize,
    /// What all chance follows from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sec. 4.2, Table 1: connections that are given up though their client is there.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PurgingArgs {
    /// Clients, each behind a path of its own; the last one's is very poor.
    #[arg(long, value_name = "N", default_value_t = 59)]
    pub(crate) clients: usize,
    /// The file.
    #[arg(long, value_name = "SIZE", default_value = "2MB", value_parser = size)]
    pub(crate) size: Size,
    /// How long the clients go on.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    pub(crate) duration: Time,
    /// What all chance follows from, the paths among it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sec. 4.3, Figure 8: many clients that come to one node at once.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SynchronizationArgs {
    /// Clients.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) clients: usize,
    /// The file of each.
    #[arg(long, value_name = "SIZE", default_value = "5.2MB", value_parser = size)]
    pub(crate) size: Size,
    /// What the node is behind.
    #[arg(long, value_name = "RATE", default_value = "50Mbit/s", value_parser = rate)]
    pub(crate) rate: Rate,
    /// The round trip.
    #[arg(long, value_name = "TIME", default_value = "0.2ms", value_parser = time)]
    pub(crate) rtt: Time,
    /// Packets that may wait.
    #[arg(long, value_name = "PACKETS", default_value_t = 600)]
    pub(crate) queue: usize,
    /// How long the queue is looked at.
    #[arg(long, value_name = "TIME", default_value = "80s", value_parser = time)]
    pub(crate) duration: Time,
    /// What all chance follows from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  levada lab anycast disruptions --rtt 20ms,100ms --loss 1% --trials 1 --jobs 10
  levada lab anycast purging --duration 2m --json
  levada lab anycast synchronization

Exit codes:
  0  what the paper says holds
  1  it does not, in this run
  2  it could not run: not root, no /dev/net/tun";
