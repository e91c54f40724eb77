//! `levada classify access.log`: the service classes of the requests in a log, and rules for them.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;
use levada_policy::classify::{HeavyThreshold, RecentTimes, TimeFigures, prefix_of};
use levada_trace::{LogRecord, TimeTaken};
use levada_types::ServiceClass;
use serde::Serialize;

use levada_client::command::{CommandStatus, output};

/// Proposes class rules from an access log, and shows the shares of the classes.
///
/// Requests are grouped by the first segment of their path, or by the extension of files in the root,
/// and classified by their duration. A log without durations yields no proposal.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClassifyArgs {
    /// The access log: any format that `levada sim` reads, also compressed with gzip, xz or zstd.
    log: PathBuf,
    /// Groups with a smaller share of the requests, in percent, are reported as the rest.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    min_share: f64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let within = (0.0..=100.0).contains(&number);
    within.then_some(number).ok_or_else(|| "must be from 0 to 100".to_owned())
}

/// Reads the log and classifies.
///
/// # Errors
/// If the log cannot be read or has no requests.
pub(crate) fn run(args: &ClassifyArgs) -> anyhow::Result<CommandStatus> {
    let reader = levada_trace::open(&args.log)?;
    let format = reader.format().name;
    let mut census = Census::default();
    let mut unreadable = 0u64;
    for record in reader {
        match record {
            Ok(record) => census.take(&record),
            Err(_) => unreadable += 1,
        }
    }
    let report = census.report(format, unreadable, args.min_share / 100.0);
    output::print(args.json, &report, |out| print(out, &report))?;
    Ok(CommandStatus::of(report.timed))
}

/// The duration of a larger response depends more on the client's line than on the server.
const SHORT: u64 = 64 << 10;
/// Most durations that are kept of a group: the last ones.
const TIMES: usize = 4096;
/// Most groups; further ones are part of the rest.
const MOST_KINDS: usize = 4096;
/// Fewest durations from which a group is classified.
const FEWEST: usize = 10;

/// The requests of each group.
#[derive(Default)]
struct Census {
    kinds: BTreeMap<String, Kind>,
    rest: u64,
    requests: u64,
    sizes: bool,
    long: u64,
}

struct Kind {
    requests: u64,
    bytes: u64,
    times: RecentTimes,
}

/// The report.
#[derive(Debug, Serialize)]
struct Report {
    format: &'static str,
    requests: u64,
    unreadable: u64,
    /// Whether the log has durations.
    timed: bool,
    /// Whether the log has response sizes.
    sized: bool,
    /// Requests whose duration was not counted, because their responses were long.
    long: u64,
    /// Duration from which a group counts as heavy, in milliseconds.
    heavy_ms: f64,
    kinds: Vec<Judged>,
    /// Requests of groups that are too rare to be listed.
    rest: u64,
    shares: BTreeMap<&'static str, f64>,
}

#[derive(Debug, Serialize)]
struct Judged {
    /// Prefix or suffix of the path.
    kind: String,
    share: f64,
    mean_bytes: u64,
    low_ms: Option<f64>,
    mean_ms: Option<f64>,
    /// `None` if too few durations are known.
    class: Option<&'static str>,
}

impl Census {
    fn take(&mut self, record: &LogRecord) {
        let path = record.target.split('?').next().unwrap_or_default();
        // A line without a request, or an identifier of a trace.
        let Some(kind) = prefix_of(path) else { return };
        self.requests += 1;
        if !self.kinds.contains_key(kind) && self.kinds.len() >= MOST_KINDS {
            self.rest += 1;
            return;
        }
        let kind = self.kinds.entry(kind.to_owned()).or_insert_with(|| Kind {
            requests: 0,
            bytes: 0,
            times: RecentTimes::new(TIMES),
        });
        kind.requests += 1;
        self.sizes |= record.bytes.is_some();
        kind.bytes = kind.bytes.saturating_add(record.bytes.unwrap_or_default());
        // The duration of an error says little about the cost of the request.
        if record.status.is_some_and(|status| status >= 500) {
            return;
        }
        let long = record.bytes.is_some_and(|bytes| bytes > SHORT);
        match record.taken {
            Some(TimeTaken::InAll(_)) if long => self.long += 1,
            Some(taken) => kind.times.add((taken.seconds() * 1e6).min(u32::MAX.into()) as u32),
            None => {}
        }
    }

    fn report(self, format: &'static str, unreadable: u64, min_share: f64) -> Report {
        let all = self.requests.max(1) as f64;
        let enough =
            |kind: &Kind| (kind.times.len() >= FEWEST).then(|| kind.times.figures()).flatten();
        let frequent = |kind: &Kind| kind.requests as f64 / all >= min_share;
        let heavy =
            HeavyThreshold::beside(self.kinds.values().filter(|k| frequent(k)).filter_map(enough));
        let timed = self.long > 0 || self.kinds.values().any(|kind| !kind.times.is_empty());
        let mut shares: BTreeMap<&'static str, f64> =
            ServiceClass::ALL.into_iter().map(|class| (class.as_str(), 0.0)).collect();
        let (mut kinds, mut rest) = (Vec::new(), self.rest);
        for (name, kind) in self.kinds {
            if !frequent(&kind) {
                rest += kind.requests;
                continue;
            }
            let figures: Option<TimeFigures> = enough(&kind);
            let class = figures.map(|figures| heavy.class_of(figures));
            let share = kind.requests as f64 / all;
            *shares.entry(class.unwrap_or_default().as_str()).or_default() += share;
            kinds.push(Judged {
                kind: name,
                share,
                mean_bytes: kind.bytes / kind.requests.max(1),
                low_ms: figures.map(|figures| f64::from(figures.low) / 1e3),
                mean_ms: figures.map(|figures| f64::from(figures.mean) / 1e3),
                class: class.map(ServiceClass::as_str),
            });
        }
        kinds.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.kind.cmp(&b.kind)));
        *shares.entry(ServiceClass::Normal.as_str()).or_default() += rest as f64 / all;
        Report {
            format,
            requests: self.requests,
            unreadable,
            timed,
            sized: self.sizes,
            long: self.long,
            heavy_ms: f64::from(heavy.0) / 1e3,
            kinds,
            rest,
            shares,
        }
    }
}

