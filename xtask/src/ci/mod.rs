//! All checks that a change must pass: those of `cargo xtask test`, which are enough for most changes, and
//! then the long ones. Every step prints its time, and the whole prints the total and what was left out.

mod costs;
mod dependencies;
mod packages;
mod python;
mod quick;
mod skips;
mod tests;

use std::{process::Command, thread, time::Instant};

use anyhow::Context as _;

pub(crate) use dependencies::advisories;
pub(crate) use quick::run as quick;
use skips::Skips;

use crate::{
    book, dist, tidy,
    workspace::{cargo, succeed},
};

/// The name of a check, and the check, which is handed its name.
type Step<'a> = (&'a str, Box<dyn Fn(&str, &mut Skips) -> anyhow::Result<()> + Send + 'a>);

/// Runs every step until one fails. The last ones run at once: two of them mostly wait for networks and disks.
///
/// # Errors
/// That of the step that failed.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut steps = usual();
    steps.extend::<Vec<Step<'_>>>(vec![
        ("costs", Box::new(costs::check)),
        ("dependencies", Box::new(dependencies::check)),
        ("crates", Box::new(|_, _| crates())),
    ]);
    let last: Vec<Step<'_>> = vec![
        ("documentation", Box::new(|_, _| documentation())),
        ("book", Box::new(book)),
        ("Python", Box::new(python::check)),
        ("packages", Box::new(packages::check)),
    ];
    take(steps, last)
}

/// Runs the checks that are enough for most changes.
///
/// # Errors
/// That of the step that failed.
pub(crate) fn test() -> anyhow::Result<()> {
    take(usual(), Vec::new())
}

/// Runs the check of the Python package.
///
/// # Errors
/// When it fails.
pub(crate) fn python() -> anyhow::Result<()> {
    take(vec![("Python", Box::new(python::check))], Vec::new())
}

/// Runs the check of the Debian package.
///
/// # Errors
/// When it fails.
pub(crate) fn packages() -> anyhow::Result<()> {
    take(vec![("packages", Box::new(packages::check))], Vec::new())
}

fn usual<'a>() -> Vec<Step<'a>> {
    vec![
        ("format", Box::new(format)),
        ("tidy", Box::new(|_, _| tidy::run())),
        ("lints", Box::new(|name, skips| lint(&["--workspace"], name, skips))),
        ("tests", Box::new(|_, skips| tests::run(&["--workspace"], skips))),
    ]
}

/// Takes steps one after the other, and then the last ones at once.
fn take(steps: Vec<Step<'_>>, last: Vec<Step<'_>>) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut skips = Skips::default();
    for step in steps {
        skips.merge(pass(step)?);
    }
    let results: Vec<_> = thread::scope(|scope| {
        let begun: Vec<_> = last.into_iter().map(|step| scope.spawn(|| pass(step))).collect();
        begun.into_iter().map(|step| step.join().expect("a step has panicked")).collect()
    });
    for result in results {
        skips.merge(result?);
    }
    skips.conclude()?;
    eprintln!("xtask: all passed after {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Takes a step, and returns what it left out.
fn pass((name, step): Step<'_>) -> anyhow::Result<Skips> {
    eprintln!("xtask: {name}");
    let (begin, mut skips) = (Instant::now(), Skips::default());
    let result = step(name, &mut skips);
    let passed = if result.is_ok() { "passed" } else { "failed" };
    eprintln!("xtask: {name} {passed} after {:.1} s", begin.elapsed().as_secs_f64());
    result.context(name.to_owned())?;
    Ok(skips)
}

fn format(name: &str, skips: &mut Skips) -> anyhow::Result<()> {
    if !skips.has(name, "fmt") {
        return Ok(());
    }
    succeed(&mut cargo(&["fmt", "--all", "--check"]))
}

/// Clippy on these packages. It knows `rust-version`, and refuses what is newer in the standard
/// library (`incompatible_msrv`).
fn lint(packages: &[&str], name: &str, skips: &mut Skips) -> anyhow::Result<()> {
    if !skips.has(name, "clippy") {
        return Ok(());
    }
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

/// Rustdoc on every crate. The lints have checked all of them. With the features of the lints, which the
/// examples select, and with their driver and its arguments, Cargo takes that over and does not check again.
fn documentation() -> anyhow::Result<()> {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--lib", "--bins", "--examples"]);
    as_clippy(&mut doc)?;
    succeed(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Lets a build compile the crates of its workspace by the driver of clippy with warnings as errors.
fn as_clippy(build: &mut Command) -> anyhow::Result<()> {
    let driver = dist::sysroot()?.join("bin/clippy-driver");
    if driver.exists() {
        build.env("RUSTC_WORKSPACE_WRAPPER", driver);
        // As cargo-clippy passes on `-D warnings`. Should it change that, Cargo only checks again.
        build.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
    Ok(())
}

fn book(name: &str, skips: &mut Skips) -> anyhow::Result<()> {
    if book::is_possible() {
        return book::build();
    }
    skips.add(name, "mdbook is missing: `cargo install --locked mdbook`");
    Ok(())
}
