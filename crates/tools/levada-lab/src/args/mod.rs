//! The options of `levada lab`, which every system has.

pub(crate) mod anycast;
pub(crate) mod cap;
pub(crate) mod changes;
pub(crate) mod faults;
pub(crate) mod lard;
pub(crate) mod policies;
pub(crate) mod regions;

use std::{net::Ipv4Addr, time::Duration};

use clap::{Args, Subcommand};
use levada_client::command::option::{rate, time};
use levada_lab_plan::PlanLabArgs;
use levada_net::wire::parse_loss;
use levada_testbed::options::BackendArgs;

use self::{
    anycast::AnycastArgs, cap::CapArgs, changes::ChangesArgs, faults::FaultsArgs, lard::LardArgs,
    policies::PoliciesArgs, regions::RegionsArgs,
};

/// Runs real programs on emulated networks, and before emulated servers, within this machine
/// (Linux).
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    Wire(WireArgs),
    Anycast(AnycastArgs),
    Lard(LardArgs),
    Cap(CapArgs),
    Policies(PoliciesArgs),
    Plan(PlanLabArgs),
    Faults(FaultsArgs),
    Changes(ChangesArgs),
    Regions(RegionsArgs),
    Backend(BackendArgs),
}

/// Runs a command behind an emulated link with a rate, a delay, a queue and losses.
///
/// This machine, or a host of its own with --server, is at the other end.
#[derive(Args, Debug)]
#[command(after_help = WIRE_EXAMPLES)]
pub(crate) struct WireArgs {
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// The loss rate of packets that the command sends. The default is --loss.
    #[arg(long, value_name = "LOSS", value_parser = parse_loss)]
    pub(crate) ack_loss: Option<f64>,
    /// The congestion control of senders on emulated hosts.
    #[arg(long, value_name = "NAME", default_value = "reno")]
    pub(crate) congestion: String,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// A program for the other end, run by `sh` on a host of its own.
    #[arg(long, value_name = "SHELL COMMAND")]
    pub(crate) server: Option<String>,
    /// The network of the link: the other end has the first address, the command the second.
    #[arg(long, value_name = "A.B.C.0", default_value = "10.213.7.0", value_parser = network)]
    pub(crate) network: Ipv4Addr,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// The properties of a path, in each direction.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PathArgs {
    /// Bits or bytes per second, such as 10Mbit/s. The default is unlimited.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Delay in one direction.
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = time)]
    pub(crate) delay: Duration,
    /// The loss rate of packets: 1% or 0.01.
    #[arg(long, value_name = "LOSS", default_value = "0", value_parser = parse_loss)]
    pub(crate) loss: f64,
    /// Packets that may wait for the rate.
    #[arg(long, value_name = "PACKETS", default_value_t = 50)]
    pub(crate) queue: usize,
}

fn network(text: &str) -> Result<Ipv4Addr, String> {
    match text.parse::<Ipv4Addr>() {
        Ok(address) if address.octets()[3] == 0 => Ok(address),
        _ => Err("a network of 24 bits, such as 10.213.7.0".to_owned()),
    }
}

const EXAMPLES: &str = "\
Examples:
  levada lab wire --rate 10Mbit/s --delay 25ms --loss 1% -- curl http://10.213.7.1:8080/
  levada lab anycast disruptions --rtt 50ms --loss 1% --trials 1
  levada lab lard --quick
  levada lab cap --quick
  levada lab policies --quick
  levada lab plan --quick
  levada lab faults --quick
  levada lab regions --quick

Emulated networks need Linux, root, /dev/net/tun and iproute2; emulated servers need Linux only.
No network and no process is left when the command ends, even if it is killed.

Exit codes:
  2  it could not run";

const WIRE_EXAMPLES: &str = "\
Examples:
  levada lab wire --rate 10Mbit/s --delay 25ms -- curl -o file http://10.213.7.1:8080/file
  levada lab wire --loss 1% --seed 7 --server 'exec levada run -c node.toml' -- bash
  levada lab wire --delay 50ms -- sh -c 'ping -c 3 $LEVADA_WIRE_FAR'

Exit codes: the command's own, and
  2  it could not run: not root, no /dev/net/tun, no such command";
