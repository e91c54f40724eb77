//! The Debian package installs, runs, upgrades and goes away in a clean Debian, where there is root, a
//! mirror and the tools. The program is the one that the tests ran: how a package behaves does not
//! depend on how it was optimised.

use std::{path::PathBuf, process::Command};

use super::skips::Skips;
use crate::{
    dist,
    workspace::{cargo, root, succeed},
};

/// Packs two revisions and takes them through packaging/deb/round-trip.
///
/// # Errors
/// When a package cannot be made, or the round trip fails.
pub(super) fn check(name: &str, skips: &mut Skips) -> anyhow::Result<()> {
    if !skips.has(name, "deb") {
        return Ok(());
    }
    if let Some(reason) = missing() {
        skips.add(name, reason);
        return Ok(());
    }
    // The tests have just built it. Another build would select other features and start from nothing.
    let program = dist::target_directory().join("debug/levada");
    if !program.exists() {
        succeed(&mut cargo(&["build", "--locked", "--package", "levada"]))?;
    }
    let made = |revision: &str| {
        let directory = root().join("target/round-trip").join(revision);
        dist::trial(&program, revision, &directory)
    };
    let (old, new): (PathBuf, PathBuf) = (made("1")?, made("2")?);
    succeed(Command::new(root().join("packaging/deb/round-trip")).args([old, new]))
}

/// The reason that this machine cannot do it.
fn missing() -> Option<String> {
    let runs = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !runs("unshare", &["--mount", "--net", "--pid", "--fork", "chroot", "/", "true"]) {
        return Some("the round trip of the package needs root: run it with sudo".to_owned());
    }
    if !runs("mmdebstrap", &["--version"]) {
        return Some("mmdebstrap is missing (Debian: mmdebstrap)".to_owned());
    }
    // Refuses to begin what would end for want of a network.
    let mirror = "mmdebstrap --quiet --dry-run --variant=essential bookworm /dev/null";
    (!runs("sh", &["-c", mirror])).then(|| "no mirror of Debian can be reached".to_owned())
}
