//! A table or figure of a paper as data: its cases, its columns, and the paper's numbers and claims.

use levada_sim::{Metric, Scenario};
use serde::Serialize;

use super::Claim;

/// A table or figure, of a paper or of the same kind.
#[derive(Clone, Debug)]
pub struct Table {
    /// The name on the command line: `osdi02-fig5`.
    pub id: String,
    /// Further names: figures that show the same numbers.
    pub also: Vec<String>,
    /// Its title.
    pub title: String,
    /// Its place in the paper.
    pub source: String,
    /// A note for readers: how it was run, and what the paper leaves open.
    pub note: String,
    /// The metrics read from each run.
    pub columns: Vec<Column>,
    /// The rows, one run each. Several rows may read one run at several rates.
    pub rows: Vec<Row>,
    /// Claims about the rows.
    pub claims: Vec<Claim>,
    /// The figures to draw.
    pub plots: Vec<Plot>,
}

/// A metric read from each run of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// The metric.
    pub metric: Metric,
    /// The tolerance of our number, as a part of the paper's. Without it, both numbers are only
    /// reported.
    pub tolerance: Option<f64>,
}

/// One row: a run, and the paper's numbers for it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The key of the row in claims; unique in its table.
    pub key: String,
    /// The line or group that it belongs to, usually the policy.
    pub series: String,
    /// The variable within the series, and its value.
    pub x: Option<f64>,
    /// The text next to the series, if the value alone is not enough.
    pub label: String,
    /// The offered rate (requests per second) at which a run with growing load is read.
    pub at: Option<u32>,
    /// Whether the paper has no such row.
    pub beyond: bool,
    /// The run.
    pub case: Case,
    /// The paper's numbers, for the first columns.
    pub paper: Vec<Option<f64>>,
}

/// A simulation to be run. Cases with the same scenario are one run, whatever their tables.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name in progress displays, and for running one case of a table.
    pub id: String,
    /// The scenario.
    pub scenario: Scenario,
}

/// A kind of figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Plot {
    /// A bar for each row and column, the paper's number as a mark next to it.
    Bars,
    /// The first column over `x`, a line for each series.
    Lines {
        /// The variable `x`.
        x: String,
        /// Whether both axes are logarithmic.
        log: bool,
    },
    /// The distribution of latency, a figure for each rate and a line for each series.
    Latencies,
}
