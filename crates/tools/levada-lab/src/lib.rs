//! `levada lab`: real programs on emulated networks.

#[cfg(target_os = "linux")]
mod anycast;
mod args;
#[cfg(target_os = "linux")]
mod cap;
#[cfg(target_os = "linux")]
mod changes;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod lard;
#[cfg(target_os = "linux")]
mod policies;
#[cfg(target_os = "linux")]
mod regions;
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
        LabCommand::Plan(args) => levada_lab_plan::run(args),
        LabCommand::Faults(args) => faults::run(args),
        LabCommand::Changes(args) => changes::run(args),
        LabCommand::Regions(args) => regions::run(args),
        LabCommand::Backend(args) => levada_testbed::emulation::backend::run(args),
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
