//! All tests of packages, by cargo-nextest where it is installed, and by `cargo test` elsewhere. Nextest runs
//! each test in a process of its own, gives up what hangs, and lists flaky tests at the end
//! (`.config/nextest.toml`).

use std::{fs, thread};

use super::skips::{self, Skips};
use crate::workspace::{cargo, succeed};

/// Runs the tests of these packages, named as arguments to Cargo.
///
/// # Errors
/// When a test fails. With nextest, that is one that failed three times.
pub(super) fn run(packages: &[&str], skips: &mut Skips) -> anyhow::Result<()> {
    skips::forget()?;
    let test = |arguments: &[&str]| {
        succeed(cargo(&[arguments, packages].concat()).env("LEVADA_SKIPS", skips::file()))
    };
    let result = if skips.has("second and third tries of tests", "nextest") {
        // Tests wait for timers, sockets and disks more than they compute.
        let threads = (4 * thread::available_parallelism()?.get()).to_string();
        let nextest = ["nextest", "run", "--profile", "ci", "--test-threads", &threads];
        // Nextest does not run the examples in documentation.
        test(&["test", "--doc"]).and_then(|()| test(&nextest))
    } else {
        test(&["test"])
    };
    skips.read(&fs::read_to_string(skips::file()).unwrap_or_default());
    result
}
