//! The fate of each statement of the file that is converted. Every statement has one entry, so that none
//! is dropped silently.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
};

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

/// The fate of a statement.
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

    fn urgency(&self) -> u8 {
        match self {
            Self::Needless(_) => 0,
            Self::Taken => 1,
            Self::Differs(_) => 2,
            Self::Left(_) => 3,
        }
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
    /// Every statement once, also those of a block that serves two sites.
    entries: BTreeMap<(Place, String), Fate>,
}

impl Ledger {
    /// Of two fates of one statement, the one that an operator must know about counts.
    pub(crate) fn enter(&mut self, place: &Place, statement: &str, fate: Fate) {
        match self.entries.entry((place.clone(), statement.to_owned())) {
            Entry::Vacant(entry) => drop(entry.insert(fate)),
            Entry::Occupied(mut entry) if fate.urgency() > entry.get().urgency() => {
                entry.insert(fate);
            }
            Entry::Occupied(_) => {}
        }
    }

    /// Enters a statement that no part of a converter has entered: nothing is dropped silently.
    pub(crate) fn enter_if_missed(&mut self, place: &Place, statement: &str) {
        let entry = self.entries.entry((place.clone(), statement.to_owned()));
        entry.or_insert_with(|| Fate::left(MISSED));
    }

    /// Whether a statement is in the new file; none if it has no entry.
    pub(crate) fn has_taken(&self, place: &Place, statement: &str) -> Option<bool> {
        let fate = self.entries.get(&(place.clone(), statement.to_owned()))?;
        Some(!matches!(fate, Fate::Left(_)))
    }

    /// Makes the lists of all entries, in the order of the file.
    pub(crate) fn close(&mut self) {
        for ((place, statement), fate) in &self.entries {
            let remark = |reason: &str| Remark {
                place: place.clone(),
                statement: shortened(statement),
                reason: reason.to_owned(),
            };
            match fate {
                Fate::Taken => self.taken += 1,
                Fate::Differs(reason) => {
                    self.taken += 1;
                    self.differs.push(remark(reason));
                }
                Fate::Needless(reason) => self.needless.push(remark(reason)),
                Fate::Left(reason) => self.left.push(remark(reason)),
            }
        }
    }
}

/// The reason of a statement that no part of a converter has looked at.
pub(crate) const MISSED: &str = "Levada has nothing for it here";

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
