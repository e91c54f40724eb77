//! The options of `levada lab anycast`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use levada_client::command::option::{rate, size, time};
use levada_net::wire::parse_loss;
use levada_types::ByteSize;

/// The experiments of WWW'09: the cost of a moving route for downloads, connections and queues.
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
    Switch(SwitchArgs),
    Vanishing(VanishingArgs),
}

/// Sec. 5: the state that thousands of vanishing clients leave at a node, and its lifetime.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VanishingArgs {
    /// Clients, each in the middle of a download.
    #[arg(long, value_name = "N", default_value_t = 10_000, default_value_if("quick", "true", "500"), value_parser = at_least_one)]
    pub(crate) clients: usize,
    /// The rate of the link of another transfer.
    #[arg(long, value_name = "RATE", default_value = "100Mbit/s", value_parser = rate)]
    pub(crate) rate: u64,
    #[command(flatten)]
    pub(crate) every: EveryArgs,
}

/// Options of every experiment.
#[derive(Args, Debug)]
pub(crate) struct EveryArgs {
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Uses smaller defaults: done in a minute or two, and too little for conclusions.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Writes the figures to an HTML page.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// A real switch: downloads run while the route to their node is moved to another by its controller.
///
/// Two nodes with one address, each with a BGP daemon; unmodified curl, wget and aria2c next to
/// `levada get`, as far as they are installed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SwitchArgs {
    /// Downloads by each program.
    #[arg(long, value_name = "N", default_value_t = 3, default_value_if("quick", "true", "1"), value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) downloads: u32,
    /// Number of moves of the route: to the other node, and back.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) moves: u32,
    /// Time before each move.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time)]
    pub(crate) pause: Duration,
    /// The BGP daemon that announces the route.
    #[arg(long, value_enum, value_name = "DAEMON", default_value_t = Daemon::Bird)]
    pub(crate) daemon: Daemon,
    /// Size of the file.
    #[arg(long, value_name = "SIZE", default_value = "10MB", value_parser = size)]
    pub(crate) size: ByteSize,
    /// Rate of the link that all downloads share.
    #[arg(long, value_name = "RATE", default_value = "80Mbit/s", value_parser = rate)]
    pub(crate) rate: u64,
    /// The round trip.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    pub(crate) rtt: Duration,
    #[command(flatten)]
    pub(crate) every: EveryArgs,
}

/// A BGP daemon next to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Daemon {
    /// Controlled over its control socket.
    Bird,
    /// Controlled by a process that it runs.
    Exabgp,
}

/// Sec. 4.1, Figure 5: throughput of a download whose connection is reset again and again.
///
/// Each download runs in real time on a network of its own; the whole figure takes hours, whatever the
/// machine, and about a twentieth of a core for each job.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DisruptionsArgs {
    /// Loss rates of the server's packets, one block each.
    #[arg(long, value_name = "LOSS,...", value_delimiter = ',', default_value = "0.01%,1%,10%", default_value_if("quick", "true", "1%"), value_parser = parse_loss)]
    pub(crate) loss: Vec<f64>,
    /// Round-trip times, one line each.
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_value = "10ms,40ms,70ms,100ms", default_value_if("quick", "true", "20ms,100ms"), value_parser = time)]
    pub(crate) rtt: Vec<Duration>,
    /// Ages at which connections are reset, one column each; "never" is always one of them.
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_value = "30s,10s,2s,1s", default_value_if("quick", "true", "10s,1s"), value_parser = time)]
    pub(crate) reset: Vec<Duration>,
    /// Downloads for each point; 10 in the paper.
    #[arg(long, value_name = "N", default_value_t = 3, default_value_if("quick", "true", "1"), value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) trials: u64,
    /// Size of the file.
    #[arg(long, value_name = "SIZE", default_value = "50MB", value_parser = size)]
    pub(crate) size: ByteSize,
    /// Rate of the link.
    #[arg(long, value_name = "RATE", default_value = "10Mbit/s", value_parser = rate)]
    pub(crate) rate: u64,
    /// Packets that may wait for the link.
    #[arg(long, value_name = "PACKETS", default_value_t = 50)]
    pub(crate) queue: usize,
    /// The longest measurement of a download: downloads over poor paths are cut off.
    #[arg(long, value_name = "TIME", default_value = "120s", default_value_if("quick", "true", "30s"), value_parser = time)]
    pub(crate) limit: Duration,
    /// Downloads at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one)]
    pub(crate) jobs: usize,
    #[command(flatten)]
    pub(crate) every: EveryArgs,
}

