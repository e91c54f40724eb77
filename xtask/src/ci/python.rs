//! The Python package builds, and its tests pass, where there are Python and its registry of packages.
//! They compare runs with those of the program that the Rust tests have just built.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{as_clippy, skips::Skips};
use crate::{
    dist,
    workspace::{cargo, root, succeed},
};

const MANIFEST: [&str; 2] = ["--manifest-path", "python/Cargo.toml"];

/// Formats, lints, builds and tests python/, in an environment and a target directory of its own.
///
/// # Errors
/// When one of these fails.
pub(super) fn check(name: &str, skips: &mut Skips) -> anyhow::Result<()> {
    if !skips.has(name, "fmt") || !skips.has(name, "clippy") {
        return Ok(());
    }
    let directory = dist::target_directory().join("python");
    let format = ["--", "--check", "--config-path", "rustfmt.toml"];
    succeed(&mut cargo(&[&["fmt"], &MANIFEST[..], &format].concat()))?;
    let Some(environment) = environment(&directory.join("venv"))? else {
        skips.add(
            name,
            "there is no Python 3.10 with venv (Debian: python3-venv), or no way to packages for it",
        );
        return Ok(());
    };
    // The tests have just built it. Another build would select other features and start from nothing.
    let program = dist::target_directory().join("debug/levada");
    if !program.exists() {
        succeed(&mut cargo(&["build", "--locked", "--package", "levada"]))?;
    }
    let tool = |name: &str| {
        let mut command = Command::new(environment.join("bin").join(name));
        command.current_dir(root().join("python")).env("VIRTUAL_ENV", &environment);
        command.env("CARGO_TARGET_DIR", &directory).env("LEVADA_PROGRAM", &program);
        command
    };
    // The driver of clippy compiles what it has looked at: the crates below are built once, not checked before.
    let mut build = tool("maturin");
    build.args(["develop", "--locked", "--quiet"]);
    as_clippy(&mut build)?;
    succeed(&mut build)?;
    succeed(&mut tool("pytest"))
}

/// The virtual environment with what the tests need; `None` where it cannot be made.
fn environment(directory: &Path) -> anyhow::Result<Option<PathBuf>> {
    let requirements = root().join("python/requirements-test.txt");
    let wanted = fs::read_to_string(&requirements)?;
    let stamp = directory.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(Some(directory.to_owned()));
    }
    let recent = ["-c", "import sys, venv; sys.exit(sys.version_info < (3, 10))"];
    let made = runs(Command::new("python3").args(recent))
        && runs(Command::new("python3").args(["-m", "venv", "--clear"]).arg(directory))
        && runs(
            Command::new(directory.join("bin/pip"))
                .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
                .arg(&requirements),
        );
    if !made {
        return Ok(None);
    }
    fs::write(&stamp, wanted)?;
    Ok(Some(directory.to_owned()))
}

fn runs(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}
