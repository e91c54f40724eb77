//! The options of `levada lab cap`.

use clap::{Args, ValueEnum};

use levada_client::command::option::size;
use levada_testbed::options::PrototypeArgs;
use levada_types::ByteSize;

/// The prototype of WWW10: a Web switch and servers with files and services, in real processes.
///
/// Clients think between pages and request the embedded objects. Times are those of the emulated
/// servers. Next to every measurement is the simulator's result for the same cluster and clients.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    mut_arg("policy", |arg| {
        arg.default_value("cap,lard,weighted_round_robin,round_robin,bounded_hash,p2c").required(false)
    }),
    mut_arg("warm_up", |arg| arg.default_value("15s").required(false)),
    mut_arg("duration", |arg| arg.default_value("60s").required(false)),
    mut_arg("time_scale", |arg| arg.default_value("0.2").required(false))
)]
pub(crate) struct CapArgs {
    /// Servers.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub(crate) servers: u16,
    /// Clients, all of whom stay.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "160,240", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) clients: Vec<u16>,
    /// The mix of requests.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "static,light,intensive"
    )]
    pub(crate) mix: Vec<MixName>,
    /// Files of the site.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) files: u32,
    /// Capacity of a server's memory: all files, as of the paper's 128 MB.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub(crate) memory: ByteSize,
    #[command(flatten)]
    pub(crate) prototype: PrototypeArgs,
    /// Number of seeds from --seed on, each with its own site and requests. Lines are means.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) seeds: u8,
    /// Only CAP and LARD with 240 clients and the intensive mix, for half a minute in all.
    #[arg(long, conflicts_with_all = ["clients", "mix", "policy", "warm_up", "duration", "time_scale", "seeds"])]
    pub(crate) quick: bool,
}

/// The workloads of Sec. 5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MixName {
    /// Files only.
    Static,
    /// 80 % files, 20 % a service with light computation.
    Light,
    /// 80 % files, 10 % light computation, 6 % intensive computation, 4 % computation and disk.
    Intensive,
}

impl MixName {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Light => "light",
            Self::Intensive => "intensive",
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  levada lab cap --quick
  levada lab cap --mix intensive --clients 160,240 --policy cap,lard
  levada lab cap --mix light --seeds 1 --json
  levada lab cap --mix intensive --transport handoff

Exit codes:
  0  the statements of the paper hold: CAP serves at least 1.1 times what LARD does on the intensive mix, in the
     mean over the seeds
  1  one of them does not, a request failed, or the simulator is wrong by more than a fifth
  2  it could not run";
