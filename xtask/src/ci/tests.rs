//! All tests of packages, by cargo-nextest where it is installed, and by `cargo test` elsewhere. Nextest runs
//! each test in a process of its own, gives up what hangs, and lists flaky tests at the end
//! (`.config/nextest.toml`).

use crate::workspace::{cargo, succeed};

/// Runs the tests of these packages, named as arguments to Cargo.
///
/// # Errors
/// When a test fails. With nextest, that is one that failed three times.
pub(super) fn run(packages: &[&str]) -> anyhow::Result<()> {
    if !cargo(&["nextest", "--version"]).output().is_ok_and(|out| out.status.success()) {
        eprintln!(
            "xtask: cargo-nextest is missing (`cargo install --locked cargo-nextest`): \
             `cargo test` runs the tests, once each"
        );
        return succeed(&mut cargo(&[&["test"], packages].concat()));
    }
    // Nextest does not run the examples in documentation.
    succeed(&mut cargo(&[&["test", "--doc"], packages].concat()))?;
    succeed(&mut cargo(&[&["nextest", "run", "--profile", "ci"], packages].concat()))
}
