//! A matrix as text and as a page.

use std::fmt::Write as _;

use levada_report::chart::{Page, escaped};

use super::{Matrix, MatrixCell, Summary};

/// The matrix on a terminal.
pub(super) fn text(matrix: &Matrix) -> String {
    let head = [String::new()].into_iter().chain(matrix.policies.iter().cloned()).collect();
    let rows = matrix.rows.iter().map(|row| {
        let cells = row.cells.iter().map(|cell| cell.as_ref().map_or("-".to_owned(), shown));
        [row.name.clone()].into_iter().chain(cells).collect()
    });
    let summaries = SUMMARIES.iter().map(|(name, shown)| {
        let cells = matrix.summaries.iter().map(shown);
        [(*name).to_owned()].into_iter().chain(cells).collect()
    });
    let lines: Vec<Vec<String>> =
        [head].into_iter().chain(rows).chain([Vec::new()]).chain(summaries).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line: &Vec<String>| line.get(column));
        cells.map(|cell: &String| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..=matrix.policies.len()).map(width).collect();
    let mut text = format!("{}\n\n", note(matrix));
    for line in lines {
        for (column, cell) in line.iter().enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:width$}", width = widths[0]),
                _ => write!(text, "  {cell:>width$}", width = widths[column]),
            };
        }
        text.push('\n');
    }
    text
}

/// The matrix as a page.
pub(super) fn html(matrix: &Matrix) -> String {
    let mut page = Page::new("Policies over scenarios", &note(matrix));
    page.push_str("<div class=\"wide\"><table>\n<thead>\n<tr><th></th>");
    for policy in &matrix.policies {
        let _ = write!(page, "<th>{}</th>", escaped(policy));
    }
    page.push_str("</tr>\n</thead>\n<tbody>\n");
    for row in &matrix.rows {
        let (name, title) = (escaped(&row.name), escaped(&row.title));
        let _ = write!(page, "<tr><th scope=\"row\" title=\"{title}\">{name}</th>");
        for cell in &row.cells {
            let class = match cell {
                Some(cell) if cell.relative >= 0.99 => "pass",
                Some(cell) if cell.relative < 0.95 => "fail",
                _ => "plain",
            };
            let cell = cell.as_ref().map_or("&ndash;".to_owned(), shown);
            let _ = write!(page, "<td class=\"{class}\">{cell}</td>");
        }
        page.push_str("</tr>\n");
    }
    for (name, shown) in SUMMARIES {
        let _ = write!(page, "<tr><th scope=\"row\">{name}</th>");
        for summary in &matrix.summaries {
            let _ = write!(page, "<td class=\"ours\">{}</td>", shown(summary));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
    page.finish()
}

fn note(matrix: &Matrix) -> String {
    let seeds = match matrix.seeds {
        1 => "One seed, which is one sample".to_owned(),
        several => format!("Means over {several} seeds with half of their range"),
    };
    format!(
        "Relative to the best policy of each scenario; in brackets the 90th percentile of latency in \
         seconds (`over`: overloaded). {seeds}."
    )
}

fn shown(cell: &MatrixCell) -> String {
    let spread = match cell.scores.len() {
        1 => String::new(),
        _ => format!(" ±{:.3}", cell.spread),
    };
    let p90 = cell.p90.map_or("over".to_owned(), |p90| format!("{p90:.2}"));
    format!("{:.3}{spread} ({p90})", cell.relative)
}

type SummaryLine = (&'static str, fn(&Summary) -> String);

/// The lines under the matrix.
const SUMMARIES: &[SummaryLine] = &[
    ("geometric mean", |summary| format!("{:.3}", summary.mean)),
    ("least", |summary| format!("{:.3}", summary.least)),
    ("within 1 % of the best", |summary| format!("{} of {}", summary.near_best, summary.scenarios)),
    ("worst 90th percentile / lowest", |summary| {
        summary.worst_p90.map_or("-".to_owned(), |worst| format!("{worst:.2}"))
    }),
];
