//! The figures of a report.

use levada_paper::{Plot, Report, ReportRow, render::row_name};
use levada_report::chart::{Axes, Bar, BarRow, Bars, Curve, Figure, bars, lines};
use levada_sim::Unit;

/// The figures of a report; empty if no row was run.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    if report.rows.iter().all(|row| !row.done) {
        return Vec::new();
    }
    let figures = |plot: &Plot| match plot {
        Plot::Bars => bars(&report.title, &bars_of(report)).into_iter().collect(),
        Plot::Lines { x, log } => lines_of(report, x, *log).into_iter().collect(),
        Plot::Latencies => latencies(report),
    };
    report.plots.iter().flat_map(figures).collect()
}

/// A bar for each row and column; the paper's number is a mark next to its bar.
fn bars_of(report: &Report) -> Bars {
    let columns = drawn_columns(report);
    let unit = report.columns[columns[0]].metric.unit();
    let scale = if unit == Unit::Part { 100.0 } else { 1.0 };
    let row = |row: &ReportRow| BarRow {
        name: row_name(row),
        faint: row.beyond,
        bars: columns
            .iter()
            .map(|column| &row.cells[*column])
            .map(|cell| Bar {
                value: cell.ours.map(|ours| ours * scale),
                mark: cell.paper.map(|paper| paper * scale),
            })
            .collect(),
    };
    Bars { x: unit.as_str().to_owned(), rows: report.rows.iter().map(row).collect() }
}

/// The columns of a figure: the first one, and those with the same unit that the paper has as well.
fn drawn_columns(report: &Report) -> Vec<usize> {
    let unit = report.columns[0].metric.unit();
    let fits = |column: &usize| {
        let has_paper = report.rows.iter().any(|row| row.cells[*column].paper.is_some());
        *column == 0 || (has_paper && report.columns[*column].metric.unit() == unit)
    };
    (0..report.columns.len()).filter(fits).collect()
}

/// The first column over `x`, a line for each series.
fn lines_of(report: &Report, x: &str, log: bool) -> Option<Figure> {
    let metric = report.columns[0].metric;
    let scale = if metric.unit() == Unit::Part { 100.0 } else { 1.0 };
    let point = |row: &&ReportRow| Some((row.x?, row.cells[0].ours? * scale));
    let curves = by_series(report.rows.iter(), |rows| {
        let mut points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    });
    let y = format!("{}, {}", metric.as_str(), metric.unit().as_str());
    let axes = Axes { x: x.to_owned(), y, log_x: log, log_y: log, markers: true };
    lines(&report.title, &curves, &axes)
}

/// A figure for each rate: the distribution of latencies.
fn latencies(report: &Report) -> Vec<Figure> {
    let mut rates: Vec<_> = report.rows.iter().map(|row| row.at).collect();
    rates.sort_unstable();
    rates.dedup();
    let figure = |rate: Option<u32>| {
        let rows = report.rows.iter().filter(|row| row.at == rate);
        // A line for each run: those of one series differ in what its points do not show.
        let curves: Vec<Curve> = rows.map(|row| (row_name(row), row.latencies.clone())).collect();
        let axes = Axes {
            x: "latency, s".to_owned(),
            y: "part of the requests".to_owned(),
            log_x: true,
            log_y: false,
            markers: false,
        };
        let caption = match rate {
            Some(rate) => format!("{} at {rate} req/s", report.title),
            None => report.title.clone(),
        };
        let drawn_at_all = curves.iter().any(|curve| !curve.1.is_empty());
        drawn_at_all.then(|| lines(&caption, &curves, &axes)).flatten()
    };
    rates.into_iter().filter_map(figure).collect()
}

/// The series in the order of their first rows, each with its points.
fn by_series<'r>(
    rows: impl Iterator<Item = &'r ReportRow>,
    points: impl Fn(&[&'r ReportRow]) -> Vec<(f64, f64)>,
) -> Vec<Curve> {
    let mut series: Vec<(String, Vec<&ReportRow>)> = Vec::new();
    for row in rows {
        match series.iter_mut().find(|(name, _)| *name == row.series) {
            Some((_, rows)) => rows.push(row),
            None => series.push((row.series.clone(), vec![row])),
        }
    }
    series.into_iter().map(|(name, rows)| (name, points(&rows))).collect()
}
