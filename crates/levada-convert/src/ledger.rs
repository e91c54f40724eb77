//! What became of each statement of the file that is converted. Every statement is entered once, so that none
//! is dropped silently.

use std::{collections::BTreeSet, fmt, sync::Arc};

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as it was named.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A statement that an operator must know about, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Its line.
    pub place: Place,
    /// The statement, shortened.
    pub statement: String,
    /// Why it is told.
    pub reason: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.place, self.statement, self.reason)
    }
}

/// What became of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is in the new file.
    Taken,
    /// It is in the new file, and means something slightly different there.
    Differs(String),
    /// A node does it anyway, or has no use for it.
    Needless(String),
    /// It is not in the new file.
    Left(String),
}

impl Fate {
    pub(crate) fn left(reason: impl Into<String>) -> Self {
        Self::Left(reason.into())
    }

    pub(crate) fn differs(reason: impl Into<String>) -> Self {
        Self::Differs(reason.into())
    }

    pub(crate) fn needless(reason: impl Into<String>) -> Self {
        Self::Needless(reason.into())
    }
}

/// The account of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Number of statements that were taken over.
    pub taken: usize,
    /// Statements that were taken over, and mean something slightly different.
    pub differs: Vec<Remark>,
    /// Statements that a node has no use for.
    pub needless: Vec<Remark>,
    /// Statements that were not converted.
    pub left: Vec<Remark>,
    /// Statements that were entered as taken: a block that serves two sites is read once, but told twice.
    known: BTreeSet<(Place, String)>,
}

impl Ledger {
    pub(crate) fn enter(&mut self, place: &Place, statement: &str, fate: Fate) {
        let remark =
            |reason| Remark { place: place.clone(), statement: shortened(statement), reason };
        match fate {
            Fate::Taken => self.take(place, statement),
            Fate::Differs(reason) => {
                self.take(place, statement);
                self.differs.push(remark(reason));
            }
            Fate::Needless(reason) => self.needless.push(remark(reason)),
            Fate::Left(reason) => self.left.push(remark(reason)),
        }
    }

    fn take(&mut self, place: &Place, statement: &str) {
        self.taken += usize::from(self.known.insert((place.clone(), statement.to_owned())));
    }

    /// In the order of the file.
    pub(crate) fn sort(&mut self) {
        for remarks in [&mut self.differs, &mut self.needless, &mut self.left] {
            remarks.sort_by(|a, b| a.place.cmp(&b.place));
            remarks.dedup();
        }
    }
}

/// On one line, without control characters: it goes into comments and to a terminal.
fn shortened(statement: &str) -> String {
    const MOST: usize = 100;
    let words: Vec<_> = statement.split_whitespace().collect();
    let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST).chain("...".chars()).collect()
}
