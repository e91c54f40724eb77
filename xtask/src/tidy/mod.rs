//! What the compiler does not check: that pure crates are pure, that lists are complete, that
//! generated documents are fresh. Everything that is wrong is said at once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};

use crate::{cargo, docs, root};

/// Crates that decide and carry out nothing. One that does not exist yet is passed over.
const PURE: &[&str] = &[
    "levada-types",
    "levada-policy",
    "levada-cache",
    "levada-trace",
    "levada-fetch",
    "levada-topology",
    "levada-sim",
    "levada-paper",
];

/// What a pure crate must not even depend on by way of others.
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

/// Runs all checks.
///
/// # Errors
/// With a line for each thing that is wrong.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for name in PURE.iter().filter(|name| crate_directory(name).is_dir()) {
        wrong.extend(impure_dependencies(name)?);
        wrong.extend(lints_differ(name));
    }
    wrong.extend(edge_knows_the_simulator()?);
    wrong.extend(policies_left_out()?);
    for page in docs::stale()? {
        wrong.push(format!("{} is stale: run `cargo xtask docs`", page.path));
    }
    if !wrong.is_empty() {
        bail!("not tidy:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

fn crate_directory(name: &str) -> PathBuf {
    root().join("crates").join(name)
}

fn impure_dependencies(name: &str) -> anyhow::Result<Vec<String>> {
    let found = dependencies(name)?.into_iter().filter(|found| IMPURE.contains(&found.as_str()));
    Ok(found.map(|found| format!("{name} is pure, but depends on {found}")).collect())
}

/// The two drivers are compared run for run, so that neither may lean on the other. That the
/// simulator does not is part of its purity.
fn edge_knows_the_simulator() -> anyhow::Result<Option<String>> {
    let found = dependencies("levada-edge")?.iter().any(|name| name == "levada-sim");
    Ok(found.then(|| "levada-edge depends on levada-sim".to_owned()))
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

const PURE_LINTS: &str = include_str!("pure.clippy.toml");

/// Clippy refuses clocks, threads and sockets where the crate's clippy.toml says so.
fn lints_differ(name: &str) -> Option<String> {
    let same = fs::read_to_string(crate_directory(name).join("clippy.toml"))
        .is_ok_and(|text| text == PURE_LINTS);
    let advice = format!("copy xtask/src/pure.clippy.toml to crates/{name}/clippy.toml");
    (!same).then_some(advice)
}

/// Every file of policies has its line in `POLICIES`.
fn policies_left_out() -> anyhow::Result<Vec<String>> {
    let source = crate_directory("levada-policy").join("src");
    let list = fs::read_to_string(source.join("lib.rs"))?;
    let list = list.split_once("POLICIES:").map(|(_, list)| list).context("no POLICIES")?;
    let list = list.split_once("];").map_or(list, |(list, _)| list);
    let mut left_out = Vec::new();
    for file in rust_files(&source)? {
        let declares = fs::read_to_string(&file)?.contains("const ENTRIES: &[Entry]");
        let module = module_of(&file);
        if declares && !list.contains(&format!("{module}::ENTRIES")) {
            left_out.push(format!("POLICIES does not list {module}::ENTRIES"));
        }
    }
    Ok(left_out)
}

fn rust_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The last part of a module's path: `foo` of foo.rs and of foo/mod.rs.
fn module_of(file: &Path) -> String {
    let named = if file.ends_with("mod.rs") { file.parent() } else { Some(file) };
    named.and_then(Path::file_stem).unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_by_file_or_directory() {
        assert_eq!(module_of(Path::new("src/lard.rs")), "lard");
        assert_eq!(module_of(Path::new("src/order/mod.rs")), "order");
    }

    #[test]
    fn the_impure_is_recognised() {
        let impure = impure_dependencies("levada-edge").unwrap();
        assert!(impure.iter().any(|line| line.contains("tokio")), "{impure:?}");
        assert!(impure_dependencies("levada-types").unwrap().is_empty());
    }
}
