//! The options of `levada lab lard`.

use std::path::PathBuf;

use clap::Args;

use levada_client::command::option::size;
use levada_testbed::options::PrototypeArgs;
use levada_types::ByteSize;

/// The prototype of ASPLOS'98: a front-end and back-ends with bounded memories, in real processes.
///
/// Times are those of the emulated servers. Next to every measurement is the simulator's result for the
/// same cluster, trace and policy.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    mut_arg("policy", |arg| arg.default_value("wrr,lard,lard/r,bounded_hash,p2c").required(false)),
    mut_arg("warm_up", |arg| arg.default_value("15s").required(false)),
    mut_arg("duration", |arg| arg.default_value("30s").required(false)),
    mut_arg("time_scale", |arg| arg.default_value("1").required(false))
)]
pub(crate) struct LardArgs {
    /// Back-ends.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "4,8", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) nodes: Vec<u16>,
    /// Replays this trace or access log instead of one like Rice University's.
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    pub(crate) trace: Option<PathBuf>,
    /// Files of the generated trace.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(100..=37_703))]
    pub(crate) files: u32,
    /// Capacity of a back-end's memory. By default it holds the same part of all files as the
    /// paper's 32 MB of Rice's 1418 MB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<ByteSize>,
    #[command(flatten)]
    pub(crate) prototype: PrototypeArgs,
    /// Clients, each with one request at a time. The default is (n - 1) T_high + T_low - 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: Option<u32>,
    /// Runs only WRR and LARD/R on 4 back-ends, for half a minute in all.
    #[arg(long, conflicts_with_all = ["nodes", "policy", "warm_up", "duration", "time_scale"])]
    pub(crate) quick: bool,
}

const EXAMPLES: &str = "\
Examples:
  levada lab lard --quick
  levada lab lard --nodes 4,8 --policy wrr,lard/r
  levada lab lard --nodes 10 --policy lard/r --transport handoff
  levada lab lard --nodes 4 --policy lard/r --transport handoff-on
  levada lab lard --trace access.log --memory 4MiB --time-scale 2 --json

Exit codes:
  0  the statements of the paper hold: LARD/R serves at least twice what WRR does
  1  one of them does not, a request failed, or the simulator is wrong by more than a fifth
  2  it could not run";
