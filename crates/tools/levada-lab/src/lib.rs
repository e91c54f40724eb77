//! `levada lab`: real programs on emulated networks.

#[cfg(target_os = "linux")]
mod anycast;
#[path = "anycast/args.rs"]
mod anycast_args;
mod args;
#[cfg(target_os = "linux")]
mod cap;
#[path = "cap/args.rs"]
mod cap_args;
#[cfg(target_os = "linux")]
mod changes;
#[path = "changes/args.rs"]
mod changes_args;
#[cfg(target_os = "linux")]
mod cluster;
#[cfg(target_os = "linux")]
mod emulation;
#[path = "emulation/args.rs"]
mod emulation_args;
#[cfg(target_os = "linux")]
mod faults;
#[path = "faults/args.rs"]
mod faults_args;
#[cfg(target_os = "linux")]
mod lard;
#[path = "lard/args.rs"]
mod lard_args;
#[cfg(target_os = "linux")]
mod policies;
#[path = "policies/args.rs"]
mod policies_args;
#[cfg(target_os = "linux")]
mod wire;

use levada_client::command::CommandStatus;

pub use self::args::LabArgs;
use self::args::LabCommand;

/// Runs the subcommand.
///
/// # Errors
/// If it cannot run, for example without root.
#[cfg(target_os = "linux")]
pub fn run(args: &LabArgs) -> anyhow::Result<CommandStatus> {
    match &args.command {
        LabCommand::Wire(args) => wire::run(args),
        LabCommand::Anycast(args) => anycast::run(args),
        LabCommand::Lard(args) => lard::run(args),
        LabCommand::Cap(args) => cap::run(args),
        LabCommand::Policies(args) => policies::run(args),
        LabCommand::Faults(args) => faults::run(args),
        LabCommand::Changes(args) => changes::run(args),
        LabCommand::Backend(args) => emulation::backend::run(args),
    }
}

/// Reports that it cannot run.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn run(_args: &LabArgs) -> anyhow::Result<CommandStatus> {
    anyhow::bail!("emulated networks need Linux: network namespaces and TUN devices")
}
