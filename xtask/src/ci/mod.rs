//! All checks that a change must pass: the quickest first and the tests last, so that their output is
//! at the end. Every step prints its time, and the whole prints the total.

mod dependencies;
mod fuzz;
mod oldest;
mod packages;
mod python;
mod quick;
mod tests;

use std::time::Instant;

use anyhow::Context as _;

pub(crate) use packages::check as packages;
pub(crate) use python::check as python;
pub(crate) use quick::run as quick;

use crate::{
    book, tidy,
    workspace::{cargo, succeed},
};

/// The name of a check, and the check.
type Step<'a> = (&'a str, Box<dyn Fn() -> anyhow::Result<()> + 'a>);

/// Runs every step until one fails.
///
/// # Errors
/// That of the step that failed.
pub(crate) fn run() -> anyhow::Result<()> {
    take(vec![
        ("format", Box::new(format)),
        ("tidy", Box::new(tidy::run)),
        ("dependencies", Box::new(dependencies::check)),
        ("lints", Box::new(|| lint(&["--workspace"]))),
        ("oldest Rust", Box::new(oldest::check)),
        ("fuzz targets", Box::new(fuzz::check)),
        ("crates", Box::new(crates)),
        ("documentation", Box::new(documentation)),
        ("book", Box::new(book::build)),
        ("tests", Box::new(|| tests::run(&["--workspace"]))),
        ("Python", Box::new(python::check)),
        ("packages", Box::new(packages::check)),
    ])
}

fn take(steps: Vec<Step<'_>>) -> anyhow::Result<()> {
    let start = Instant::now();
    for (name, step) in steps {
        eprintln!("xtask: {name}");
        let begin = Instant::now();
        let result = step();
        let passed = if result.is_ok() { "passed" } else { "failed" };
        eprintln!("xtask: {name} {passed} after {:.1} s", begin.elapsed().as_secs_f64());
        result.context(name.to_owned())?;
    }
    eprintln!("xtask: all passed after {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn format() -> anyhow::Result<()> {
    succeed(&mut cargo(&["fmt", "--all", "--check"]))
}

/// Clippy on these packages. It knows `rust-version`, and refuses what is newer in the standard
/// library (`incompatible_msrv`).
fn lint(packages: &[&str]) -> anyhow::Result<()> {
    let arguments = [&["clippy"], packages, &["--all-targets", "--", "-D", "warnings"]].concat();
    succeed(&mut cargo(&arguments))
}

/// Every crate can be packed: what it depends on has a version, and none depends on itself by way of
/// tests. The release builds each from its package. Everything that is needed has been downloaded.
fn crates() -> anyhow::Result<()> {
    let arguments =
        ["package", "--workspace", "--no-verify", "--allow-dirty", "--offline", "--quiet"];
    succeed(&mut cargo(&arguments))
}

fn documentation() -> anyhow::Result<()> {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps"]);
    succeed(doc.env("RUSTDOCFLAGS", "-D warnings"))
}
