//! The workspace compiles with the oldest version of Rust that Cargo.toml promises. The checks of a change have
//! clippy's `incompatible_msrv` for that, and Cargo prefers dependencies that need no newer one
//! (`resolver = "3"`); this is the proof, for a job of its own and for releases.

use std::{fs, process::Command};

use anyhow::Context as _;

use crate::workspace::{root, succeed};

/// Checks what users build, and not the tests, in a target directory of its own. rustup installs that version
/// where it is missing.
///
/// # Errors
/// When something does not compile, or there is no such Rust.
pub(crate) fn check() -> anyhow::Result<()> {
    let version = promised(&fs::read_to_string(root().join("Cargo.toml"))?)?;
    let install = ["toolchain", "install", &version, "--profile", "minimal", "--no-self-update"];
    if !is_installed(&version) {
        succeed(Command::new("rustup").args(install))?;
    }
    let mut check = Command::new("rustup");
    let arguments = ["cargo", "check", "--locked", "--workspace"];
    check.args(["run", &version]).args(arguments).args(["--target-dir", "target/oldest"]);
    // Cargo sets these for us; they name the current version.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        check.env_remove(name);
    }
    succeed(check.current_dir(root()))
}

/// The version that `rust-version` of the workspace names.
fn promised(manifest: &str) -> anyhow::Result<String> {
    let line = manifest.lines().find(|line| line.starts_with("rust-version"));
    let version = line.and_then(|line| line.split('"').nth(1));
    version.map(str::to_owned).context("Cargo.toml has no rust-version")
}

fn is_installed(version: &str) -> bool {
    let run = Command::new("rustup").args(["run", version, "cargo", "--version"]).output();
    run.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_manifest() {
        assert_eq!(promised("edition = \"2024\"\nrust-version = \"1.89\"\n").unwrap(), "1.89");
        assert!(promised("edition = \"2024\"\n").is_err());
    }
}
