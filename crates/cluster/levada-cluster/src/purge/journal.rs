//! The purge journal: what a node with a disk tier must remember of purges after a restart.
//!
//! ```text
//! purge.journal     0123456789abcdef {"start":{"number":1048576}}       numbers go on above this one
//!                   0123456789abcdef {"own":{"log":"..."}}              the log that this node numbers
//!                   0123456789abcdef {"log":{"log":"...","newest":..}}  how far a log is known
//!                   0123456789abcdef {"applied":{"number":1048577,...}} an order, and the rules it made
//!                   0123456789abcdef {"swept":{"number":1048577}}       rules up to here cover nothing more
//! ```
//!
//! Each line begins with the hash of its rest. A last line without a line feed was never confirmed and
//! does not count. Any other damage, a missing file included, means that purges may have been lost:
//! then everything that was stored before counts as purged.
//!
//! Lines are only added. When the file has grown enough, its contents are written to a new file, which is
//! renamed over it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use levada_types::hash64;
use serde::{Deserialize, Serialize};

use crate::purge::{
    log::{LogBounds, LogId, LogState, LoggedOrder, OrderLog},
    rules::Rule,
};

/// A journal may grow to twice its contents and this, before it is rewritten.
const SLACK: u64 = 4 << 20;
/// Beyond this size of its contents, the rules in it become one that covers everything.
const LARGEST: u64 = 64 << 20;
/// The most bytes of lines that wait for a disk that fails.
const MAX_BACKLOG: usize = 16 << 20;

/// The file.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    bounds: LogBounds,
    /// `None` until it is opened again, after an error.
    file: Option<File>,
    /// The length of the lines that are known to be written.
    length: u64,
    /// The length when it was last rewritten.
    rewritten: u64,
    /// Lines that are in force and could not be written.
    backlog: String,
}

/// Rules that share a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Applied {
    pub(crate) number: u64,
    /// When they came into force, in milliseconds of Unix time: a soft purge counts from it.
    pub(crate) at: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rules: Vec<Rule>,
    /// The order that made them, if it is one of the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<Arc<LoggedOrder>>,
}

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalLine {
    Start { number: u64 },
    Own { log: LogId },
    Log(LogState),
    Applied(Applied),
    Swept { number: u64 },
}

/// The contents of a journal.
#[derive(Debug)]
pub(crate) struct JournalHistory {
    /// The newest number.
    pub(crate) latest: u64,
    /// The log that this node numbers.
    pub(crate) own: Option<LogId>,
    /// Rules that may still cover something.
    pub(crate) rules: Vec<Applied>,
    pub(crate) log: OrderLog,
}

impl Journal {
    /// Opens the journal of a cache directory. The history is `None` when it is missing or damaged.
    /// Call [`rewrite`](Self::rewrite) before adding lines.
    pub(crate) fn open(directory: &Path, bounds: LogBounds) -> (Self, Option<JournalHistory>) {
        let path = directory.join("purge.journal");
        let past = fs::read(&path).ok().and_then(|bytes| parse(&bytes, bounds));
        let journal =
            Self { path, bounds, file: None, length: 0, rewritten: 0, backlog: String::new() };
        (journal, past)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds lines, behind those that wait. All are on the disk when this returns.
    ///
    /// # Errors
    /// When they cannot be written. The file is as before then.
    pub(crate) fn add(&mut self, lines: &[JournalLine]) -> io::Result<()> {
        let mut text = self.backlog.clone();
        for line in lines {
            text.push_str(&to_text(line)?);
        }
        if text.is_empty() {
            return Ok(());
        }
        let added = self.append(text.as_bytes());
        if added.is_err() {
            // The file is opened again before the next line, and cut where this one began.
            self.file = None;
            return added;
        }
        self.length += text.len() as u64;
        self.backlog = String::new();
        if self.length > 2 * self.rewritten + SLACK
            && let Err(error) = self.shorten()
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the purge journal cannot be shortened");
        }
        Ok(())
    }

