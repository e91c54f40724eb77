//! Checks and tests that could not run on this machine. They are listed at the end; where LEVADA_NO_SKIPS is
//! set, as CI does, a reason that is not accepted here refuses the change.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::PathBuf,
};

use anyhow::ensure;

use crate::{dist, workspace::cargo};

/// How CI says that nothing may be left out.
const VARIABLE: &str = "LEVADA_NO_SKIPS";

/// The beginnings of the reasons that CI accepts, and why it does.
const ACCEPTED: &[(&str, &str)] = &[
    ("advisories", "CI machines may have no way to the database"),
    ("bench/cost.toml is of another toolchain", "the one of the project's machines has figures"),
    ("curl has no HTTP/3", "Debian's has it from 13 on"),
    ("helm is missing", "no distribution packages it"),
    ("kube-apiserver is missing", "no distribution packages it"),
    ("mdbook is missing", "it takes minutes to build; tidy checks the links of the book"),
    ("no mirror of Debian", "CI machines may have none; the release workflow builds the package"),
    ("otelcol is missing", "no distribution packages it"),
    ("python3 has no aioquic", "Debian has it from 13 on"),
    ("python3 has no openapi_spec_validator", "Debian has it from 13 on"),
    ("this machine is too busy", "a busy machine refuses no change"),
];

/// The checks and tests that were left out, by reason.
#[derive(Default)]
pub(super) struct Skips(BTreeMap<String, BTreeSet<String>>);

impl Skips {
    /// Leaves out a check, or a part of it.
    pub(super) fn add(&mut self, check: &str, reason: impl Into<String>) {
        let reason = reason.into();
        eprintln!("xtask: {check} skipped: {reason}");
        self.0.entry(reason).or_default().insert(check.to_owned());
    }

    /// Whether Cargo has this command; without it, the check is left out.
    pub(super) fn has(&mut self, check: &str, command: &str) -> bool {
        let runs = cargo(&[command, "--version"]).output().is_ok_and(|out| out.status.success());
        if !runs {
            let remedy = match command {
                "fmt" => "rustup component add rustfmt".to_owned(),
                "clippy" => "rustup component add clippy".to_owned(),
                _ => format!("cargo install --locked cargo-{command}"),
            };
            self.add(check, format!("cargo-{command} is missing: `{remedy}`"));
        }
        runs
    }

    /// Adds what another step left out.
    pub(super) fn merge(&mut self, other: Self) {
        for (reason, places) in other.0 {
            self.0.entry(reason).or_default().extend(places);
        }
    }

    /// Reads what tests left out (`levada_skip::skipped`).
    pub(super) fn read(&mut self, text: &str) {
        for (test, reason) in text.lines().filter_map(|line| line.split_once(": ")) {
            // Two colons that no space follows are in names of tests.
            self.0.entry(reason.to_owned()).or_default().insert(test.to_owned());
        }
    }

    /// Lists what was left out.
    ///
    /// # Errors
    /// When that is not allowed.
    pub(super) fn conclude(&self) -> anyhow::Result<()> {
        let count: usize = self.0.values().map(BTreeSet::len).sum();
        if count > 0 {
            eprintln!("xtask: skipped, {count} checks and tests in all:");
        }
        for (reason, places) in &self.0 {
            let places = places.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            eprintln!("  {reason}\n      {places}");
        }
        let refused = self.refused();
        ensure!(
            env::var_os(VARIABLE).is_none() || refused.is_empty(),
            "{VARIABLE} is set, and xtask/src/ci/skips.rs does not accept these reasons:\n  {}",
            refused.join("\n  ")
        );
        Ok(())
    }

    fn refused(&self) -> Vec<&str> {
        let accepted =
            |reason: &&str| ACCEPTED.iter().any(|(beginning, _)| reason.starts_with(beginning));
        self.0.keys().map(String::as_str).filter(|reason| !accepted(reason)).collect()
    }
}

/// The file in which tests note what they leave out (`levada_skip::VARIABLE`).
pub(super) fn file() -> PathBuf {
    dist::target_directory().join("skips.txt")
}

/// Forgets what an earlier run left out.
pub(super) fn forget() -> anyhow::Result<()> {
    match fs::remove_file(file()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accepted_reasons_pass_where_nothing_may_be_left_out() {
        let mut skips = Skips::default();
        skips.read("edge a::b: curl has no HTTP/3 (it has from Debian 13 on)\n");
        assert!(skips.refused().is_empty());
        skips.read(
            "edge a::c: knotd is missing (Debian: knot)\nedge d: knotd is missing (Debian: knot)\n",
        );
        assert_eq!(skips.refused(), ["knotd is missing (Debian: knot)"]);
        assert_eq!(skips.0["knotd is missing (Debian: knot)"].len(), 2);
    }
}
