//! `levada completions`: the shell's file that completes this command line.

use std::io::{self, Write as _};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use levada_client::command::CommandStatus;

use crate::cli::Cli;

/// Prints the completions of this command line for a shell.
///
/// Packages bring them along; this command is for other ways of installing.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Prints the file.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<CommandStatus> {
    // The generator panics when it cannot write, so that it writes to memory.
    let mut file = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "levada", &mut file);
    io::stdout().lock().write_all(&file)?;
    Ok(CommandStatus::Success)
}

const EXAMPLES: &str = "\
Examples:
  levada completions bash > ~/.local/share/bash-completion/completions/levada
  levada completions zsh > ~/.zfunc/_levada
  levada completions fish > ~/.config/fish/completions/levada.fish

Exit codes:
  0  done
  2  there is no such shell";
