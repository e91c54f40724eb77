//! The options of `levada demo`.

use std::path::PathBuf;

use clap::Args;

/// Runs a small CDN on this machine: an origin, nodes, clients, a flash crowd and a node that dies.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Nodes, each a process of its own (2 to 64).
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) nodes: usize,
    /// The policy that chooses the node of a request; `levada policies` lists them.
    #[arg(long, value_name = "NAME", default_value = levada_policy::DEFAULT_POLICY)]
    pub(crate) policy: String,
    /// A parameter of the policy, such as replicas=2; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Requests per second of the trace. The default suits the number of nodes, and a machine that is busy
    /// gets less.
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// Duration of the load, all phases together (10s to 1h).
    #[arg(long, value_name = "TIME", default_value = "40s")]
    pub(crate) duration: String,
    /// Replays this trace or access log instead of the generated trace.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Seeds the generated trace, the arrivals and the policies.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u32,
    /// Objects that the flash crowd requests (1 to 100).
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) hot: usize,
    /// Load of the flash crowd, in link capacities of a node (0 to 64).
    #[arg(long, value_name = "LINKS")]
    pub(crate) crowd: Option<f64>,
    /// Rate of the emulated link of each node: 40Mbit/s by default, less on a machine that is busy.
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<String>,
    /// Keeps nodes, origin and the load of the trace running afterwards, until ctrl-c.
    #[arg(long)]
    pub(crate) hold: bool,
    /// Prints the summary as one JSON object; progress goes to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  levada demo
  levada demo --policy r-chash --set replicas=1
  levada demo --trace access.log --nodes 6 --duration 1m
  levada demo --json | jq .hot_object
  levada demo --hold

Exit codes:
  0  every request got the right body
  1  some did not, or the demo was stopped before its end
  2  it could not run";
