//! The report as one page that needs nothing else. All text of the log is escaped, and none of it is in a
//! picture.

use std::fmt::Write as _;

use crate::chart::{Axes, Bar, BarRow, Bars, Curve, Page, bars, escaped, lines};
use levada_types::ByteSize;

use crate::{
    Interval, Ranked, RankedName, Summary,
    shown::{grouped, percent, printable, seconds, utc},
};

/// The whole page.
pub fn page(summary: &Summary) -> String {
    let mut page = Page::new("Access log", &sentence(summary));
    over_time(&mut page, summary);
    statuses(&mut page, summary);
    latencies(&mut page, summary);
    for (heading, ranked) in summary.rankings() {
        ranking(&mut page, heading, ranked, summary);
    }
    unreadable(&mut page, summary);
    page.finish()
}

fn sentence(summary: &Summary) -> String {
    let mut text = format!("{} requests, {}", grouped(summary.requests), ByteSize(summary.bytes));
    if let (Some(first), Some(last)) = (summary.first, summary.last) {
        let _ = write!(text, ", from {} to {} UTC", utc(first), utc(last));
    }
    if summary.hits_or_misses > 0 {
        let _ = write!(text, "; hit ratio {}", percent(summary.hits, summary.hits_or_misses));
    }
    text + "."
}

fn over_time(page: &mut Page, summary: &Summary) {
    let (Some(first), Some(last)) = (summary.intervals.first(), summary.intervals.last()) else {
        return;
    };
    let begin = first.begins;
    let (unit, length) = match last.begins - begin {
        0..600 => ("seconds", 1.0),
        600..18_000 => ("minutes", 60.0),
        18_000..432_000 => ("hours", 3600.0),
        _ => ("days", 86_400.0),
    };
    let x = format!("{unit} since {} UTC", utc(begin as f64));
    let curve = |name: &str, of: &dyn Fn(&Interval) -> Option<f64>| -> Curve {
        let place = |interval: &Interval| (interval.begins - begin) as f64 / length;
        let points = summary.intervals.iter();
        (name.to_owned(), points.filter_map(|i| Some((place(i), of(i)?))).collect())
    };
    let each = summary.interval_seconds as f64;
    let figures = [
        (
            "Requests per second; errors have a status of 500 or above",
            "requests/s",
            vec![
                curve("requests", &|i| Some(i.requests as f64 / each)),
                curve("errors", &|i| Some(i.errors as f64 / each)),
            ],
        ),
        (
            "Bytes per second, as logged",
            "MB/s",
            vec![curve("bytes", &|i| Some(i.bytes as f64 / each / 1e6))],
        ),
        ("Hit ratio", "percent", vec![curve("hits", &|i| i.hit_ratio.map(|ratio| ratio * 100.0))]),
    ];
    page.push_str("<h2>Over time</h2>\n");
    for (caption, y, curves) in figures {
        let axes = Axes { x: x.clone(), y: y.to_owned(), ..Axes::default() };
        if curves.iter().any(|(_, points)| !points.is_empty())
            && let Some(figure) = lines(caption, &curves, &axes)
        {
            page.figure(&figure);
        }
    }
}

fn statuses(page: &mut Page, summary: &Summary) {
    let row = |name: String, requests: u64| BarRow {
        name,
        faint: false,
        bars: vec![Bar { value: Some(requests as f64), mark: None }],
    };
    let rows = summary.statuses.iter().map(|row_of| match row_of.status {
        0 => row("none".to_owned(), row_of.requests),
        status => row(status.to_string(), row_of.requests),
    });
    let rows = Bars { x: "requests".to_owned(), rows: rows.collect() };
    page.push_str("<h2>Statuses</h2>\n");
    if let Some(figure) = bars("Requests by status", &rows) {
        page.figure(&figure);
    }
    if !summary.cache_results.is_empty() {
        let rows = summary.cache_results.iter().map(|row| {
            [row.result.clone(), grouped(row.requests), percent(row.requests, summary.requests)]
        });
        page.push_str("<h2>Results of the cache</h2>\n");
        table(page, ["result", "requests", "part"], rows);
    }
}

fn latencies(page: &mut Page, summary: &Summary) {
    let all: Vec<_> = summary.latencies().collect();
    if all.is_empty() {
        return;
    }
    page.push_str("<h2>Latency</h2>\n");
    let rows = all.iter().map(|(name, latency)| {
        let times =
            [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
        let [mean, p50, p90, p99, p999, max] = times.map(seconds);
        [(*name).to_owned(), grouped(latency.requests), mean, p50, p90, p99, p999, max]
    });
    table(page, ["", "requests", "mean", "p50", "p90", "p99", "p99.9", "longest"], rows);
    page.push_str("<h2>Slowest</h2>\n");
    let rows = summary.slowest.iter().map(|slow| {
        let url = format!("{}{}", slow.host.as_deref().unwrap_or(""), slow.target);
        let status = slow.status.map_or_else(|| "-".to_owned(), |status| status.to_string());
        [url, seconds(slow.seconds), slow.time.map_or_else(|| "-".to_owned(), utc), status]
    });
    table(page, ["request", "time", "at", "status"], rows);
}

fn ranking(page: &mut Page, heading: &str, ranked: &Ranked, summary: &Summary) {
    if ranked.by_requests.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h2>{heading}</h2>");
    let names = ranked.names.map(grouped).unwrap_or_else(|| "too many to count".to_owned());
    let _ = writeln!(page, "<p class=\"source\">different ones: {names}</p>");
    let lists = [
        ("by requests", &ranked.by_requests, ranked.requests_too_low_by),
        ("by bytes", &ranked.by_bytes, ranked.bytes_too_low_by),
    ];
    for (by, list, too_low) in lists {
        if too_low > 0 {
            let bound = grouped(too_low);
            let _ = writeln!(page, "<p class=\"source\">each too low by at most {bound}</p>");
        }
        let rows = list.iter().map(|row: &RankedName| {
            let part = row.requests.map(|count| percent(count, summary.requests));
            [
                row.name.clone(),
                row.requests.map(grouped).unwrap_or_default(),
                part.unwrap_or_default(),
                row.bytes.map(|bytes| ByteSize(bytes).to_string()).unwrap_or_default(),
            ]
        });
        table(page, [by, "requests", "part", "bytes"], rows);
    }
}

fn unreadable(page: &mut Page, summary: &Summary) {
    if summary.unreadable_lines == 0 {
        return;
    }
    let count = grouped(summary.unreadable_lines);
    let _ = writeln!(page, "<h2>Unreadable lines: {count}</h2>\n<ul>");
    for line in &summary.unreadable {
        let _ = writeln!(page, "<li>{}</li>", escaped(&printable(&line.problem)));
    }
    page.push_str("</ul>\n");
}

/// A table whose rows begin with a name.
fn table<const N: usize>(
    page: &mut Page,
    columns: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    let head: String =
        columns.iter().map(|column| format!("<th>{}</th>", escaped(column))).collect();
    let _ = writeln!(page, "<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>");
    for row in rows {
        let [name, cells @ ..] = &row[..] else { continue };
        let cells: String =
            cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let name = escaped(&printable(name));
        let _ = writeln!(page, "<tr><th scope=\"row\">{name}</th>{cells}</tr>");
    }
    page.push_str("</tbody></table></div>\n");
}
