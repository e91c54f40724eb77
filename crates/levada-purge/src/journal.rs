//! The purge journal keeps rules over a restart, for a node that keeps responses on disk.
//!
//! ```text
//! purge.journal     0123456789abcdef {"latest":17}                 the newest number
//!                   0123456789abcdef {"number":18,"rule":{...}}    a rule that may still be needed
//! ```
//!
//! Each line begins with the hash of its rest. A last line without a line feed was never confirmed and
//! does not count. Any other damage, a missing file included, means that purges may have been lost:
//! then everything that was stored before counts as purged.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use levada_types::hash64;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::rules::Rule;

/// A journal that has grown beyond this size is replaced by one with a single purge of everything.
const LARGEST: u64 = 64 << 20;

/// The file that rules are written to.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    /// `None` when it could not be written; the file has been removed then.
    file: Mutex<Option<File>>,
}

/// The rules and the newest number from before the restart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalHistory {
    pub(crate) latest: u64,
    pub(crate) rules: Vec<(u64, Rule)>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum JournalLine {
    Rule { number: u64, rule: Rule },
    Latest { latest: u64 },
}

impl Journal {
    /// Opens the journal of a cache directory. The history is `None` when it is missing or damaged;
    /// call [`begin`](Self::begin) then before adding rules.
    pub(crate) fn open(directory: &Path) -> (Self, Option<JournalHistory>) {
        let path = directory.join("purge.journal");
        let past = fs::read(&path).ok().and_then(|bytes| parse(&bytes));
        let file = past.as_ref().and_then(|_| OpenOptions::new().append(true).open(&path).ok());
        let past = past.filter(|_| file.is_some());
        (Self { path, file: Mutex::new(file) }, past)
    }

    /// Replaces the journal with one that holds these rules.
    pub(crate) fn begin(&self, past: &JournalHistory) -> io::Result<()> {
        self.write(&mut self.file.lock(), past)
    }