    /// Keeps lines that could not be written, and are in force nevertheless, for the next time.
    ///
    /// # Errors
    /// When too many wait.
    pub(crate) fn keep_for_later(&mut self, lines: &[JournalLine]) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            text.push_str(&to_text(line)?);
        }
        if self.backlog.len() + text.len() > MAX_BACKLOG {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.backlog.push_str(&text);
        Ok(())
    }

    /// Replaces the journal by renaming a new file over it, so that a complete one always exists.
    pub(crate) fn rewrite(&mut self, history: &JournalHistory) -> io::Result<()> {
        let fresh = self.path.with_extension("journal.new");
        let text = contents(history)?;
        let written = write_new(&fresh, &text).and_then(|file| {
            fs::rename(&fresh, &self.path)?;
            sync_directory(&self.path)?;
            Ok(file)
        });
        let file = written.inspect_err(|_| drop(fs::remove_file(&fresh)))?;
        self.file = Some(file);
        self.length = text.len() as u64;
        self.rewritten = self.length;
        Ok(())
    }

    /// Begins with these contents as soon as the disk takes them.
    pub(crate) fn begin_later(&mut self, history: &JournalHistory) -> io::Result<()> {
        self.backlog = contents(history)?;
        Ok(())
    }

    /// Removes the journal: after a restart, everything stored before counts as purged.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        self.file = None;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => sync_directory(&self.path),
        }
    }

    /// Goes on with the file as it is, behind its last whole line.
    pub(crate) fn go_on(&mut self) -> io::Result<()> {
        self.file = None;
        let bytes = fs::read(&self.path)?;
        self.length = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
        self.rewritten = self.length;
        Ok(())
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            file => {
                let mut options = OpenOptions::new();
                // The first line of a journal is not written alone.
                let mut opened = options.write(true).create(self.length == 0).open(&self.path)?;
                opened.set_len(self.length)?;
                opened.seek(SeekFrom::End(0))?;
                file.insert(opened)
            }
        };
        file.write_all(text)?;
        file.sync_data()
    }

    /// Rewrites the file with the lines that are still needed.
    fn shorten(&mut self) -> io::Result<()> {
        let Some(mut history) = parse(&fs::read(&self.path)?, self.bounds) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        self.rewrite(&history)?;
        if self.length > LARGEST {
            let at = history.rules.last().map_or(0, |applied| applied.at);
            let (number, rules) = (history.latest, vec![Rule::all(None, false)]);
            history.rules = vec![Applied { number, at, rules, order: None }];
            self.rewrite(&history)?;
        }
        Ok(())
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<File> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    Ok(file)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

fn to_text(line: &JournalLine) -> io::Result<String> {
    let json = serde_json::to_string(line)?;
    Ok(format!("{:016x} {json}\n", hash64(json.as_bytes())))
}

pub(crate) fn contents(history: &JournalHistory) -> io::Result<String> {
    let JournalHistory { latest, own, rules, log } = history;
    let mut text = to_text(&JournalLine::Start { number: *latest })?;
    let own = own.map(|log| JournalLine::Own { log });
    // The orders that follow lead from the dropped ones to the newest.
    let logs = log.states().iter().map(|state| LogState { newest: state.dropped, ..state });
    let kept = log.orders().map(|order| {
        JournalLine::Applied(Applied {
            number: 0,
            at: 0,
            rules: Vec::new(),
            order: Some(order.clone()),
        })
    });
    let rules = rules.iter().cloned().map(JournalLine::Applied);
    for line in own.into_iter().chain(logs.map(JournalLine::Log)).chain(kept).chain(rules) {
        text.push_str(&to_text(&line)?);
    }
    Ok(text)
}

/// Reads a journal. `None` when a line is damaged or the first line is missing.
pub(crate) fn parse(bytes: &[u8], bounds: LogBounds) -> Option<JournalHistory> {
    let whole = &bytes[..=bytes.iter().rposition(|byte| *byte == b'\n')?];
    let mut past = None;
    for text in std::str::from_utf8(whole).ok()?.lines() {
        let (hash, json) = text.split_once(' ')?;
        if hash.len() != 16 || u64::from_str_radix(hash, 16).ok()? != hash64(json.as_bytes()) {
            return None;
        }
        let line = serde_json::from_str(json).ok()?;
        match (line, &mut past) {
            (JournalLine::Start { number }, None) => {
                let (own, rules) = (None, Vec::new());
                let log = OrderLog::new(bounds);
                past = Some(JournalHistory { latest: number, own, rules, log });
            }
            (line, Some(past)) => past.read(line)?,
            (_, None) => return None,
        }
    }
    past
}

impl JournalHistory {
    fn read(&mut self, line: JournalLine) -> Option<()> {
        match line {
            JournalLine::Start { number } => self.latest = self.latest.max(number),
            JournalLine::Own { log } => self.own = Some(log),
            JournalLine::Log(state) => self.log.skip_to(&state),
            JournalLine::Swept { number } => self.rules.retain(|applied| applied.number > number),
            JournalLine::Applied(mut applied) => {
                if let Some(order) = applied.order.take() {
                    self.log.is_next(order.id).then(|| self.log.add(order))?;
                }
                if !applied.rules.is_empty() {
                    self.latest = self.latest.max(applied.number);
                    self.rules.push(applied);
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::purge::{
        log::{IN_CLUSTER, OrderId},
        order::{PurgeOrder, PurgeTarget},
    };

    fn applied(number: u64, order: Option<u64>) -> JournalLine {
        let url = format!("http://a.test/{number}\n\"/");
        let order = order.map(|place| {
            let order = PurgeOrder { target: PurgeTarget::Urls(vec![url.clone()]), soft: false };
            Arc::new(LoggedOrder { id: OrderId { log: LogId(7), number: place }, order })
        });
        let rules = vec![Rule::prefix(number, &url, number.is_multiple_of(2))];
        JournalLine::Applied(Applied { number, at: 3, rules, order })
    }

    fn begun() -> (tempfile::TempDir, Journal) {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, past) = Journal::open(directory.path(), IN_CLUSTER);
        assert!(past.is_none(), "nothing is known of a directory without a journal");
        let log = OrderLog::new(IN_CLUSTER);
        let past = JournalHistory { latest: 5, own: None, rules: Vec::new(), log };
        journal.rewrite(&past).unwrap();
        (directory, journal)
    }

    fn numbers(directory: &Path) -> (u64, Vec<u64>, u64) {
        let past = Journal::open(directory, IN_CLUSTER).1.unwrap();
        let rules = past.rules.iter().map(|applied| applied.number).collect();
        (past.latest, rules, past.log.states().newest(LogId(7)))
    }

    #[test]
    fn rules_and_orders_are_there_after_a_restart() {
        let (directory, mut journal) = begun();
        journal.add(&[JournalLine::Own { log: LogId(7) }, applied(6, Some(1))]).unwrap();
        journal.add(&[applied(9, None)]).unwrap();
        assert_eq!(numbers(directory.path()), (9, vec![6, 9], 1));
        journal.add(&[JournalLine::Swept { number: 6 }, applied(10, Some(2))]).unwrap();
        assert_eq!(numbers(directory.path()), (10, vec![9, 10], 2));
        journal.add(&[JournalLine::Swept { number: 10 }]).unwrap();
        assert_eq!(numbers(directory.path()), (10, vec![], 2), "numbers never go back");
    }

    #[test]
    fn shortened_journal_says_the_same() {
        let (directory, mut journal) = begun();
        journal.add(&[JournalLine::Own { log: LogId(7) }, applied(6, Some(1))]).unwrap();
        let skipped = LogState { log: LogId(8), newest: 4, dropped: 4 };
        journal.add(&[JournalLine::Log(skipped), applied(7, Some(2)), applied(8, None)]).unwrap();
        journal.add(&[JournalLine::Swept { number: 7 }]).unwrap();
        let before = journal.length;
        let was = Journal::open(directory.path(), IN_CLUSTER).1.unwrap();
        journal.shorten().unwrap();
        assert!(journal.length < before);
        let is = Journal::open(directory.path(), IN_CLUSTER).1.unwrap();
        assert_eq!((is.latest, is.own, &is.rules), (was.latest, was.own, &was.rules));
        assert_eq!(is.log.states(), was.log.states());
        assert!(is.log.orders().eq(was.log.orders()));
        journal.add(&[applied(11, Some(3))]).unwrap();
        assert_eq!(numbers(directory.path()), (11, vec![8, 11], 3));
    }

    #[test]
    fn what_was_cut_at_its_end_was_not_confirmed_and_what_is_damaged_is_unknown() {
        let (directory, mut journal) = begun();
        journal.add(&[applied(6, Some(1))]).unwrap();
        let path = directory.path().join("purge.journal");
        let whole = fs::read(&path).unwrap();
        journal.add(&[applied(7, Some(2))]).unwrap();
        let longer = fs::read(&path).unwrap();
        for length in whole.len()..longer.len() {
            let past = parse(&longer[..length], IN_CLUSTER).unwrap();
            assert_eq!(past.latest, 6, "{length}");
        }
        for at in 0..whole.len() - 1 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(parse(&damaged, IN_CLUSTER).is_none(), "byte {at}");
        }
        assert!(parse(b"", IN_CLUSTER).is_none());
        // An order is missing in between.
        let text = [&whole[..], to_text(&applied(8, Some(3))).unwrap().as_bytes()].concat();
        assert!(parse(&text, IN_CLUSTER).is_none());
    }

    #[test]
    fn line_behind_a_cut_one_is_read() {
        let (directory, mut journal) = begun();
        journal.add(&[applied(6, Some(1))]).unwrap();
        let path = directory.path().join("purge.journal");
        let mut cut = fs::read(&path).unwrap();
        cut.extend(b"0123");
        fs::write(&path, cut).unwrap();
        let mut journal = Journal::open(directory.path(), IN_CLUSTER).0;
        journal.go_on().unwrap();
        journal.add(&[applied(7, Some(2))]).unwrap();
        assert_eq!(numbers(directory.path()), (7, vec![6, 7], 2));
    }

    #[test]
    fn line_that_cannot_be_written_leaves_the_file_as_it_was() {
        let (directory, mut journal) = begun();
        let path = journal.path().to_owned();
        let moved = directory.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        journal.file = None;
        assert!(journal.add(&[applied(6, Some(1))]).is_err());
        journal.keep_for_later(&[applied(6, Some(1))]).unwrap();
        fs::rename(&moved, &path).unwrap();
        assert_eq!(numbers(directory.path()), (5, vec![], 0));
        journal.add(&[applied(7, Some(2))]).unwrap();
        assert_eq!(numbers(directory.path()), (7, vec![6, 7], 2));
        assert!(journal.backlog.is_empty());
    }

    #[test]
    fn lines_that_wait_for_the_disk_have_a_bound() {
        let (directory, mut journal) = begun();
        journal.keep_for_later(&[applied(6, Some(1))]).unwrap();
        let rules = vec![Rule::prefix(1, &"x".repeat(MAX_BACKLOG), false)];
        let long = JournalLine::Applied(Applied { number: 7, at: 3, rules, order: None });
        let error = journal.keep_for_later(&[long]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        journal.add(&[]).unwrap();
        assert_eq!(numbers(directory.path()), (6, vec![6], 1));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes, IN_CLUSTER);
        }
    }
}
