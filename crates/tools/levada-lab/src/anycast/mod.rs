//! `levada lab anycast`: the experiments of WWW'09, with real connections on emulated networks.

mod disruptions;
mod purging;
mod sender;
mod switch;
mod synchronization;
mod vanishing;

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use anyhow::Context as _;

use super::args::anycast::{AnycastArgs, AnycastCommand, EveryArgs};
use levada_client::command::{CommandStatus, content::Verifier};
use levada_report::chart::{Figure, Page};

/// Runs the experiment.
///
/// # Errors
/// If it cannot run.
pub(super) fn run(args: &AnycastArgs) -> anyhow::Result<CommandStatus> {
    match &args.command {
        AnycastCommand::Disruptions(args) => disruptions::run(args),
        AnycastCommand::Purging(args) => purging::run(args),
        AnycastCommand::Synchronization(args) => synchronization::run(args),
        AnycastCommand::Switch(args) => switch::run(args),
        AnycastCommand::Vanishing(args) => vanishing::run(args),
    }
}

/// Draws figures, if requested.
fn draw(
    args: &EveryArgs,
    title: &str,
    figures: impl IntoIterator<Item = Figure>,
) -> anyhow::Result<()> {
    let Some(path) = &args.plot else { return Ok(()) };
    let sentence = "After \"Anycast Aware Transport for Content Delivery Networks\" (WWW'09), measured by \
                    the run that drew this.";
    let mut page = Page::new(title, sentence);
    figures.into_iter().for_each(|figure| page.figure(&figure));
    fs::write(path, page.finish()).with_context(|| format!("cannot write {}", path.display()))
}

/// Whether a file equals the object of the experiments' server, byte for byte.
fn is_whole(path: &Path, size: u64) -> io::Result<bool> {
    let (mut file, mut buffer) = (File::open(path)?, vec![0; 1 << 20]);
    let mut verifier = Verifier::new(sender::KEY);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(verifier.is_whole(size)),
            count => verifier.take(&buffer[..count]),
        }
    }
}
