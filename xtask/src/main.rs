//! The project's own chores: `cargo xtask ci`, `docs`, `tidy`, `dist`.

mod ci;
mod dist;
mod docs;
mod pages;
mod tidy;

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, ensure};

const USAGE: &str = "\
usage: cargo xtask <ci | docs | tidy | dist>

  ci    all checks that a change must pass: format, lints, tidy, documentation, tests
  docs  writes the generated parts of docs/ anew
  tidy  what the compiler does not check: purity, registries, generated documents
  dist  builds target/dist/levada as packages ship it, optimised by a run under load";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci::run(),
        ["docs"] => docs::write(),
        ["tidy"] => tidy::run(),
        ["dist"] => dist::build(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the source.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Cargo, the one that runs us, in the root of the source.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs `command` to its end; what it prints is seen.
fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}