/// Sec. 4.2, Table 1: connections that are given up although their client is still present.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PurgingArgs {
    /// Clients, each behind a path of its own; the last one's is very poor.
    #[arg(long, value_name = "N", default_value_t = 59, default_value_if("quick", "true", "20"), value_parser = at_least_one)]
    pub(crate) clients: usize,
    /// Size of the file.
    #[arg(long, value_name = "SIZE", default_value = "2MB", value_parser = size)]
    pub(crate) size: ByteSize,
    /// Time that the clients run.
    #[arg(long, value_name = "TIME", default_value = "5m", default_value_if("quick", "true", "1m"), value_parser = time)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) every: EveryArgs,
}

/// Sec. 4.3, Figure 8: many clients that reach one node at once.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SynchronizationArgs {
    /// Clients.
    #[arg(long, value_name = "N", default_value_t = 1000, default_value_if("quick", "true", "200"), value_parser = at_least_one)]
    pub(crate) clients: usize,
    /// Size of each client's file.
    #[arg(long, value_name = "SIZE", default_value = "5.2MB", value_parser = size)]
    pub(crate) size: ByteSize,
    /// Rate of the node's link.
    #[arg(long, value_name = "RATE", default_value = "50Mbit/s", value_parser = rate)]
    pub(crate) rate: u64,
    /// The round trip.
    #[arg(long, value_name = "TIME", default_value = "0.2ms", value_parser = time)]
    pub(crate) rtt: Duration,
    /// Packets that may wait.
    #[arg(long, value_name = "PACKETS", default_value_t = 600)]
    pub(crate) queue: usize,
    /// Time that the queue is sampled.
    #[arg(long, value_name = "TIME", default_value = "80s", default_value_if("quick", "true", "20s"), value_parser = time)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) every: EveryArgs,
}

fn at_least_one(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|count| *count > 0).ok_or("a whole number of at least 1")
}

const EXAMPLES: &str = "\
Examples:
  levada lab anycast disruptions --rtt 20ms,100ms --loss 1% --trials 1 --jobs 10
  levada lab anycast purging --duration 2m --json
  levada lab anycast synchronization
  levada lab anycast switch --daemon exabgp
  levada lab anycast vanishing --clients 10000

Exit codes:
  0  the statements of the paper hold
  1  one of them does not, in this run
  2  it could not run: not root, no /dev/net/tun";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Lab {
        #[command(flatten)]
        anycast: AnycastArgs,
    }

    fn parsed(words: &str) -> Result<AnycastCommand, clap::Error> {
        Ok(Lab::try_parse_from(words.split(' '))?.anycast.command)
    }

    #[test]
    fn what_would_measure_nothing_is_refused() {
        for words in [
            "lab disruptions --jobs 0",
            "lab disruptions --trials 0",
            "lab purging --clients 0",
            "lab synchronization --clients 0",
            "lab switch --downloads 0",
            "lab vanishing --clients 0",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
    }

    #[test]
    fn quick_changes_what_is_not_given() {
        let Ok(AnycastCommand::Disruptions(args)) = parsed("lab disruptions --quick --trials 2")
        else {
            panic!("it is understood")
        };
        assert_eq!((args.trials, args.rtt.len()), (2, 2));
        let Ok(AnycastCommand::Disruptions(args)) = parsed("lab disruptions") else {
            panic!("it is understood")
        };
        assert_eq!((args.trials, args.rtt.len()), (3, 4));
    }
}
