//! `levada man`: the manual pages, one for each command, from the texts of `--help`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_mangen::Man;
use levada_client::command::CommandStatus;

use crate::cli::Cli;

/// Writes the manual pages, one for each command.
///
/// Packages bring them along; this command is for other ways of installing.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// The directory for the pages. It is created if it does not exist.
    directory: PathBuf,
}

/// Writes the pages.
///
/// # Errors
/// When the directory cannot be made or written.
pub(crate) fn run(args: &ManArgs) -> anyhow::Result<CommandStatus> {
    fs::create_dir_all(&args.directory)
        .and_then(|()| {
            let mut levada = Cli::command().disable_help_subcommand(true);
            // Names subcommands in full.
            levada.build();
            write(&levada, &args.directory)
        })
        .with_context(|| format!("cannot write to {}", args.directory.display()))?;
    Ok(CommandStatus::Success)
}

/// Writes the page of `command` and of all commands below it.
fn write(command: &clap::Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below, directory)?;
    }
    let source = concat!("levada ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source).manual("Levada").generate_to(directory)?;
    Ok(())
}

const EXAMPLES: &str = "\
Examples:
  levada man ~/.local/share/man/man1
  man levada-run

Exit codes:
  0  done
  2  the directory cannot be written";
