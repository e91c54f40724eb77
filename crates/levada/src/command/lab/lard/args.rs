//! The options of `levada lab lard`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use levada::config::text::{Size, Time};

use crate::command::lab::{
    args::{size, time},
    emulation_args::{MachineArgs, factor},
};

/// The prototype of ASPLOS'98: a front-end and back-ends with bounded memories, in real processes.
///
/// Times are those of the emulated servers. Beside every measurement stands what the simulator says of
/// the same cluster, trace and policy.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LardArgs {
    /// Back-ends.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "4,8", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) nodes: Vec<u16>,
    /// Policies of the front-end.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "wrr,lard,lard/r,bounded_hash,p2c"
    )]
    pub(crate) policy: Vec<String>,
    /// Replays this trace or access log instead of one like Rice University's.
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    pub(crate) trace: Option<PathBuf>,
    /// Files of the generated trace.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(100..=37_703))]
    pub(crate) files: u32,
    /// What a back-end's memory holds. The part of all files that the paper's 32 MB are of Rice's
    /// 1418 MB when not given.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<Size>,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// Clients, each with one request at a time: (n - 1) T_high + T_low - 1 when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: Option<u32>,
    /// What happens before is not measured.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = time)]
    pub(crate) warm_up: Time,
    /// How long is measured.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) duration: Time,
    /// Seconds that an emulated second takes: more where the machine is the limit.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub(crate) time_scale: f64,
    /// How requests get to back-ends: through the front-end, or by handing their connections over, on
    /// an emulated network (as root).
    #[arg(long, value_name = "HOW", default_value = "proxy")]
    pub(crate) transport: Transport,
    /// Clients make a connection for each request; when connections are handed over, they always do.
    #[arg(long)]
    pub(crate) connection_per_request: bool,
    /// Only WRR and LARD/R on 4 back-ends, for half a minute in all.
    #[arg(long, conflicts_with_all = ["nodes", "policy", "warm_up", "duration", "time_scale"])]
    pub(crate) quick: bool,
    /// What all chance follows from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u32,
    /// Prints JSON; what happens meanwhile goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How requests get to back-ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// The front-end passes requests and answers on.
    Proxy,
    /// The front-end hands the connection over, and the back-end answers the client (Sec. 5).
    Handoff,
}

const EXAMPLES: &str = "\
Examples:
  levada lab lard --quick
  levada lab lard --nodes 4,8 --policy wrr,lard/r
  levada lab lard --nodes 4 --policy lard/r --transport handoff
  levada lab lard --trace access.log --memory 4MiB --time-scale 2 --json

Exit codes:
  0  what the paper says holds: LARD/R serves at least twice what WRR does
  1  it does not, a request failed, or the simulator is wrong by more than a fifth
  2  it could not run";
