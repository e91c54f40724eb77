//! A table or figure of a paper as data: what is run for it, what is read from the runs, and what the
//! paper says there.

use levada_sim::{Metric, Scenario};
use serde::Serialize;

use super::Claim;

/// A table or figure, of a paper or in its manner.
#[derive(Clone, Debug)]
pub struct Table {
    /// As the command line names it: `osdi02-fig5`.
    pub id: String,
    /// Further names: figures that show what this table lists.
    pub also: Vec<String>,
    /// What it shows.
    pub title: String,
    /// Where the paper has it.
    pub source: String,
    /// What a reader must know: how it was run, and what the paper leaves open.
    pub note: String,
    /// What is read from each run.
    pub columns: Vec<Column>,
    /// The runs, one a row. Several rows may read one run at several rates.
    pub rows: Vec<Row>,
    /// What must hold between the rows.
    pub claims: Vec<Claim>,
    /// How it is drawn.
    pub plots: Vec<Plot>,
}

/// What is read from each run of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// The number that is read.
    pub metric: Metric,
    /// How far ours may be from the paper's, as a part of the paper's. Without it, both are only
    /// reported.
    pub tolerance: Option<f64>,
}

/// One row: a run, and the paper's numbers for it.
#[derive(Clone, Debug)]
pub struct Row {
    /// What claims call it; unique in its table.
    pub key: String,
    /// The line or group that it belongs to, usually the policy.
    pub series: String,
    /// What varies within the series, and how much of it.
    pub x: Option<f64>,
    /// As it is printed beside the series where there is more to say than that.
    pub label: String,
    /// Of a run with growing load, the offered rate (requests per second) at which to read it.
    pub at: Option<u32>,
    /// Where the paper has no such row.
    pub beyond: bool,
    /// What is run.
    pub case: Case,
    /// The paper's numbers, for the first columns.
    pub paper: Vec<Option<f64>>,
}

/// A simulation to be run. Cases with the same scenario are one run, whatever their tables.
#[derive(Clone, Debug)]
pub struct Case {
    /// As progress names it, and whoever runs one case of a table.
    pub id: String,
    /// The world.
    pub scenario: Scenario,
}

/// How a table is drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Plot {
    /// A bar for each row and column, the paper's number as a mark beside it.
    Bars,
    /// The first column over `x`, a line for each series.
    Lines {
        /// What `x` is.
        x: String,
        /// Whether both axes are logarithmic.
        log: bool,
    },
    /// The distribution of latency, a figure for each rate and a line for each series.
    Latencies,
}
