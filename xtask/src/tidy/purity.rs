//! Pure crates decide and carry out nothing: they depend on no clock, socket or thread.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};

use crate::workspace::{cargo, root};

/// Crates that decide and carry out nothing. One that does not exist yet is passed over.
const PURE: &[&str] = &[
    "levada-types",
    "levada-policy",
    "levada-cache",
    "levada-trace",
    "levada-fetch",
    "levada-topology",
    "levada-outcome",
    "levada-cap",
    "levada-large",
    "levada-sim",
    "levada-paper",
    "levada-rules",
    "levada-conversion",
    "levada-convert",
    "levada-convert-caddy",
    "levada-convert-haproxy",
];

/// Crates that a pure crate must not depend on, directly or by way of others.
const IMPURE: &[&str] = &[
    "async-std",
    "getrandom",
    "hyper",
    "levada-edge",
    "mio",
    "quinn",
    "rand",
    "rustls",
    "smol",
    "socket2",
    "tokio",
];

/// A line for each crate that is not as pure as it should be.
///
/// # Errors
/// When Cargo cannot tell a crate's dependencies.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for name in PURE.iter().filter(|name| crate_directory(name).is_dir()) {
        wrong.extend(impure_dependencies(name)?);
        wrong.extend(lints_differ(name));
    }
    wrong.extend(edge_knows_the_simulator()?);
    Ok(wrong)
}

fn crate_directory(name: &str) -> PathBuf {
    let folders = fs::read_dir(root().join("crates")).into_iter().flatten().flatten();
    let mut places = folders.map(|folder| folder.path().join(name));
    places.find(|place| place.is_dir()).unwrap_or_default()
}

fn impure_dependencies(name: &str) -> anyhow::Result<Vec<String>> {
    let found = dependencies(name)?.into_iter().filter(|found| IMPURE.contains(&found.as_str()));
    Ok(found.map(|found| format!("{name} is pure, but depends on {found}")).collect())
}

/// The two drivers are compared run for run, so that neither may depend on the other. The purity of
/// the simulator covers the other direction.
fn edge_knows_the_simulator() -> anyhow::Result<Option<String>> {
    let found = dependencies("levada-node")?.iter().any(|name| name == "levada-sim");
    Ok(found.then(|| "levada-node depends on levada-sim".to_owned()))
}

/// The crates that `name` depends on, directly or not, tests aside.
fn dependencies(name: &str) -> anyhow::Result<Vec<String>> {
    let arguments =
        ["tree", "--package", name, "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let output = cargo(&arguments).output().context("cannot run cargo tree")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree of {name}: {errors}");
    let tree = String::from_utf8(output.stdout)?;
    let mut names: Vec<String> =
        tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

const PURE_LINTS: &str = include_str!("../pure.clippy.toml");

/// Clippy refuses clocks, threads and sockets where the crate's clippy.toml says so.
fn lints_differ(name: &str) -> Option<String> {
    let file = crate_directory(name).join("clippy.toml");
    let same = fs::read_to_string(&file).is_ok_and(|text| text == PURE_LINTS);
    let advice = format!("copy xtask/src/pure.clippy.toml to {}", file.display());
    (!same).then_some(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_impure_is_recognised() {
        let impure = impure_dependencies("levada-edge").unwrap();
        assert!(impure.iter().any(|line| line.contains("tokio")), "{impure:?}");
        assert!(impure_dependencies("levada-types").unwrap().is_empty());
    }
}
