//! The costs of requests, compared with the figures in bench/cost.toml.

use std::process::Command;

use crate::{
    dist,
    workspace::{cargo, succeed},
};

/// Builds the program as a release and what measures it, and runs `bench/src/bin/cost` with the arguments.
///
/// # Errors
/// When a row is worse, or nothing can be measured.
pub(crate) fn run(arguments: &[&str]) -> anyhow::Result<()> {
    // An example selects the features of the tests, so that what they have built is not built again.
    let debug = ["build", "--workspace", "--bin", "cost", "--example", "summary"];
    succeed(&mut cargo(&debug))?;
    succeed(&mut cargo(&["build", "--release", "--package", "levada"]))?;
    let directory = dist::target_directory();
    let mut cost = Command::new(directory.join("debug/cost"));
    cost.args(["--profile", "release"]).env("LEVADA", directory.join("release/levada"));
    succeed(cost.args(arguments))
}
