//! Dependencies are what deny.toml accepts: their licences, their sources, one version of each. Known
//! vulnerabilities are checked where the database of advisories can be reached.

use super::skips::Skips;
use crate::workspace::{cargo, succeed};

/// Runs cargo-deny, where it is installed.
///
/// # Errors
/// When a dependency is not accepted.
pub(super) fn check(name: &str, skips: &mut Skips) -> anyhow::Result<()> {
    if !skips.has(name, "deny") {
        return Ok(());
    }
    succeed(&mut cargo(&["deny", "--locked", "check", "licenses", "bans", "sources"]))?;
    let fetched = cargo(&["deny", "--locked", "fetch", "db"]).output()?;
    if !fetched.status.success() {
        skips.add(name, "advisories cannot be checked: their database cannot be reached");
        return Ok(());
    }
    succeed(&mut cargo(&["deny", "--locked", "check", "--disable-fetch", "advisories"]))
}
