//! Reports on a terminal.

use std::fmt::Write as _;

use crate::{Judged, Report};

use super::{BEYOND, difference, has_beyond, mark, number, row_name, summary};

/// All reports, with a sentence about them at the end.
pub fn render(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        add_report(&mut text, report);
        text.push('\n');
    }
    match summary(reports) {
        nothing if nothing.is_empty() => {}
        sentence => text += &format!("{sentence}\n"),
    }
    text
}

fn add_report(text: &mut String, report: &Report) {
    let Report { id, title, source, note, .. } = report;
    let _ = writeln!(text, "{title} ({source}) [{id}]");
    for line in wrapped(note, WIDTH) {
        let _ = writeln!(text, "  {line}");
    }
    text.push('\n');
    add_table(text, report);
    if has_beyond(report) {
        let _ = writeln!(text, "  {BEYOND}");
    }
    if !report.claims.is_empty() {
        text.push('\n');
        report.claims.iter().for_each(|claim| add_claim(text, claim));
    }
}

/// The width of lines, in characters.
const WIDTH: usize = 96;

/// Our number, the paper's, the difference and the verdict for each column; columns without paper
/// numbers show ours only.
fn add_table(text: &mut String, report: &Report) {
    let by_rate = report.rows.iter().any(|row| row.at.is_some());
    let mut head: [Vec<String>; 2] = [vec![String::new()], vec![String::new()]];
    if by_rate {
        head[0].push(String::new());
        head[1].push("req/s".to_owned());
    }
    let compared: Vec<bool> = (0..report.columns.len())
        .map(|column| report.rows.iter().any(|row| row.cells[column].paper.is_some()))
        .collect();
    for (column, compared) in report.columns.iter().zip(&compared) {
        let unit = column.metric.unit().as_str();
        let comma = if unit.is_empty() { "" } else { ", " };
        head[0].push(format!("{}{comma}{unit}", column.metric.title()));
        head[1].push("ours".to_owned());
        if *compared {
            head[0].extend(["", "", ""].map(str::to_owned));
            head[1].extend(["paper", "diff", ""].map(str::to_owned));
        }
    }
    let mut rows = Vec::new();
    for row in &report.rows {
        let mut line = vec![row_name(row)];
        if by_rate {
            line.push(row.at.map_or_else(String::new, |at| format!("{at:.0}")));
        }
        for ((cell, column), compared) in row.cells.iter().zip(&report.columns).zip(&compared) {
            let shown = |value: Option<f64>| {
                value.map_or_else(|| "-".to_owned(), |value| number(value, column.metric.unit()))
            };
            let spread = cell.spread.map_or_else(String::new, |spread| {
                format!(" ±{}", number(spread, column.metric.unit()))
            });
            line.push(shown(cell.ours) + &spread);
            if *compared {
                line.push(cell.paper.map_or_else(String::new, |paper| shown(Some(paper))));
                line.push(cell.difference.map_or_else(String::new, difference));
                line.push(if cell.paper.is_some() { mark(cell.verdict) } else { "" }.to_owned());
            }
        }
        rows.push(line);
    }
    add_lines(text, &head, &rows);
}

/// Aligns the first column to the left, all others to the right. A heading of the upper line spans
/// the following columns without a heading.
fn add_lines(text: &mut String, head: &[Vec<String>; 2], rows: &[Vec<String>]) {
    let lines = || [&head[1]].into_iter().chain(rows);
    let width =
        |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let mut widths: Vec<usize> = (0..head[1].len()).map(width).collect();
    widen(&mut widths, &head[0]);
    let mut upper = String::new();
    let mut reached = 0;
    for (heading, width) in head[0].iter().zip(&widths) {
        if !heading.is_empty() {
            let _ =
                write!(upper, "{:gap$}", "", gap = reached - upper.chars().count().min(reached));
            let _ = write!(upper, "{}{heading}", if upper.is_empty() { "" } else { "  " });
        }
        reached += width + 2;
    }
    let _ = writeln!(text, "  {}", upper.trim_end());
    for line in lines() {
        let mut row = String::new();
        for (place, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match place {
                0 => write!(row, "{cell:width$}"),
                _ => write!(row, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "  {}", row.trim_end());
    }
}

/// Widens the first column under a heading that is wider than its columns.
fn widen(widths: &mut [usize], headings: &[String]) {
    let mut begin = 0;
    while begin < headings.len() {
        let under = headings[begin + 1..].iter().take_while(|heading| heading.is_empty()).count();
        let room: usize = widths[begin..=begin + under].iter().sum::<usize>() + 2 * under;
        widths[begin] += headings[begin].chars().count().saturating_sub(room);
        begin += under + 1;
    }
}

fn add_claim(text: &mut String, judged: &Judged) {
    let Judged { claim, paper, ours, verdict } = judged;
    let ours = ours.as_deref().unwrap_or("not run");
    let _ = writeln!(text, "  {:3}  {claim}: {ours} (paper: {paper})", mark(*verdict));
}

/// The words of `text` in lines of at most `width` characters, where words allow it.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
