//! Dependencies are what deny.toml accepts: their licences, their sources, one version of each. Known
//! vulnerabilities are checked where the database of advisories can be reached.

use anyhow::ensure;

use crate::workspace::{cargo, succeed};

/// Runs cargo-deny.
///
/// # Errors
/// When it is not installed, or a dependency is not accepted.
pub(super) fn check() -> anyhow::Result<()> {
    let installed = cargo(&["deny", "--version"]).output().is_ok_and(|out| out.status.success());
    ensure!(installed, "cargo-deny is missing: `cargo install --locked cargo-deny`");
    succeed(&mut cargo(&["deny", "--locked", "check", "licenses", "bans", "sources"]))?;
    let fetched = cargo(&["deny", "--locked", "fetch", "db"]).output()?;
    if !fetched.status.success() {
        eprintln!("xtask: advisories skipped: their database cannot be reached");
        return Ok(());
    }
    succeed(&mut cargo(&["deny", "--locked", "check", "--disable-fetch", "advisories"]))
}
