//! Whether each commit of a range builds by itself, so that `git bisect` can stop at any of them, and whether
//! the commits are short enough to be read.

use std::fs;

use anyhow::{Context as _, ensure};

use crate::{
    dist,
    workspace::{cargo, git, succeed},
};

/// The changed lines that nine of ten commits do not exceed.
const LONGEST: usize = 400;

/// Checks the commits of `range`, such as `main..HEAD`, the oldest first, in a work tree of its own.
///
/// # Errors
/// When a commit does not build, or the commits are too long.
pub(crate) fn check(range: &str) -> anyhow::Result<()> {
    let commits = git(&["rev-list", "--reverse", "--no-merges", range])?;
    let commits: Vec<&str> = commits.lines().collect();
    ensure!(!commits.is_empty(), "{range} has no commits");
    let directory = dist::target_directory().join("commits");
    let tree = directory.join("tree");
    let path = tree.to_str().context("the path is not UTF-8")?;
    fs::create_dir_all(&directory)?;
    // An earlier run may have been ended.
    let _ = git(&["worktree", "remove", "--force", path]);
    git(&["worktree", "add", "--force", "--detach", path, commits[0]])?;
    let (mut sizes, mut broken) = (Vec::new(), Vec::new());
    for commit in commits {
        git(&["-C", path, "checkout", "--quiet", "--detach", commit])?;
        let subject = git(&["log", "-1", "--format=%h %s", commit])?;
        let size = changed(&git(&["show", "--numstat", "--format=", "-M", commit])?);
        eprintln!("xtask: {} ({size} lines)", subject.trim());
        let mut check = cargo(&["check", "--quiet", "--workspace", "--all-targets"]);
        check.current_dir(&tree).env("CARGO_TARGET_DIR", directory.join("target"));
        if succeed(&mut check).is_err() {
            broken.push(subject.trim().to_owned());
        }
        sizes.push(size);
    }
    git(&["worktree", "remove", "--force", path])?;
    let size = ninth_tenth(&mut sizes);
    println!("{} commits; nine of ten change at most {size} lines", sizes.len());
    ensure!(broken.is_empty(), "these do not build:\n  {}", broken.join("\n  "));
    ensure!(size <= LONGEST, "nine of ten commits should change at most {LONGEST} lines");
    Ok(())
}

/// The lines that a commit adds and removes. A lock file has none, and a file that moves only those that change.
fn changed(numbers: &str) -> usize {
    let lines = numbers.lines().filter(|line| !line.ends_with("Cargo.lock"));
    let numbers = lines.flat_map(|line| line.split('\t').take(2));
    // Binary files have dashes.
    numbers.filter_map(|number| number.parse::<usize>().ok()).sum()
}

/// The 90th percentile by nearest rank.
fn ninth_tenth(sizes: &mut [usize]) -> usize {
    sizes.sort_unstable();
    sizes[(sizes.len() * 9).div_ceil(10) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_without_lock_files_and_binaries() {
        let numbers = "3\t4\ta.rs\n0\t0\ta/{b => c}.rs\n-\t-\ta.png\n90\t90\tfuzz/Cargo.lock\n";
        assert_eq!(changed(numbers), 7);
    }

    #[test]
    fn one_of_ten_commits_may_be_long() {
        assert_eq!(ninth_tenth(&mut [9, 1, 8, 2, 7, 3, 6, 4, 5, 1000]), 9);
        assert_eq!(ninth_tenth(&mut [1000]), 1000);
    }
}
