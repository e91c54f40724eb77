//! Clocks that jump back and ahead. A node gets a clock of its own from libfaketime, which answers its
//! questions for the time of day by a file; its timers keep to the machine.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use tokio::time::sleep;

use super::{cluster::Cluster, stage::Stage};

/// Sets the clock of a node every two seconds, up to two hours back or ahead; every third node is killed
/// before, so that it starts with another time than it ended with.
pub(super) async fn set(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    for strike in 1_u64.. {
        if !stage.next(STEP_INTERVAL).await {
            break;
        }
        let at = stage.any_node();
        let seconds = (stage.rng.borrow_mut().unit() * 2.0 - 1.0) * FARTHEST.as_secs_f64();
        if strike.is_multiple_of(3) {
            cluster.kill(at).await;
            cluster.set_clock(at, seconds as i64)?;
            sleep(STEP_INTERVAL / 2).await;
            cluster.restart(at).await?;
        } else {
            cluster.set_clock(at, seconds as i64)?;
        }
    }
    Ok(())
}

/// A program that gives the node a clock, which `file` sets, and becomes the node.
///
/// # Errors
/// If there is no libfaketime, or the file cannot be written.
pub(super) fn with_own_clock(file: &Path) -> anyhow::Result<Vec<OsString>> {
    write(file, 0)?;
    let assign = |name: &str, value: &Path| {
        let mut assignment = OsString::from(name);
        assignment.push("=");
        assignment.push(value);
        assignment
    };
    Ok(vec![
        "env".into(),
        assign("LD_PRELOAD", &library()?),
        assign("FAKETIME_TIMESTAMP_FILE", file),
        // The file is read again after a second.
        "FAKETIME_CACHE_DURATION=1".into(),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
        "DONT_FAKE_MONOTONIC=1".into(),
    ])
}

/// Writes how far a clock is from the machine's. A reader sees the old text or the new one.
pub(super) fn write(file: &Path, seconds: i64) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, format!("{seconds:+}\n"))?;
    fs::rename(new, file)
}

/// Whether nodes can have clocks.
///
/// # Errors
/// With the reason.
pub(super) fn possible() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("clock");
    let mut words = with_own_clock(&file)?.into_iter();
    write(&file, -FARTHEST.as_secs().cast_signed())?;
    let mut command = Command::new(words.next().unwrap_or_default());
    let output = command.args(words).args(["date", "+%s"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let set = said.trim().parse::<u64>().unwrap_or(u64::MAX);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    ensure!(set < now.as_secs() - FARTHEST.as_secs() / 2, "libfaketime sets no clock");
    Ok(())
}

/// The library for programs with several threads, where distributions have it.
fn library() -> anyhow::Result<PathBuf> {
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let directories = [format!("/usr/lib/{machine}"), "/usr/lib64".into(), "/usr/lib".into()];
    let files = directories.iter().map(|at| Path::new(at).join("faketime/libfaketimeMT.so.1"));
    let found = files.into_iter().find(|file| file.exists());
    found.context("there is no libfaketime (Debian's package faketime)")
}

/// The time between two steps of a clock: a node restarts in between.
const STEP_INTERVAL: Duration = Duration::from_secs(2);
const FARTHEST: Duration = Duration::from_secs(7200);
