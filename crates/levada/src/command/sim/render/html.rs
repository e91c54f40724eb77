//! Reports as one page.

use std::fmt::Write as _;

use levada_paper::{
    Judged, Report, ReportRow, Verdict,
    render::{BEYOND, difference, has_beyond, mark, number, row_name, summary},
};
use levada_report::chart::{Page, escaped};
use levada_sim::Unit;

use super::plot;

/// All reports on a page.
pub(crate) fn render(title: &str, reports: &[Report]) -> String {
    let mut page = Page::new(title, &summary(reports));
    if reports.len() > 1 {
        add_contents(&mut page, reports);
    }
    reports.iter().for_each(|report| add_report(&mut page, report));
    page.finish()
}

fn add_contents(page: &mut Page, reports: &[Report]) {
    page.push_str("<nav>\n<ul>\n");
    for report in reports {
        let failed = report.verdicts().filter(|verdict| *verdict == Verdict::Fail).count();
        let note = match failed {
            0 => String::new(),
            failed => format!(" <span class=\"fail\">{failed} out of tolerance</span>"),
        };
        let (id, title) = (escaped(&report.id), escaped(&report.title));
        let source = escaped(&report.source);
        let _ = writeln!(page, "<li><a href=\"#{id}\">{title}</a> ({source}){note}</li>");
    }
    page.push_str("</ul>\n</nav>\n");
}

fn add_report(page: &mut Page, report: &Report) {
    let [id, title, source, note] =
        [&report.id, &report.title, &report.source, &report.note].map(|text| escaped(text));
    let _ = write!(
        page,
        "<section id=\"{id}\">\n<h2>{title}</h2>\n<p class=\"source\">{source} &middot; \
         <code>{id}</code></p>\n<p>{note}</p>\n"
    );
    plot::figures(report).iter().for_each(|figure| page.figure(figure));
    add_table(page, report);
    if has_beyond(report) {
        let _ = writeln!(page, "<p class=\"source\">{}</p>", escaped(BEYOND));
    }
    add_claims(page, &report.claims);
    page.push_str("</section>\n");
}

fn add_table(page: &mut Page, report: &Report) {
    let by_rate = report.rows.iter().any(|row| row.at.is_some());
    let compared: Vec<bool> = (0..report.columns.len())
        .map(|column| report.rows.iter().any(|row| row.cells[column].paper.is_some()))
        .collect();
    page.push_str("<div class=\"wide\"><table>\n<thead>\n<tr><th rowspan=\"2\"></th>");
    if by_rate {
        page.push_str("<th rowspan=\"2\">req/s</th>");
    }
    for (column, compared) in report.columns.iter().zip(&compared) {
        let unit = column.metric.unit().as_str();
        let name = column.metric.title();
        let name = if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") };
        let span = if *compared { 3 } else { 1 };
        let _ = write!(page, "<th colspan=\"{span}\">{}</th>", escaped(&name));
    }
    page.push_str("</tr>\n<tr>");
    for compared in &compared {
        page.push_str("<th>ours</th>");
        if *compared {
            page.push_str("<th>paper</th><th>difference</th>");
        }
    }
    page.push_str("</tr>\n</thead>\n<tbody>\n");
    for row in &report.rows {
        add_row(page, report, row, by_rate, &compared);
    }
    page.push_str("</tbody>\n</table></div>\n");
}

fn add_row(page: &mut Page, report: &Report, row: &ReportRow, by_rate: bool, compared: &[bool]) {
    let _ = write!(page, "<tr><th scope=\"row\">{}</th>", escaped(&row_name(row)));
    if by_rate {
        let _ = write!(page, "<td>{}</td>", row.at.map_or_else(String::new, |at| at.to_string()));
    }
    for ((cell, column), compared) in row.cells.iter().zip(&report.columns).zip(compared) {
        let shown = |value: Option<f64>| {
            value.map(|value| spaced(&number(value, column.metric.unit()), column.metric.unit()))
        };
        let ours = shown(cell.ours).unwrap_or_else(|| "&ndash;".to_owned());
        let spread =
            shown(cell.spread).map_or_else(String::new, |spread| format!(" &plusmn;{spread}"));
        let _ = write!(page, "<td class=\"ours\">{ours}{spread}</td>");
        if *compared {
            let class = class(if cell.paper.is_some() { cell.verdict } else { Verdict::Reported });
            let difference = cell.difference.map_or_else(String::new, difference);
            let paper = shown(cell.paper).unwrap_or_default();
            let _ = write!(page, "<td>{paper}</td><td class=\"{class}\">{difference}</td>");
        }
    }
    page.push_str("</tr>\n");
}

fn add_claims(page: &mut Page, claims: &[Judged]) {
    if claims.is_empty() {
        return;
    }
    page.push_str(
        "<div class=\"wide\"><table>\n<thead><tr><th>Claim</th><th>ours</th><th>paper</th>\
         <th></th></tr></thead>\n<tbody>\n",
    );
    for Judged { claim, paper, ours, verdict } in claims {
        let ours = ours.as_deref().unwrap_or("not run");
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td class=\"ours\">{}</td><td>{}</td>\
             <td class=\"{}\">{}</td></tr>",
            escaped(claim),
            escaped(ours),
            escaped(paper),
            class(*verdict),
            mark(*verdict),
        );
    }
    page.push_str("</tbody>\n</table></div>\n");
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Reported | Verdict::Missing => "plain",
    }
}

/// Thousands apart, by narrow spaces that do not break.
fn spaced(digits: &str, unit: Unit) -> String {
    if !matches!(unit, Unit::PerSecond | Unit::Count) || digits.contains('.') {
        return digits.to_owned();
    }
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) && digits.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(spaced("33237", Unit::PerSecond), "33\u{202f}237");
        assert_eq!(spaced("9300", Unit::PerSecond), "9300");
        assert_eq!(spaced("0.53", Unit::Seconds), "0.53");
    }
}
