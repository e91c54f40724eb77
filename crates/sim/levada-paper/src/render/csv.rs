//! Reports as comma-separated values (RFC 4180), a line for each number, for spreadsheets and
//! scripts.

use std::fmt::Write as _;

use crate::{Report, Verdict};

/// All reports, under one line of headings. Claims are left out: they follow from the numbers.
pub fn render(reports: &[Report]) -> String {
    let mut text =
        String::from("table,row,series,x,rate,metric,unit,ours,paper,difference,verdict\n");
    for report in reports {
        for row in &report.rows {
            for (cell, column) in row.cells.iter().zip(&report.columns) {
                let fields = [
                    field(&report.id),
                    field(&row.key),
                    field(&row.series),
                    optional(row.x),
                    optional(row.at.map(f64::from)),
                    field(column.metric.as_str()),
                    field(column.metric.unit().as_str()),
                    optional(cell.ours),
                    optional(cell.paper),
                    optional(cell.difference),
                    verdict(cell.verdict).to_owned(),
                ];
                let _ = writeln!(text, "{}", fields.join(","));
            }
        }
    }
    text
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Reported => "reported",
        Verdict::Missing => "missing",
    }
}

/// Quotes a field where necessary, and escapes a text that a spreadsheet would read as a formula.
fn field(text: &str) -> String {
    let text = match text.starts_with(['=', '+', '-', '@']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(field("fdr"), "fdr");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("=1+1"), "'=1+1");
    }
}
