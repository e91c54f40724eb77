//! A plan as text.

use std::fmt;

use levada_report::grouped;
use levada_types::ByteSize;

use crate::{
    answer::words,
    evaluate::{Candidate, Figures, Range},
    report::Plan,
    search::Row,
};

/// Most scanners that are named.
const SCANNERS: usize = 5;

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(out, self)
    }
}

fn write(out: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    writeln!(out, "Backtest\n  {}\n", backtest(plan))?;
    writeln!(out, "Log")?;
    for line in log(plan) {
        writeln!(out, "  {line}")?;
    }
    writeln!(out, "\nCandidates, with the range of the runs")?;
    writeln!(
        out,
        "  {:>5} {:>8} {:>8} {:14} {:12} {:>18} {:>7} {:>18} {:>20} {:>16} {:>6} {:>18}  aims",
        "nodes",
        "memory",
        "disk",
        "policy",
        "eviction",
        "hit %",
        "on disk",
        "byte-hit %",
        "origin Mbit/s",
        "busiest CPU %",
        "disk %",
        "p99 ms"
    )?;
    for row in &plan.rows {
        writeln!(out, "{}", line(row, &row.figures, &verdict(row)))?;
        if let Some(survived) = &row.survived {
            writeln!(out, "{}", line(row, survived, "with nodes lost"))?;
        }
    }
    if plan.excluded > 0 {
        writeln!(
            out,
            "  {} further candidates cannot meet the aims: they have too few nodes to lose one, or not as one large cache",
            plan.excluded
        )?;
    }
    writeln!(out, "\nAnswer\n  {}", answer(plan))?;
    plan.answer.reasons.iter().try_for_each(|reason| writeln!(out, "  {reason}."))
}

fn line(row: &Row, figures: &Figures, verdict: &str) -> String {
    let range = |range: Range, scale: f64, digits: usize| {
        format!(
            "{:.digits$} ({:.digits$}..{:.digits$})",
            range.mean * scale,
            range.least * scale,
            range.most * scale
        )
    };
    let candidate = &row.candidate;
    format!(
        "  {:>5} {:>8} {:>8} {:14} {:12} {:>18} {:>7} {:>18} {:>20} {:>16} {:>6} {:>18}  {verdict}",
        candidate.nodes,
        ByteSize(candidate.memory).to_string(),
        disk(candidate),
        candidate.policy,
        candidate.eviction,
        range(figures.hit, 100.0, 1),
        format!("{:.1}", figures.disk_hit.mean * 100.0),
        range(figures.byte_hit, 100.0, 1),
        range(figures.origin, 1.0, digits(figures.origin.mean)),
        range(figures.cpu, 100.0, 0),
        format!("{:.0}", figures.disk.mean * 100.0),
        range(figures.p99, 1e3, 0),
    )
}

/// The size of a candidate's disk tier.
pub(crate) fn disk(candidate: &Candidate) -> String {
    match candidate.disk {
        0 => "-".to_owned(),
        bytes => ByteSize(bytes).to_string(),
    }
}

/// The digits after the point of a rate, which may be small.
const fn digits(rate: f64) -> usize {
    if rate < 1.0 { 3 } else { 1 }
}

/// Whether the aims are met, with the price.
pub(crate) fn verdict(row: &Row) -> String {
    let met = if row.missed.is_empty() { "met" } else { "missed" };
    row.price.map_or_else(|| met.to_owned(), |price| format!("{met}, price {price:.2}"))
}