fn print(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let Report { requests, unreadable, format, .. } = report;
    writeln!(out, "{requests} requests ({format}), {unreadable} lines unreadable")?;
    if !report.timed {
        writeln!(
            out,
            "the log has no times, so that no class can be proposed: add the time of the"
        )?;
        writeln!(out, "request to it (nginx: $upstream_header_time or $request_time; Apache: %D)")?;
    }
    if !report.sized {
        writeln!(out, "the log has no sizes: times may contain those of long transfers")?;
    }
    if report.long > 0 {
        let long = report.long;
        writeln!(
            out,
            "{long} answers above 64 KiB were not judged by their time, which is the client's"
        )?;
    }
    let width = report.kinds.iter().map(|k| k.kind.chars().count()).max().unwrap_or(0).max(4);
    writeln!(
        out,
        "\n{:width$}  {:>7}  {:>10}  {:>9}  {:>9}  CLASS",
        "KIND", "SHARE", "MEAN BYTES", "LOW", "MEAN"
    )?;
    let time = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    for kind in &report.kinds {
        writeln!(
            out,
            "{:width$}  {:>5.1} %  {:>10}  {:>9}  {:>9}  {}",
            shown(&kind.kind),
            kind.share * 100.0,
            kind.mean_bytes,
            time(kind.low_ms),
            time(kind.mean_ms),
            kind.class.unwrap_or("-"),
        )?;
    }
    if report.rest > 0 {
        let share = report.rest as f64 / report.requests.max(1) as f64 * 100.0;
        writeln!(out, "{:width$}  {share:>5.1} %", "rest")?;
    }
    if !report.timed {
        return Ok(());
    }
    writeln!(out, "\nheavy from {:.1} ms; shares:", report.heavy_ms)?;
    for class in ServiceClass::ALL.map(ServiceClass::as_str) {
        writeln!(out, "  {class:12}  {:>5.1} %", report.shares[class] * 100.0)?;
    }
    for kind in &report.kinds {
        let Some(class) = kind.class.filter(|class| *class != "normal") else { continue };
        let key = if kind.kind.starts_with('/') { "prefix" } else { "suffix" };
        // A basic string has the same notation in TOML and JSON, except for characters that no path
        // has.
        let text = serde_json::to_string(&kind.kind).unwrap_or_default();
        writeln!(out, "\n[[site.class]]\nclass = {class:?}\n{key} = {text}")?;
    }
    Ok(())
}

/// Escapes a log's text, so that it cannot control a terminal.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

const EXAMPLES: &str = "\
Examples:
  levada classify access.log
  levada classify access.log.gz --min-share 5
  levada classify access.log --json | jq .shares

Exit codes:
  0  done
  1  the log has no times, so that nothing could be proposed
  2  it cannot be read";

#[cfg(test)]
mod tests {
    use super::*;

    fn census(lines: &[(&str, Option<TimeTaken>, u64)]) -> Census {
        let mut census = Census::default();
        for round in 0..40 {
            for (target, taken, bytes) in lines {
                let taken = taken.filter(|_| round % 2 == 0 || !target.starts_with("/archive"));
                let taken = match (taken, target.starts_with("/archive")) {
                    (None, true) => Some(TimeTaken::ToAnswer(0.001)),
                    (taken, _) => taken,
                };
                census.take(&LogRecord {
                    method: "GET".to_owned(),
                    target: (*target).to_owned(),
                    status: Some(200),
                    bytes: Some(*bytes),
                    taken,
                    ..LogRecord::default()
                });
            }
        }
        census
    }

    #[test]
    fn kinds_are_judged_by_their_times_and_rules_are_printed() {
        let report = census(&[
            ("/static/a.css?v=1", Some(TimeTaken::ToAnswer(0.001)), 1000),
            ("/search/x", Some(TimeTaken::InAll(0.040)), 2000),
            ("/archive/y", Some(TimeTaken::ToAnswer(0.040)), 3000),
            ("/big/z", Some(TimeTaken::InAll(9.0)), 1 << 20),
        ])
        .report("json", 0, 0.01);
        let class = |kind: &str| report.kinds.iter().find(|k| k.kind == kind).unwrap().class;
        assert_eq!(class("/static/"), Some("normal"));
        assert_eq!(class("/search/"), Some("cpu"));
        assert_eq!(class("/archive/"), Some("disk"));
        assert_eq!(class("/big/"), None, "its time is the client's");
        assert_eq!((report.timed, report.long), (true, 40));
        assert!((report.shares["cpu"] - 0.25).abs() < 1e-9);
        let mut out = Vec::new();
        print(&mut out, &report).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("[[site.class]]\nclass = \"cpu\"\nprefix = \"/search/\"\n"),
            "{text}"
        );
    }

    #[test]
    fn log_without_times_proposes_nothing_and_says_so() {
        let report = census(&[("/a/b", None, 10)]).report("clf", 3, 0.01);
        assert_eq!((report.timed, report.kinds[0].class), (false, None));
        let mut out = Vec::new();
        print(&mut out, &report).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("has no times") && !text.contains("[[site.class]]"), "{text}");
    }
}
