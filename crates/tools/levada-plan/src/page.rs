//! A plan as a page.

use std::fmt::Write as _;

use levada_report::chart::{Axes, Page, escaped, lines};
use levada_types::ByteSize;

use crate::{
    report::Plan,
    text::{answer, backtest, disk, log, verdict},
};

/// Writes the page.
pub(crate) fn page(plan: &Plan) -> String {
    let mut page = Page::new("A plan from access logs", &answer(plan));
    list(&mut page, &plan.answer.reasons);
    page.push_str("<h2>Backtest</h2>\n");
    list(&mut page, &[backtest(plan)]);
    page.push_str("<h2>Log</h2>\n");
    list(&mut page, &log(plan));
    page.push_str("<h2>Candidates</h2>\n<div class=\"wide\"><table><thead><tr>");
    for heading in [
        "nodes",
        "memory",
        "disk",
        "policy",
        "eviction",
        "hit %",
        "of it on disk",
        "byte-hit %",
        "origin Mbit/s",
        "CPU %",
        "disk %",
        "p99 ms",
        "aims",
    ] {
        let _ = write!(page, "<th>{heading}</th>");
    }
    page.push_str("</tr></thead><tbody>\n");
    for row in &plan.rows {
        let (candidate, figures) = (&row.candidate, &row.figures);
        let class = if row.missed.is_empty() { "pass" } else { "fail" };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td>\
             <td>{:.1}</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td><td class=\"{class}\">{}</td></tr>",
            candidate.nodes,
            ByteSize(candidate.memory),
            disk(candidate),
            escaped(&candidate.policy),
            candidate.eviction,
            figures.hit.mean * 100.0,
            figures.disk_hit.mean * 100.0,
            figures.byte_hit.mean * 100.0,
            figures.origin.mean,
            figures.cpu.mean * 100.0,
            figures.disk.mean * 100.0,
            figures.p99.mean * 1e3,
            escaped(&verdict(row)),
        );
    }
    page.push_str("</tbody></table></div>\n");
    let curves: Vec<_> = (plan.curves.iter())
        .map(|curve| {
            let points =
                curve.points.iter().map(|p| (p.bytes as f64 / 1048576.0, p.hit_ratio * 100.0));
            (curve.eviction.clone(), points.collect())
        })
        .collect();
    let axes = Axes {
        x: "memory and disk of all nodes, MiB".to_owned(),
        y: "hit ratio, %".to_owned(),
        log_x: true,
        ..Axes::default()
    };
    if let Some(figure) = lines("One cache at the peak hour, by its size", &curves, &axes) {
        page.figure(&figure);
    }
    page.finish()
}

fn list(page: &mut Page, sentences: &[String]) {
    page.push_str("<ul>\n");
    for sentence in sentences {
        let _ = writeln!(page, "<li>{}</li>", escaped(sentence));
    }
    page.push_str("</ul>\n");
}
