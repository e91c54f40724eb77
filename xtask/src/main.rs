//! The project's own chores: `cargo xtask ci`, `docs`, `tidy`, `dist`.

mod book;
mod ci;
mod commits;
mod cost;
mod dist;
mod oldest;
mod release;
mod source;
mod tidy;
mod workspace;

use std::{env, path::Path, process::ExitCode};

const USAGE: &str = "\
usage: cargo xtask <test | ci [--quick] | docs | tidy [--figures] | commits RANGE | dist [--program FILE] | packages | python | oldest | advisories | cost [--write] [ROW...] | book | release-notes VERSION>

  test  the checks that are enough for most changes: format, tidy, lints, tests
  ci    all checks that a change must pass: those of `test`, then costs, dependencies, packages of
        crates, documentation, the book, the Python package, the Debian package; with --quick,
        format and tidy, and lints and tests of what differs from the main branch
  docs  writes the documents that are made from declarations
  tidy  what the compiler does not check: purity, import cycles, sizes of crates, names, prose,
        registries, generated documents; with --figures, prints the figures instead
  commits
        checks that each commit of a range such as main..HEAD builds by itself, and prints their size
  dist  builds target/dist/levada as packages ship it, optimised by a run under load, and packs it:
        target/packages/ has a deb, an rpm, an archive and checksums; with --program, packs that
        program and builds nothing
  packages
        the last of the checks alone: a Debian package of the debug build, in a clean Debian
  python
        the check of the Python package alone
  oldest
        the workspace compiles with the oldest Rust that Cargo.toml promises
  advisories
        known vulnerabilities of dependencies, by a database of at most 30 days, as a release needs it
  cost  compares what requests cost with bench/cost.toml, by callgrind and the release
        build; with --write, writes the figures there; with parts of names, some rows only; with
        --gate, the rows of the checks, on the program of the tests
  book  builds docs/book by mdBook, without warnings
  release-notes
        prints what CHANGELOG.md says of a version, if it is that of Cargo.toml";

/// A test compares these documents with the declarations, and writes them if asked to.
fn docs() -> anyhow::Result<()> {
    let test = ["test", "--workspace", "--test", "commands", "generated::generated"];
    workspace::succeed(workspace::cargo(&test).env("UPDATE_EXPECT", "1"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => ci::test(),
        ["ci"] => ci::run(),
        ["ci", "--quick"] => ci::quick(),
        ["packages"] => ci::packages(),
        ["python"] => ci::python(),
        ["oldest"] => oldest::check(),
        ["advisories"] => ci::advisories(),
        ["cost", ref arguments @ ..] => cost::run(arguments),
        ["book"] => book::build(),
        ["book-links"] => book::link_to_source(),
        // mdBook asks whether its renderer is supported.
        ["book-links", "supports", _] => Ok(()),
        ["release-notes", version] => release::notes(version),
        ["docs"] => docs(),
        ["commits", range] => commits::check(range),
        ["tidy"] => tidy::run(),
        ["tidy", "--figures"] => tidy::figures(),
        ["dist"] => dist::build(),
        ["dist", "--program", file] => dist::pack(Path::new(file)),
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
