//! The cost of a request: the steadiest rows of bench/cost.toml, on the program that the tests have built. One that is
//! more than 2 % worse refuses the change.

use std::process::Command;

use anyhow::bail;

use super::skips::Skips;
use crate::cost;

/// The exit code of `cost` where the file has the figures of another toolchain.
const NOT_COMPARED: i32 = 2;

/// Compares the rows of the gate.
///
/// # Errors
/// When one is worse, or cannot be measured.
pub(super) fn check(name: &str, skips: &mut Skips) -> anyhow::Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        skips.add(name, "valgrind is missing (Debian: valgrind)");
        return Ok(());
    }
    match cost::gate()?.arg("--gate").status()?.code() {
        Some(0) => {}
        Some(NOT_COMPARED) => skips.add(name, "bench/cost.toml is of another toolchain"),
        _ => bail!("`cargo xtask cost --gate` compares them again"),
    }
    Ok(())
}
