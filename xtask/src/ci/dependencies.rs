//! Dependencies are what deny.toml accepts: their licences, their sources, one version of each. Known
//! vulnerabilities are checked where the database of advisories can be reached.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, ensure};

use super::skips::Skips;
use crate::workspace::{cargo, succeed};

/// A release needs a database of advisories that is no older than this many days.
const OLDEST: u64 = 30;
const DAY: u64 = 24 * 60 * 60;

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
    let days = days_of_database()?;
    eprintln!("xtask: the newest advisory of the database is {days} days old");
    known_vulnerabilities()
}

/// Known vulnerabilities, for a release: by a database that is new enough.
///
/// # Errors
/// When a dependency has one, or the database is too old or missing.
pub(crate) fn advisories() -> anyhow::Result<()> {
    let fetched = cargo(&["deny", "--locked", "fetch", "db"]).output()?;
    if !fetched.status.success() {
        eprintln!("xtask: the database of advisories cannot be fetched: the one here is used");
    }
    let days = days_of_database()?;
    eprintln!("xtask: the newest advisory of the database is {days} days old");
    ensure!(
        days <= OLDEST,
        "the database of advisories is {days} days old, and a release needs one of at most {OLDEST}: \
         `cargo deny fetch db` where github.com can be reached"
    );
    known_vulnerabilities()
}

fn known_vulnerabilities() -> anyhow::Result<()> {
    succeed(&mut cargo(&["deny", "--locked", "check", "--disable-fetch", "advisories"]))
}

/// The age of the newest commit of the database, whenever that was fetched.
fn days_of_database() -> anyhow::Result<u64> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo"))).context("no CARGO_HOME")?;
    let newest = newest_commit(&home.join("advisory-dbs"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(now.saturating_sub(newest).as_secs() / DAY)
}

/// The time of the newest commit of all repositories in a directory.
fn newest_commit(directory: &Path) -> anyhow::Result<Duration> {
    let none = || {
        let shown = directory.display();
        format!(
            "no database of advisories in {shown}: `cargo deny fetch db` where github.com can be reached"
        )
    };
    let mut newest = None;
    for entry in fs::read_dir(directory).with_context(none)? {
        let repository = entry?.path();
        if !repository.join(".git").exists() {
            continue;
        }
        let log = ["log", "-1", "--format=%ct"];
        let said = Command::new("git").arg("-C").arg(&repository).args(log).output()?;
        let time = String::from_utf8(said.stdout)?.trim().parse().ok();
        newest = newest.max(time);
    }
    newest.map(Duration::from_secs).with_context(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_of_the_database_is_that_of_its_newest_commit() {
        let directory = env::temp_dir().join(format!("levada-advisories-{}", std::process::id()));
        let database = directory.join("advisory-db-1");
        fs::create_dir_all(&database).unwrap();
        assert!(newest_commit(&directory).unwrap_err().to_string().contains("no database"));
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.arg("-C").arg(&database).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
            let date = "1700000000 +0000";
            command.env("GIT_COMMITTER_DATE", date).env("GIT_AUTHOR_DATE", date);
            succeed(command.args(arguments)).unwrap();
        };
        git(&["init", "--quiet"]);
        git(&["commit", "--quiet", "--allow-empty", "--message=an advisory"]);
        assert_eq!(newest_commit(&directory).unwrap(), Duration::from_secs(1_700_000_000));
        fs::remove_dir_all(directory).unwrap();
    }
}
