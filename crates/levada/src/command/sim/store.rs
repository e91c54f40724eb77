//! Finished runs, stored so that an interrupted sweep continues.
//!
//! A file of JSON lines, one for each run, to which only whole lines are ever added:
//!
//! ```text
//! {"key":"6f2a...","case":"osdi02 normal fdr","seconds":31.4,"outcome":{...}}
//! ```
//!
//! The key is that of `levada_sim::scenario_file::run_key`: results of another version are never shown as this
//! version's.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use levada_sim::{End, Outcome};
use serde::{Deserialize, Serialize};

/// One finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredRun {
    key: String,
    case: String,
    seconds: f64,
    outcome: Outcome,
}

/// A file of finished runs.
pub(super) struct Store {
    path: PathBuf,
    file: File,
    known: BTreeMap<String, Outcome>,
}

impl Store {
    /// Opens the file `name` in `directory`, or in the user's cache directory, and reads it. A
    /// `fresh` store ignores its content and only appends.
    ///
    /// # Errors
    /// If the file cannot be created, read or written.
    pub(super) fn open(directory: Option<&Path>, name: &str, fresh: bool) -> anyhow::Result<Self> {
        let directory = match directory {
            Some(given) => given.to_owned(),
            None => usual_directory().context("no HOME: say where by --results DIR")?,
        };
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let path = directory.join(name);
        let cannot = || format!("cannot open {}", path.display());
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(&path)
            .with_context(cannot)?;
        let (mut known, whole) = read(&file).with_context(cannot)?;
        // A line that a crash cut off would destroy the next one.
        file.set_len(whole).with_context(cannot)?;
        if fresh {
            known.clear();
        }
        Ok(Self { path, file, known })
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The outcome stored under `key`.
    pub(super) fn get(&self, key: &str) -> Option<&Outcome> {
        self.known.get(key)
    }

    /// The store's outcomes, without the store.
    pub(super) fn take(&mut self, key: &str) -> Option<Outcome> {
        self.known.remove(key)
    }

    /// Stores an outcome, on disk as well. The outcome of a stopped run is not stored.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn keep(
        &mut self,
        key: &str,
        case: &str,
        outcome: Outcome,
        seconds: f64,
    ) -> anyhow::Result<()> {
        if outcome.end == End::Stopped {
            return Ok(());
        }
        let line = StoredRun { key: key.to_owned(), case: case.to_owned(), seconds, outcome };
        let text = serde_json::to_string(&line)? + "\n";
        self.file
            .write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.known.insert(line.key, line.outcome);
        Ok(())
    }
}

/// The runs in the file, and the end of its last whole line. Lines that cannot be read are skipped: an
/// older version wrote them.
fn read(file: &File) -> anyhow::Result<(BTreeMap<String, Outcome>, u64)> {
    let mut known = BTreeMap::new();
    let mut whole = 0;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        whole += line.len() as u64;
        if let Ok(StoredRun { key, outcome, .. }) = serde_json::from_slice(&line) {
            known.insert(key, outcome);
        }
        line.clear();
    }
    Ok((known, whole))
}

/// The user's cache directory.
fn usual_directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match variable("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(variable("HOME")?).join(".cache"),
    };
    Some(cache.join("levada/sim"))
}

#[cfg(test)]
mod tests {
    use levada_sim::Metric;

    use super::*;

    fn outcome(capacity: f64) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.readings.insert(Metric::Capacity.into(), capacity);
        outcome
    }

    #[test]
    fn finished_runs_are_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(Some(directory.path()), "a.jsonl", false).unwrap();
        store.keep("k", "case", outcome(1.0), 0.5).unwrap();
        let stopped = Outcome { end: End::Stopped, ..Outcome::default() };
        store.keep("s", "case", stopped, 0.5).unwrap();
        let again = Store::open(Some(directory.path()), "a.jsonl", false).unwrap();
        assert_eq!(again.get("k"), Some(&outcome(1.0)));
        assert_eq!(again.get("s"), None, "it was not finished");
        let fresh = Store::open(Some(directory.path()), "a.jsonl", true).unwrap();
        assert_eq!(fresh.get("k"), None);
    }

    #[test]
    fn a_line_that_was_cut_off_costs_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Store::open(Some(directory.path()), "a.jsonl", false).unwrap();
        open().keep("k", "case", outcome(1.0), 0.5).unwrap();
        let path = directory.path().join("a.jsonl");
        let mut text = fs::read_to_string(&path).unwrap();
        text += "not JSON\n{\"key\":\"half";
        fs::write(&path, text).unwrap();
        open().keep("l", "case", outcome(2.0), 0.5).unwrap();
        assert_eq!(open().get("k"), Some(&outcome(1.0)));
        assert_eq!(open().get("l"), Some(&outcome(2.0)));
    }
}
