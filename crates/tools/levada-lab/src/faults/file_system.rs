//! A file system that is smaller than the cache in it, and that only its node sees.

use std::{
    ffi::OsString,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::ensure;

/// A program that mounts a small file system which only it sees, and becomes the node.
pub(super) fn in_small_file_system(directory: &Path) -> Vec<OsString> {
    let script =
        format!("mount -t tmpfs -o size={SMALL},mode=700 levada-lab \"$0\" && exec \"$@\"");
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script];
    words.map(OsString::from).into_iter().chain([directory.into()]).collect()
}

/// Whether there can be such a file system.
///
/// # Errors
/// With the reason.
pub(super) fn possible() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut words = in_small_file_system(directory.path()).into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    let output = command.args(words).arg("true").stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "no file system can be mounted: {}", said.trim());
    Ok(())
}

/// A quarter of the cache.
const SMALL: &str = "32m";
