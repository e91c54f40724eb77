//! The project's own chores: `cargo xtask ci`, `docs`, `tidy`, `dist`.

mod ci;
mod dist;
mod docs;
mod pages;
mod source;
mod tidy;
mod workspace;

use std::{env, process::ExitCode};

const USAGE: &str = "\
usage: cargo xtask <ci [--quick] | docs | tidy [--figures] | dist>

  ci    all checks that a change must pass: format, tidy, dependencies, lints, the oldest Rust, fuzz
        targets, documentation, tests; with --quick, those of what differs from the main branch
  docs  writes the generated parts of docs/ anew
  tidy  what the compiler does not check: purity, import cycles, sizes of crates, names, prose,
        registries, generated documents; with --figures, prints the figures instead
  dist  builds target/dist/levada as packages ship it, optimised by a run under load";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci::run(),
        ["ci", "--quick"] => ci::quick(),
        ["docs"] => docs::write(),
        ["tidy"] => tidy::run(),
        ["tidy", "--figures"] => tidy::figures(),
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
