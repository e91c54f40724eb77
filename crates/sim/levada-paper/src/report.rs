//! A table with the outcomes of its runs, from which every form of output is made.

use std::collections::BTreeMap;

use levada_sim::{Metric, Outcome, Reading};
use serde::{Serialize, Serializer};

use super::{
    Plot, Table,
    claim::Numbers,
    table::{Case, Row},
};

/// A table with numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// See [`Table::id`].
    pub id: String,
    /// See [`Table::title`].
    pub title: String,
    /// See [`Table::source`].
    pub source: String,
    /// See [`Table::note`].
    pub note: String,
    /// The columns.
    pub columns: Vec<ReportColumn>,
    /// The rows.
    pub rows: Vec<ReportRow>,
    /// The paper's claims, judged.
    pub claims: Vec<Judged>,
    /// The figures to draw.
    pub plots: Vec<Plot>,
}

/// A column of a report.
#[derive(Clone, Debug, Serialize)]
pub struct ReportColumn {
    /// The metric of the cells.
    #[serde(serialize_with = "by_name")]
    pub metric: Metric,
    /// The tolerance of our number, as a part of the paper's.
    pub tolerance: Option<f64>,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct ReportRow {
    /// See [`Row::key`].
    pub key: String,
    /// See [`Row::series`].
    pub series: String,
    /// See [`Row::x`].
    pub x: Option<f64>,
    /// See [`Row::label`].
    pub label: String,
    /// See [`Row::at`].
    pub at: Option<u32>,
    /// See [`Row::beyond`].
    pub beyond: bool,
    /// Whether its case was run.
    pub done: bool,
    /// One cell for each column.
    pub cells: Vec<Cell>,
    /// The distribution of latencies, where it is drawn: seconds, and the part of the requests that
    /// took no longer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<(f64, f64)>,
}

/// Our number and the paper's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cell {
    /// Our number; `None` if the run does not have it, such as the latency at a rate that was never
    /// reached.
    pub ours: Option<f64>,
    /// Half of the interval of 95 % around our number, if it is the mean over several seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// The paper's.
    pub paper: Option<f64>,
    /// The relative difference of ours from the paper's: 0.1 is a tenth more.
    pub difference: Option<f64>,
    /// Whether that is within the tolerance.
    pub verdict: Verdict,
}

/// A claim and its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// The claim in words.
    pub claim: String,
    /// The paper's value.
    pub paper: String,
    /// Our value.
    pub ours: Option<String>,
    /// Whether it holds.
    pub verdict: Verdict,
}

/// The verdict on a number or a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is as published, within the tolerance.
    Pass,
    /// It is not.
    Fail,
    /// The paper has no number to compare with.
    Reported,
    /// It was not run, or the run does not have it.
    Missing,
}

impl Verdict {
    /// The verdict of a test; `None` if it could not be made.
    pub(super) fn of(holds: Option<bool>) -> Self {
        match holds {
            Some(true) => Self::Pass,
            Some(false) => Self::Fail,
            None => Self::Missing,
        }
    }
}

impl Report {
    /// Fills `table` with the outcomes of its cases.
    pub fn new<'o>(table: &Table, outcome: &dyn Fn(&Case) -> Option<&'o Outcome>) -> Self {
        let rows = table.rows.iter().map(|row| fill_in(row, table, outcome(&row.case)));
        let mut report = Self {
            id: table.id.clone(),
            title: table.title.clone(),
            source: table.source.clone(),
            note: table.note.clone(),
            columns: table
                .columns
                .iter()
                .map(|c| ReportColumn { metric: c.metric, tolerance: c.tolerance })
                .collect(),
            rows: rows.collect(),
            claims: Vec::new(),
            plots: table.plots.clone(),
        };
        report.claims = table.claims.iter().map(|claim| claim.judge(&report)).collect();
        report.name_apart(table);
        report
    }

    /// Claims about several columns of the same rows name their column.
    fn name_apart(&mut self, table: &Table) {
        let mut times = BTreeMap::new();
        for judged in &self.claims {
            *times.entry(judged.claim.clone()).or_insert(0) += 1;
        }
        for (judged, claim) in self.claims.iter_mut().zip(&table.claims) {
            if times[&judged.claim] > 1
                && let Some(column) = claim.column()
            {
                let column = table.columns[column].metric.title();
                judged.claim = format!("{column}: {}", judged.claim);
            }
        }
    }

    /// All verdicts, of cells and of claims.
    pub fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        let cells = self.rows.iter().flat_map(|row| row.cells.iter().map(|cell| cell.verdict));
        cells.chain(self.claims.iter().map(|claim| claim.verdict))
    }
}