/// The backtest in one sentence.
pub(crate) fn backtest(plan: &Plan) -> String {
    let Some(test) = &plan.backtest else {
        return "the log has no results of a cache (HIT, MISS) for half of its requests, so the model is not checked: \
                log them (nginx: $upstream_cache_status)"
            .to_owned();
    };
    let memory = test.memory.as_ref().map_or_else(String::new, |memory| {
        format!(
            "; of memory alone the log says {:.1} %, and the model, with {}, {:.1} %: {:+.1} points",
            memory.logged_hit * 100.0,
            ByteSize(memory.bytes),
            memory.predicted_hit * 100.0,
            (memory.predicted_hit - memory.logged_hit) * 100.0
        )
    });
    format!(
        "of the last {} requests the log says {:.1} % hits and {:.1} % of bytes; the model, with the {} that explain \
         those before, says {:.1} % and {:.1} %: {:+.1} and {:+.1} points{memory}",
        grouped(test.requests),
        test.logged_hit * 100.0,
        test.logged_byte_hit * 100.0,
        ByteSize(test.cache),
        test.predicted_hit * 100.0,
        test.predicted_byte_hit * 100.0,
        (test.predicted_hit - test.logged_hit) * 100.0,
        (test.predicted_byte_hit - test.logged_byte_hit) * 100.0
    )
}

/// The log as it was read, in sentences.
pub(crate) fn log(plan: &Plan) -> Vec<String> {
    let (log, peak) = (&plan.log, &plan.peak);
    let mut lines = vec![
        format!(
            "{} requests for {} objects of {} in all; {}",
            grouped(log.requests),
            grouped(log.objects),
            ByteSize(log.object_bytes),
            log.skipped
        ),
        match (peak.hours, peak.hour) {
            (Some(hours), Some(hour)) => format!(
                "{hours:.1} hours; the peak hour begins at {hour:02} h UTC with {:.*} requests/s of {} on average",
                digits(peak.rate),
                peak.rate,
                ByteSize(peak.mean_bytes as u64)
            ),
            _ => format!("no times; the peak has {:.1} requests/s as given", peak.rate),
        },
        format!(
            "a request costs {:.1} us of CPU, {:.1} us more if it is passed on, and {:.2} us for each KiB ({}); the origin \
             takes {:.0} ms{} ({})",
            plan.costs.request_us,
            plan.costs.relay_us(),
            plan.costs.kib_us,
            plan.costs_from,
            plan.origin_latency * 1e3,
            plan.origin_rate.map_or_else(String::new, |rate| {
                format!(" and sends {:.1} Mbit/s", rate * 1e-6)
            }),
            plan.origin_latency_from
        ),
        plan.expiry.sentence(),
    ];
    if plan.growth > 1.0 {
        lines.push(format!("planned for {} times this rate", plan.growth));
    }
    if log.relayed > 0 {
        lines.push(format!(
            "{} requests were passed on to another node, whose line of them counts",
            grouped(log.relayed)
        ));
    }
    if log.unsorted > 0 {
        lines.push(format!(
            "{} requests were out of order and have been sorted",
            grouped(log.unsorted)
        ));
    }
    if log.jumped > 0 {
        lines.push(format!(
            "{} requests after a jump of the clock are left out",
            grouped(log.jumped)
        ));
    }
    let kept = if log.without_scans { "left out" } else { "kept; --without-scans leaves it out" };
    lines.extend(log.scanners.iter().take(SCANNERS).map(|scanner| {
        let name: String = scanner.client.chars().filter(|c| !c.is_control()).take(60).collect();
        format!(
            "{name} looks like a scanner: {} requests, {}; {kept}",
            grouped(scanner.requests),
            scanner.reason
        )
    }));
    if log.scanners.len() > SCANNERS {
        lines.push(format!("and {} more scanners", log.scanners.len() - SCANNERS));
    }
    lines.extend(log.remarks.iter().cloned());
    if peak.hours.is_some_and(|hours| hours < 1.0) {
        lines.push(
            "the log covers less than an hour: the rate is its mean; give a longer log".to_owned(),
        );
    }
    lines
}

/// The answer in one sentence.
pub(crate) fn answer(plan: &Plan) -> String {
    let words = words(&plan.answer.row.candidate);
    match plan.answer.met {
        true => format!("{words}: the smallest candidate that meets the aims."),
        false => format!("No candidate meets the aims. The nearest that is possible is {words}."),
    }
}