    /// Adds rules that share a number. They are on the disk when this returns.
    ///
    /// # Errors
    /// When the rules cannot be written and the journal cannot be removed either: a restart would bring
    /// back purged responses.
    pub(crate) fn add(&self, number: u64, rules: &[Rule]) -> io::Result<()> {
        let mut file = self.file.lock();
        let added = match &mut *file {
            Some(file) => append(file, number, rules),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let Err(error) = added else { return Ok(()) };
        // Without a journal everything counts as purged, which is safe. A journal with one purge of
        // everything means the same.
        let all = JournalHistory { latest: number, rules: vec![(number, Rule::all(None, false))] };
        if self.write(&mut file, &all).is_ok() {
            return Ok(());
        }
        let path = self.path.display();
        tracing::error!(%path, %error, "the purge journal cannot be written: after a restart, everything stored counts as purged");
        *file = None;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Drops rules up to this number.
    pub(crate) fn forget(&self, number: u64) -> io::Result<()> {
        let mut file = self.file.lock();
        let Some(mut past) = fs::read(&self.path).ok().and_then(|bytes| parse(&bytes)) else {
            return Ok(());
        };
        past.rules.retain(|(of, _)| *of > number);
        self.write(&mut file, &past)
    }

    /// Replaces the whole journal by renaming a new file over it, so that a complete one always exists.
    fn write(&self, file: &mut Option<File>, past: &JournalHistory) -> io::Result<()> {
        let fresh = self.path.with_extension("journal.new");
        let mut text = line(&JournalLine::Latest { latest: past.latest })?;
        for (number, rule) in &past.rules {
            text.push_str(&line(&JournalLine::Rule { number: *number, rule: rule.clone() })?);
        }
        let mut written = File::create(&fresh)?;
        written.write_all(text.as_bytes())?;
        written.sync_data()?;
        fs::rename(&fresh, &self.path)?;
        if let Some(directory) = self.path.parent() {
            File::open(directory)?.sync_all()?;
        }
        *file = Some(written);
        Ok(())
    }
}

fn append(file: &mut File, number: u64, rules: &[Rule]) -> io::Result<()> {
    if file.metadata()?.len() > LARGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut text = String::new();
    for rule in rules {
        text.push_str(&line(&JournalLine::Rule { number, rule: rule.clone() })?);
    }
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

fn line(line: &JournalLine) -> io::Result<String> {
    let json = serde_json::to_string(line)?;
    Ok(format!("{:016x} {json}\n", hash64(json.as_bytes())))
}

/// Reads the journal. `None` when a line is damaged or the first line is missing.
fn parse(bytes: &[u8]) -> Option<JournalHistory> {
    let whole = &bytes[..=bytes.iter().rposition(|byte| *byte == b'\n')?];
    let mut past = None;
    for text in std::str::from_utf8(whole).ok()?.lines() {
        let (hash, json) = text.split_once(' ')?;
        if u64::from_str_radix(hash, 16).ok()? != hash64(json.as_bytes()) {
            return None;
        }
        match (serde_json::from_str(json).ok()?, &mut past) {
            (JournalLine::Latest { latest }, None) => {
                past = Some(JournalHistory { latest, rules: Vec::new() })
            }
            (JournalLine::Rule { number, rule }, Some(past)) => {
                past.latest = past.latest.max(number);
                past.rules.push((number, rule));
            }
            _ => return None,
        }
    }
    past
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(n: u64) -> Rule {
        Rule::prefix(n, &format!("http://a.test/{n}\n\"/"), n.is_multiple_of(2))
    }

    fn begun() -> (tempfile::TempDir, Journal) {
        let directory = tempfile::tempdir().unwrap();
        let (journal, past) = Journal::open(directory.path());
        assert_eq!(past, None, "nothing is known of a directory without a journal");
        journal.begin(&JournalHistory { latest: 5, rules: Vec::new() }).unwrap();
        (directory, journal)
    }

    #[test]
    fn rules_are_there_after_a_restart() {
        let (directory, journal) = begun();
        journal.add(6, &[rule(1), rule(2)]).unwrap();
        journal.add(9, &[Rule::all(None, true)]).unwrap();
        let rules = vec![(6, rule(1)), (6, rule(2)), (9, Rule::all(None, true))];
        let past = Journal::open(directory.path()).1;
        assert_eq!(past, Some(JournalHistory { latest: 9, rules }));
        journal.forget(6).unwrap();
        journal.add(10, &[rule(3)]).unwrap();
        let rules = vec![(9, Rule::all(None, true)), (10, rule(3))];
        assert_eq!(Journal::open(directory.path()).1, Some(JournalHistory { latest: 10, rules }));
        journal.forget(10).unwrap();
        let past = JournalHistory { latest: 10, rules: Vec::new() };
        assert_eq!(Journal::open(directory.path()).1, Some(past), "numbers never go back");
    }

    #[test]
    fn what_was_cut_at_its_end_was_not_confirmed_and_what_is_damaged_is_unknown() {
        let (directory, journal) = begun();
        journal.add(6, &[rule(1)]).unwrap();
        let path = directory.path().join("purge.journal");
        let whole = fs::read(&path).unwrap();
        journal.add(7, &[rule(2)]).unwrap();
        let longer = fs::read(&path).unwrap();
        for length in whole.len()..longer.len() {
            let past = parse(&longer[..length]).unwrap();
            assert_eq!(past.rules, [(6, rule(1))], "{length}");
        }
        for at in 0..whole.len() - 1 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(parse(&damaged), None, "byte {at}");
        }
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn journal_that_cannot_be_written_purges_everything() {
        let (directory, journal) = begun();
        journal.add(6, &[rule(1)]).unwrap();
        *journal.file.lock() = None;
        journal.add(7, &[rule(2)]).unwrap();
        let rules = vec![(7, Rule::all(None, false))];
        assert_eq!(Journal::open(directory.path()).1, Some(JournalHistory { latest: 7, rules }));
        *journal.file.lock() = None;
        let path = directory.path().to_owned();
        drop(directory);
        journal.add(8, &[rule(2)]).unwrap();
        assert_eq!(Journal::open(&path).1, None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
