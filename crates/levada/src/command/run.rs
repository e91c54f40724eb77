//! `levada run`: a node, from its configuration to its end.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use levada_config::SettingsReader;
use levada_fleet::Home;
use levada_node::{Predecessor, WatchedFiles};

use super::configuration::{self, start_error};
use crate::cli::RunArgs;
use levada_client::command::{CommandStatus, end_with_stdin};

/// Runs a node until a signal ends it.
///
/// # Errors
/// If the configuration cannot be used or the node cannot start. The problems of the configuration
/// have been printed then.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<CommandStatus> {
    let predecessor = Predecessor::meet()?;
    if args.stop_with_stdin {
        end_with_stdin()?;
    }
    let follower = |directory| levada_fleet_cli::follower(directory, &start_error);
    let follower = args.fleet.as_deref().map(follower).transpose()?;
    let file = match &args.fleet {
        Some(directory) => Home::new(directory).configuration(),
        None => args.config.clone(),
    };
    // Before they are read: no change is missed.
    let watched = WatchedFiles::new(args.watch.clone());
    let checked = configuration::load(&file)?;
    // The process that reads standard error during an upgrade may have ended.
    let _ = write!(io::stderr(), "{}", checked.report);
    let settings =
        checked.settings.with_context(|| format!("{} cannot be used", file.display()))?;
    // The edge logs its addresses; no caller waits for it to be ready.
    levada_node::run(settings, reader(file), predecessor, follower, watched, |_addresses| {})?;
    Ok(CommandStatus::Success)
}

/// Reads the file again.
pub(super) fn reader(file: PathBuf) -> SettingsReader {
    SettingsReader(Box::new(move || {
        let checked = configuration::load(&file).map_err(|error| format!("{error:#}"))?;
        checked.settings.ok_or_else(|| checked.report.to_string().trim_end().to_owned())
    }))
}
