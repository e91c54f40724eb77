//! The papers' tables and figures as data: scenarios, and the numbers that were published.

use crate::{Reading, Scenario};

/// A table or figure: its rows are runs, its columns readings.
#[derive(Clone, Debug)]
pub struct Table {
    /// Such as `osdi02-fig5`.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The paper and the place in it.
    pub source: &'static str,
    /// What a reader must know to compare: choices that the paper leaves open, tolerances.
    pub notes: &'static [&'static str],
    /// Which readings are shown.
    pub columns: Vec<Reading>,
    /// The runs.
    pub rows: Vec<Case>,
}

/// One run of a table.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique among all tables of the paper; cases of equal scenarios are run once.
    pub id: String,
    /// As the row is headed.
    pub label: String,
    /// What to run.
    pub scenario: Scenario,
    /// What the paper gives.
    pub paper: Vec<(Reading, f64)>,
}
