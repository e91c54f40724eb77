//! Reports for people and programs. Each form is made from [`Report`]s alone, so that all forms
//! agree.

pub mod csv;
pub mod text;

use crate::{Report, ReportRow, Verdict};
use levada_sim::Unit;

/// A number with the digits that its unit needs.
pub fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond | Unit::BitsPerSecond => format!("{value:.0}"),
        Unit::Part => format!("{:.1}", value * 100.0),
        Unit::Count if value.abs() >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        Unit::Seconds | Unit::Count => format!("{value:.2}"),
    }
}

/// The difference between our number and the paper's.
pub fn difference(part: f64) -> String {
    let percent = (part * 100.0).round();
    // Minus zero is zero.
    format!("{:+.0} %", if percent == 0.0 { 0.0 } else { percent })
}

/// The mark of a verdict in tables.
pub fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "ok",
        Verdict::Fail => "OUT",
        Verdict::Reported => "",
        Verdict::Missing => "-",
    }
}

/// A row's name: its series, and what varies within it.
pub fn row_name(row: &ReportRow) -> String {
    match (row.label.is_empty(), row.beyond) {
        (true, false) => row.series.clone(),
        (true, true) => format!("{} *", row.series),
        (false, false) => format!("{}, {}", row.series, row.label),
        (false, true) => format!("{}, {} *", row.series, row.label),
    }
}

/// Whether some row is not in the paper; a note explains such rows.
pub fn has_beyond(report: &Report) -> bool {
    report.rows.iter().any(|row| row.beyond) && !report.rows.iter().all(|row| row.beyond)
}

/// The note on such rows.
pub const BEYOND: &str = "* not in the paper: run beside it in the same world";

/// Number of verdicts within the tolerance, and of all verdicts.
fn score(reports: &[Report]) -> (usize, usize) {
    let verdicts = || reports.iter().flat_map(Report::verdicts);
    let passed = verdicts().filter(|verdict| *verdict == Verdict::Pass).count();
    let failed = verdicts().filter(|verdict| *verdict == Verdict::Fail).count();
    (passed, passed + failed)
}

/// One sentence about all reports; empty without verdicts and missing rows.
pub fn summary(reports: &[Report]) -> String {
    let (passed, judged) = score(reports);
    let rows = || reports.iter().flat_map(|report| &report.rows);
    let missing = rows().filter(|row| !row.done).count();
    let mut parts = Vec::new();
    if judged > 0 {
        parts.push(format!("{passed} of {judged} numbers and claims are within their tolerances"));
    }
    if missing > 0 {
        parts.push(format!("{missing} of {} rows were not run", rows().count()));
    }
    parts.join("; ")
}