impl Numbers for Report {
    fn row(&self, key: &str, column: usize) -> Option<f64> {
        self.rows.iter().find(|row| row.key == key)?.cells.get(column)?.ours
    }

    fn series(&self, series: &str, column: usize) -> Option<Vec<(f64, f64)>> {
        let rows = self.rows.iter().filter(|row| row.series == series);
        let point = |row: &ReportRow| Some((row.x?, row.cells.get(column)?.ours?));
        let mut points: Vec<_> = rows.map(point).collect::<Option<_>>()?;
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(points)
    }
}

fn fill_in(row: &Row, table: &Table, outcome: Option<&Outcome>) -> ReportRow {
    let cell = |(place, column): (usize, &super::Column)| {
        let ours = outcome
            .and_then(|outcome| outcome.reading(Reading { metric: column.metric, rate: row.at }));
        let paper = row.paper.get(place).copied().flatten();
        Cell::new(ours, paper, column.tolerance)
    };
    let drawn = table.plots.contains(&Plot::Latencies);
    ReportRow {
        key: row.key.clone(),
        series: row.series.clone(),
        x: row.x,
        label: row.label.clone(),
        at: row.at,
        beyond: row.beyond,
        done: outcome.is_some(),
        cells: table.columns.iter().enumerate().map(cell).collect(),
        latencies: outcome.filter(|_| drawn).map_or_else(Vec::new, |o| latencies(o, row.at)),
    }
}

/// The distribution of latencies at the rate, or of the whole run.
fn latencies(outcome: &Outcome, at: Option<u32>) -> Vec<(f64, f64)> {
    let name = at.map_or_else(|| "latency_cdf".to_owned(), |rate| format!("latency_cdf@{rate}"));
    let found = outcome.series.iter().find(|series| series.name == name);
    found.map_or_else(Vec::new, |series| series.points.clone())
}

fn by_name<S: Serializer>(metric: &Metric, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(metric.as_str())
}

impl Cell {
    fn new(ours: Option<f64>, paper: Option<f64>, tolerance: Option<f64>) -> Self {
        let difference = ours.zip(paper).filter(|(_, p)| *p > 0.0).map(|(o, p)| o / p - 1.0);
        let verdict = match (paper, tolerance) {
            (Some(_), Some(tolerance)) => {
                Verdict::of(difference.map(|difference| difference.abs() <= tolerance))
            }
            _ if ours.is_none() => Verdict::Missing,
            _ => Verdict::Reported,
        };
        Self { ours, spread: None, paper, difference, verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_judged_where_there_is_a_tolerance() {
        let verdict = |ours, paper, tolerance| Cell::new(ours, paper, tolerance).verdict;
        assert_eq!(verdict(Some(120.0), Some(100.0), Some(0.25)), Verdict::Pass);
        assert_eq!(verdict(Some(130.0), Some(100.0), Some(0.25)), Verdict::Fail);
        assert_eq!(verdict(Some(130.0), Some(100.0), None), Verdict::Reported);
        assert_eq!(verdict(Some(130.0), None, Some(0.25)), Verdict::Reported);
        assert_eq!(verdict(None, Some(100.0), Some(0.25)), Verdict::Missing);
    }
}
