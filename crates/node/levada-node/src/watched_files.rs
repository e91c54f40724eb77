//! Files whose change is a reload.
//!
//! Others write files in several steps, and Kubernetes renews the volumes of a pod one after the other, so a change
//! counts when a whole interval has passed without another one.

use std::{
    collections::BTreeMap,
    fs, iter,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use levada_discovery::FileVersion;
use levada_net::stop::{Stop, spawn_until};
use tokio::task::spawn_blocking;

use crate::reload::Reloader;

/// The interval at which the files are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// The files and directories that a node watches.
#[derive(Debug, Default)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// The versions that were read last.
    read: Versions,
}

/// The files that there are.
type Versions = BTreeMap<PathBuf, FileVersion>;

impl WatchedFiles {
    /// Watches these files, and the files in these directories: each change from now on.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let read = look(&paths);
        Self { paths, read }
    }
}

/// Reloads when one of the files has changed, until the node stops.
pub(crate) fn follow(watched: WatchedFiles, reloader: &Arc<Reloader>, stop: &Stop) {
    if watched.paths.is_empty() {
        return;
    }
    let following = reload_on_change(watched, reloader.clone(), stop.clone());
    spawn_until(stop, Box::pin(following));
}

async fn reload_on_change(watched: WatchedFiles, reloader: Arc<Reloader>, stop: Stop) {
    let WatchedFiles { paths, mut read } = watched;
    let paths = Arc::new(paths);
    let mut before = read.clone();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let watched = paths.clone();
        let Ok(now) = spawn_blocking(move || look(&watched)).await else { return };
        // The process that has taken over watches them.
        if reloader.upgrades.has_succeeded() {
            return;
        }
        let is_settled = now == before;
        before = now;
        if is_settled && before != read {
            tracing::info!(files = changed(&read, &before), "watched files have changed");
            read = before.clone();
            // The result is in the log, the events and the metrics.
            drop(reloader.reload(&stop).await);
        }
    }
}

/// The present versions. A file that cannot be looked at is none.
fn look(paths: &[PathBuf]) -> Versions {
    let all = paths.iter().flat_map(|path| entries(path));
    all.filter_map(|path| FileVersion::of(&path).ok().map(|version| (path, version))).collect()
}

/// The file at a path, or those in the directory at it.
fn entries(path: &Path) -> Vec<PathBuf> {
    match fs::read_dir(path) {
        Ok(entries) => {
            let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
            paths.filter(|path| path.is_file()).collect()
        }
        Err(_) => iter::once(path.to_owned()).collect(),
    }
}

/// The names of the files that differ.
fn changed(before: &Versions, after: &Versions) -> String {
    let paths = before.keys().chain(after.keys().filter(|path| !before.contains_key(*path)));
    let differs = paths.filter(|path| before.get(*path) != after.get(*path));
    let names: Vec<_> = differs.map(|path| path.display().to_string()).collect();
    names.join(", ")
}
