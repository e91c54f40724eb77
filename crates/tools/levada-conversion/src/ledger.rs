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
    /// Why an operator must know about it.
    pub reason: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.place, self.statement, self.reason)
    }
}

/// The fate of a statement that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the new file.
    Taken,
    /// It is in the new file, and means something slightly different there.
    Differs(String),
    /// A node does it anyway, or has no use for it.
    Needless(String),
}

/// The fate of a statement, or the reason why it is not in the new file.
pub type Outcome = Result<Fate, String>;

/// The statement is in the new file.
pub const TAKEN: Outcome = Ok(Fate::Taken);

/// The statement is in the new file, with this difference.
pub fn differs(reason: impl Into<String>) -> Outcome {
    Ok(Fate::Differs(reason.into()))
}

/// Nothing is needed, for this reason.
pub fn needless(reason: impl Into<String>) -> Outcome {
    Ok(Fate::Needless(reason.into()))
}

/// The statement is not converted, for this reason.
pub fn left(reason: impl Into<String>) -> Outcome {
    Err(reason.into())
}

/// How much an operator must know about it.
fn urgency(outcome: &Outcome) -> u8 {
    match outcome {
        Ok(Fate::Needless(_)) => 0,
        Ok(Fate::Taken) => 1,
        Ok(Fate::Differs(_)) => 2,
        Err(_) => 3,
    }
}

/// A statement of a file.
pub trait Stated: Sized {
    /// Its first line.
    fn place(&self) -> &Place;

    /// As it stands in the file, without its block.
    fn shown(&self) -> String;

    /// The statements in its block.
    fn inner(&self) -> &[Self];
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
    entries: BTreeMap<(Place, String), Outcome>,
}

impl Ledger {
    /// Of two fates of one statement, the one that an operator must know about counts.
    pub fn enter_line(&mut self, place: &Place, statement: &str, outcome: Outcome) {
        match self.entries.entry((place.clone(), statement.to_owned())) {
            Entry::Vacant(entry) => drop(entry.insert(outcome)),
            Entry::Occupied(mut entry) if urgency(&outcome) > urgency(entry.get()) => {
                drop(entry.insert(outcome));
            }
            Entry::Occupied(_) => {}
        }
    }

    /// As [`Ledger::enter_line`], for a statement.
    pub fn enter(&mut self, statement: &impl Stated, outcome: Outcome) {
        self.enter_line(statement.place(), &statement.shown(), outcome);
    }

    /// Enters a statement and everything in its block.
    pub fn enter_whole<S: Stated>(&mut self, statement: &S, outcome: &Outcome) {
        self.enter(statement, outcome.clone());
        for inner in statement.inner() {
            self.enter_whole(inner, outcome);
        }
    }

    /// Enters every statement that no part of a converter has entered: nothing is dropped silently. `fate` is asked
    /// for the fate of each, and `holds_others` says which blocks are looked into.
    pub fn enter_missed<S: Stated>(
        &mut self,
        statements: &[S],
        holds_others: fn(&S) -> bool,
        fate: &mut dyn FnMut(&S) -> Outcome,
    ) {
        for statement in statements {
            let key = (statement.place().clone(), statement.shown());
            self.entries.entry(key).or_insert_with(|| fate(statement));
            if holds_others(statement) {
                self.enter_missed(statement.inner(), holds_others, fate);
            }
        }
    }

    /// Whether a statement is in the new file; none if it has no entry.
    pub fn has_taken(&self, statement: &impl Stated) -> Option<bool> {
        let outcome = self.entries.get(&(statement.place().clone(), statement.shown()))?;
        Some(outcome.is_ok())
    }

    /// Makes the lists of all entries, in the order of the file.
    pub fn close(&mut self) {
        for ((place, statement), outcome) in &self.entries {
            let remark = |reason: &str| Remark {
                place: place.clone(),
                statement: shortened(statement),
                reason: reason.to_owned(),
            };
            match outcome {
                Ok(Fate::Taken) => self.taken += 1,
                Ok(Fate::Differs(reason)) => {
                    self.taken += 1;
                    self.differs.push(remark(reason));
                }
                Ok(Fate::Needless(reason)) => self.needless.push(remark(reason)),
                Err(reason) => self.left.push(remark(reason)),
            }
        }
    }
}

/// The reason of a statement that no part of a converter has looked at.
pub const MISSED: &str = "Levada has nothing for it here";

/// On one line, without control characters: it goes into comments and to a terminal.
pub fn shortened(statement: &str) -> String {
    const MOST: usize = 100;
    let words: Vec<_> = statement.split_whitespace().collect();
    let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST).chain("...".chars()).collect()
}
