//! `levada lab anycast`: the experiments of WWW'09, with real connections on emulated networks.

mod disruptions;
mod purging;
mod sender;
mod synchronization;

use super::anycast_args::{AnycastArgs, AnycastCommand};
use crate::command::Verdict;

/// Runs the experiment.
///
/// # Errors
/// When it cannot run.
pub(super) fn run(args: &AnycastArgs) -> anyhow::Result<Verdict> {
    match &args.command {
        AnycastCommand::Disruptions(args) => disruptions::run(args),
        AnycastCommand::Purging(args) => purging::run(args),
        AnycastCommand::Synchronization(args) => synchronization::run(args),
    }
}
