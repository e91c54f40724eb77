//! The report for a terminal.

use std::fmt::Write as _;

use levada_types::ByteSize;

use crate::{
    Ranked, RankedName, Summary,
    shown::{grouped, percent, printable, rate, seconds, utc},
};

/// The widest name of a row, in characters.
const WIDEST: usize = 70;

/// The whole report.
pub fn text(summary: &Summary) -> String {
    let mut out = String::new();
    head(&mut out, summary);
    statuses(&mut out, summary);
    latencies(&mut out, summary);
    for (heading, ranked) in summary.rankings() {
        ranking(&mut out, heading, ranked, summary);
    }
    out
}

fn head(out: &mut String, summary: &Summary) {
    let _ = writeln!(out, "requests    {}", grouped(summary.requests));
    let _ = writeln!(out, "bytes       {}", ByteSize(summary.bytes));
    if let (Some(first), Some(last)) = (summary.first, summary.last) {
        let _ = writeln!(out, "from        {}", utc(first));
        let _ = writeln!(out, "to          {} UTC", utc(last));
        let per_second = summary.requests as f64 / (last - first).max(1.0);
        let _ = writeln!(out, "rate        {}", rate(per_second));
    }
    if summary.hits_or_misses > 0 {
        let hits = percent(summary.hits, summary.hits_or_misses);
        let (some, all) = (grouped(summary.hits), grouped(summary.hits_or_misses));
        let _ = writeln!(out, "hit ratio   {hits} ({some} of {all} that say)");
    }
    if summary.unreadable_lines > 0 {
        let _ = writeln!(out, "unreadable  {} lines", grouped(summary.unreadable_lines));
        for unreadable in &summary.unreadable {
            let _ = writeln!(out, "            {}", printable(&unreadable.problem));
        }
    }
}

fn statuses(out: &mut String, summary: &Summary) {
    heading(out, "Statuses");
    for row in &summary.statuses {
        let part = percent(row.requests, summary.requests);
        let status = if row.status == 0 { "-".to_owned() } else { row.status.to_string() };
        let _ = writeln!(out, "{:>14}  {part:>7}  {status}", grouped(row.requests));
    }
    if !summary.cache_results.is_empty() {
        heading(out, "Results of the cache");
    }
    for row in &summary.cache_results {
        let part = percent(row.requests, summary.requests);
        let result = printable(&row.result);
        let _ = writeln!(out, "{:>14}  {part:>7}  {result}", grouped(row.requests));
    }
}

fn latencies(out: &mut String, summary: &Summary) {
    let all: Vec<_> = summary.latencies().collect();
    if all.is_empty() {
        return;
    }
    heading(out, "Latency");
    let columns = ["", "requests", "mean", "p50", "p90", "p99", "p99.9", "longest"];
    let row = |out: &mut String, cells: [&str; 8]| {
        let [name, requests, rest @ ..] = cells;
        let rest: String = rest.iter().map(|cell| format!("{cell:>13}")).collect();
        let _ = writeln!(out, "{name:<8}{requests:>14}{rest}");
    };
    row(out, columns);
    for (name, latency) in all {
        let times =
            [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
        let [mean, p50, p90, p99, p999, max] = times.map(seconds);
        row(out, [name, &grouped(latency.requests), &mean, &p50, &p90, &p99, &p999, &max]);
    }
    heading(out, "Slowest");
    for slow in &summary.slowest {
        let time = slow.time.map_or_else(|| "-".to_owned(), utc);
        let status = slow.status.map_or_else(|| "-".to_owned(), |status| status.to_string());
        let url = format!("{}{}", slow.host.as_deref().unwrap_or(""), slow.target);
        let _ = writeln!(out, "{:>14}  {time}  {status}  {}", seconds(slow.seconds), short(&url));
    }
}

fn ranking(out: &mut String, name: &str, ranked: &Ranked, summary: &Summary) {
    if ranked.by_requests.is_empty() {
        return;
    }
    let names = match ranked.names {
        Some(names) => format!(" ({} in all)", grouped(names)),
        None => " (too many to count)".to_owned(),
    };
    let lists = [
        ("requests", &ranked.by_requests, ranked.requests_too_low_by),
        ("bytes", &ranked.by_bytes, ranked.bytes_too_low_by),
    ];
    for (by, list, too_low) in lists {
        heading(out, &format!("{name} by {by}{names}"));
        if too_low > 0 {
            let _ = writeln!(out, "each too low by at most {}", grouped(too_low));
        }
        list.iter().for_each(|row| ranked_row(out, row, summary));
    }
}

fn ranked_row(out: &mut String, row: &RankedName, summary: &Summary) {
    let requests = row.requests.map(grouped).unwrap_or_default();
    let part = row.requests.map(|count| percent(count, summary.requests)).unwrap_or_default();
    let bytes = row.bytes.map(|bytes| ByteSize(bytes).to_string()).unwrap_or_default();
    let _ = writeln!(out, "{requests:>14}  {part:>7}  {bytes:>10}  {}", short(&row.name));
}

fn heading(out: &mut String, text: &str) {
    let _ = writeln!(out, "\n{text}");
}

fn short(name: &str) -> String {
    let name = printable(name);
    match name.chars().count() {
        few if few <= WIDEST => name,
        _ => name.chars().take(WIDEST - 1).chain(['…']).collect(),
    }
}
