//! The fuzz targets compile. They run with cargo-fuzz and a nightly compiler only, but their code is
//! stable Rust; `fuzzing` is the condition that cargo-fuzz sets.

use std::{env, process::Command};

use super::skips::Skips;
use crate::workspace::{cargo, succeed};

/// Checks the workspace of the fuzz targets, in a target directory next to that of the main one.
///
/// # Errors
/// When a target does not compile, or fuzz/Cargo.lock is out of date.
pub(super) fn check(name: &str, skips: &mut Skips) -> anyhow::Result<()> {
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if !Command::new(compiler).arg("--version").output().is_ok_and(|out| out.status.success()) {
        skips.add(name, "a compiler of C++ is missing (Debian: g++)");
        return Ok(());
    }
    let manifest = ["--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz"];
    let mut check = cargo(&[&["check", "--locked"][..], &manifest].concat());
    succeed(check.env("RUSTFLAGS", "--cfg fuzzing"))
}
