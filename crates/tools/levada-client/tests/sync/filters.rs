//! Filters, next to those of rsync itself on the same tree, and what they do to deletion.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::world::{World, facts, filter};

const PATHS: [&str; 18] = [
    "top",
    "top.o",
    "a/top",
    "a/b/top.o",
    "a/b/c/deep",
    "a/b/keep.o",
    "build/x",
    "src/build/y",
    "src/a/b/z",
    "docs/index.md",
    "docs/api/x.md",
    "docs/api/x.txt",
    "src/docs/in.md",
    ".hidden",
    "a/.hidden/f",
    "x[1]",
    "back\\slash",
    "src/a/top",
];

/// Lines of exclusions; each is a case.
const RULES: [&str; 24] = [
    "*.o",
    "/top",
    "top",
    "build/",
    "build",
    "/build/",
    "a/b",
    "/a/b/",
    "a/*",
    "a/**",
    "**/b/**",
    "a/***",
    "+ keep.o\n*.o",
    "*.o\n+ keep.o",
    "+ /docs/\n+ /docs/**\n*",
    "+ /docs/***\n*",
    "+ *.md\n+ */\n*",
    "+ /docs/api/x.md\n*",
    ".*",
    "t?p",
    "[st]*\n+ a",
    "x\\[1]",
    "/*/*/*",
    "# comment\n; comment\n\ntop\n!\ndocs",
];

fn paths(directory: &Path) -> BTreeSet<PathBuf> {
    facts(directory).into_keys().collect()
}

#[tokio::test]
async fn rules_take_the_paths_that_rsync_takes() {
    if Command::new("rsync").arg("--version").output().is_err() {
        levada_skip::skipped(format_args!("no rsync"));
        return;
    }
    let world = World::new();
    fs::remove_file(world.tree().join("a")).unwrap();
    for path in PATHS {
        let path = world.tree().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            fs::write(path, "").unwrap();
        }
    }
    let file = world.directory.path().join("rules");
    for (number, rules) in RULES.iter().enumerate() {
        fs::write(&file, format!("{rules}\n")).unwrap();
        let by_rsync = world.directory.path().join(format!("rsync-{number}"));
        let mut command = Command::new("rsync");
        command.args(["-a", "--exclude-from"]).arg(&file);
        let from = format!("{}/", world.tree().display());
        assert!(command.arg(from).arg(&by_rsync).status().unwrap().success());
        // At the destination, from a manifest of everything.
        world.publish();
        world.pull_with(|request| request.filter = filter(rules)).await;
        assert_eq!(paths(&world.there()), paths(&by_rsync), "pulled with {rules:?}");
        // At the publisher.
        let mut publication = world.publication();
        publication.filter = filter(rules);
        publication.publish().unwrap();
        world.pull().await;
        assert_eq!(paths(&world.there()), paths(&by_rsync), "published with {rules:?}");
        fs::remove_dir_all(world.there()).unwrap();
    }
}

#[tokio::test]
async fn excluded_paths_stay_and_so_do_the_directories_that_they_are_in() {
    let world = World::new();
    world.publish();
    let old = world.there().join("old");
    fs::create_dir_all(old.join("kept/empty")).unwrap();
    fs::write(old.join("kept/mine.bak"), "mine").unwrap();
    fs::write(old.join("kept/other"), "").unwrap();
    fs::create_dir_all(old.join("cache/x")).unwrap();
    let rules = "*.bak\n/old/cache/";
    let report = world.pull_with(|request| request.filter = filter(rules)).await;
    assert_eq!(report.deleted, ["old/kept/empty", "old/kept/other"]);
    assert!(old.join("kept/mine.bak").exists() && old.join("cache/x").exists());
    let report = world
        .pull_with(|request| {
            request.filter = filter(rules);
            request.delete_excluded = true;
        })
        .await;
    assert_eq!(report.deleted.len(), 5, "{:?}", report.deleted);
    world.assert_equal();
}

#[tokio::test]
async fn nothing_is_deleted_after_a_failure() {
    let world = World::new();
    world.publish();
    fs::create_dir_all(world.there()).unwrap();
    fs::write(world.there().join("more"), "").unwrap();
    fs::remove_file(world.tree().join("a")).unwrap();
    let report = world.try_pull(&world.request()).await.unwrap();
    assert!(!report.complete && report.deleted.is_empty());
    assert!(world.there().join("more").exists() && world.there().join("sub/b").exists());
    world.publish();
    assert_eq!(world.pull().await.deleted, ["more"]);
    world.assert_equal();
}
