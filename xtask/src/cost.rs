//! The costs of requests, compared with the figures in bench/cost.toml.

use std::process::Command;

use crate::{
    dist,
    workspace::{cargo, succeed},
};

/// Builds the program as a release and what measures it, and runs `bench/src/bin/cost` with the arguments. For
/// `--gate`, the program is the one of the tests.
///
/// # Errors
/// When a row is worse, or nothing can be measured.
pub(crate) fn run(arguments: &[&str]) -> anyhow::Result<()> {
    if arguments.contains(&"--gate") {
        return succeed(gate()?.args(arguments));
    }
    let mut cost = measure("release/levada")?;
    succeed(&mut cargo(&["build", "--release", "--package", "levada"]))?;
    succeed(cost.args(["--profile", "release"]).args(arguments))
}

/// The comparison that CI makes, without its argument `--gate`.
///
/// # Errors
/// When a program cannot be built.
pub(crate) fn gate() -> anyhow::Result<Command> {
    measure("debug/levada")
}

/// Builds what measures this program, and the debug build of Levada.
fn measure(program: &str) -> anyhow::Result<Command> {
    // An example selects the features of the tests, so that what they have built is not built again.
    let debug =
        ["build", "--workspace", "--bin", "cost", "--bin", "levada", "--example", "summary"];
    succeed(&mut cargo(&debug))?;
    let directory = dist::target_directory();
    let mut cost = Command::new(directory.join("debug/cost"));
    cost.env("LEVADA", directory.join(program));
    Ok(cost)
}
