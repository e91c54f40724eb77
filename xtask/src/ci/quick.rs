//! The checks of what a change touches: lints of the changed crates and of the crates that depend on
//! them, tests of the changed crates, and everything that takes seconds. It is for the loop of
//! editing; a change still has to pass all checks before it lands.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::Value as Json;

use super::{Step, format, lint, take};
use crate::{
    tidy,
    workspace::{cargo, git},
};

/// A crate of the workspace.
#[derive(Debug, PartialEq, Eq)]
struct Member {
    name: String,
    /// From the root of the source, with a slash at its end.
    directory: String,
    /// The names of the members that it depends on, for tests too.
    needs: Vec<String>,
}

/// Files that concern every crate.
const EVERYWHERE: &[&str] = &["Cargo.toml", "Cargo.lock", "clippy.toml", "rustfmt.toml", ".cargo/"];

/// Runs the checks of what differs from the main branch.
///
/// # Errors
/// That of the step that failed.
pub(crate) fn run() -> anyhow::Result<()> {
    let files = changed_files()?;
    let members = members()?;
    let changed = owners(&files, &members);
    let affected = dependents(&changed, &members);
    eprintln!("xtask: changed: {}", listed(&changed));
    eprintln!("xtask: affected: {}", listed(&affected));
    let mut steps: Vec<Step<'_>> =
        vec![("format", Box::new(format)), ("tidy", Box::new(|_, _| tidy::run()))];
    if !affected.is_empty() {
        steps.push(("lints", Box::new(|name, skips| lint(&packages(&affected), name, skips))));
    }
    if !changed.is_empty() {
        steps.push(("tests", Box::new(|_, skips| super::tests::run(&packages(&changed), skips))));
    }
    take(steps, Vec::new())
}

fn listed(names: &BTreeSet<&str>) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.iter().copied().collect::<Vec<_>>().join(" ")
    }
}

/// The arguments that name these packages to Cargo.
fn packages<'a>(names: &BTreeSet<&'a str>) -> Vec<&'a str> {
    names.iter().flat_map(|name| ["--package", name]).collect()
}

/// The files that differ from the place where this branch left the main one; on the main branch, from
/// the last commit. Files that Git does not know yet are among them.
fn changed_files() -> anyhow::Result<Vec<String>> {
    let base = git(&["merge-base", "main", "HEAD"]).or_else(|_| git(&["rev-parse", "HEAD"]))?;
    let changed = git(&["diff", "--name-only", base.trim()])?;
    let unknown = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(changed.lines().chain(unknown.lines()).map(str::to_owned).collect())
}

fn members() -> anyhow::Result<Vec<Member>> {
    let arguments = ["metadata", "--no-deps", "--locked", "--format-version", "1"];
    let output = cargo(&arguments).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Json = serde_json::from_slice(&output.stdout)?;
    let root = format!("{}/", metadata["workspace_root"].as_str().context("no workspace_root")?);
    let packages = metadata["packages"].as_array().context("no packages")?;
    packages.iter().map(|package| Member::read(package, &root)).collect()
}

impl Member {
    fn read(package: &Json, root: &str) -> anyhow::Result<Self> {
        let name = package["name"].as_str().context("a package without a name")?;
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let directory = manifest.trim_start_matches(root).trim_end_matches("Cargo.toml");
        let needs = package["dependencies"].as_array().into_iter().flatten();
        let needs = needs.filter(|dependency| dependency["path"].is_string());
        let needs = needs.filter_map(|dependency| dependency["name"].as_str());
        Ok(Self {
            name: name.to_owned(),
            directory: directory.to_owned(),
            needs: needs.map(str::to_owned).collect(),
        })
    }
}

/// The members to which the files belong.
fn owners<'a>(files: &[String], members: &'a [Member]) -> BTreeSet<&'a str> {
    let everywhere = |file: &String| EVERYWHERE.iter().any(|start| file.starts_with(start));
    let all = files.iter().any(everywhere);
    let is_changed =
        |member: &&Member| all || files.iter().any(|file| file.starts_with(&member.directory));
    members.iter().filter(is_changed).map(|member| member.name.as_str()).collect()
}

/// The members that are changed or depend on a changed one, directly or not.
fn dependents<'a>(changed: &BTreeSet<&'a str>, members: &'a [Member]) -> BTreeSet<&'a str> {
    let mut affected = changed.clone();
    loop {
        let before = affected.len();
        for member in members {
            if member.needs.iter().any(|need| affected.contains(need.as_str())) {
                affected.insert(&member.name);
            }
        }
        if affected.len() == before {
            return affected;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, needs: &[&str]) -> Member {
        let needs = needs.iter().map(|need| (*need).to_owned()).collect();
        Member { name: name.into(), directory: format!("crates/{name}/"), needs }
    }

    fn workspace() -> Vec<Member> {
        vec![member("types", &[]), member("cache", &["types"]), member("edge", &["cache"])]
    }

    fn changed(files: &[&str]) -> (String, String) {
        let files: Vec<_> = files.iter().map(|file| (*file).to_owned()).collect();
        let members = workspace();
        let changed = owners(&files, &members);
        (listed(&changed), listed(&dependents(&changed, &members)))
    }

    #[test]
    fn crates_that_depend_on_a_changed_one_are_affected() {
        assert_eq!(changed(&["crates/cache/src/a.rs"]), ("cache".into(), "cache edge".into()));
        assert_eq!(changed(&["crates/types/src/a.rs"]).1, "cache edge types");
    }

    #[test]
    fn documents_concern_no_crate() {
        assert_eq!(changed(&["docs/start.md"]), ("none".into(), "none".into()));
    }

    #[test]
    fn the_lock_file_concerns_every_crate() {
        assert_eq!(changed(&["Cargo.lock"]).0, "cache edge types");
    }

    #[test]
    fn members_of_this_workspace_are_found() {
        let members = members().unwrap();
        let xtask = members.iter().find(|member| member.name == "xtask").unwrap();
        assert_eq!(xtask.directory, "xtask/");
        assert!(xtask.needs.iter().any(|need| need == "levada-policy"), "{xtask:?}");
    }
}
