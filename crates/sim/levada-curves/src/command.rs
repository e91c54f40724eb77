//! `levada sim cache`: how much cache memory a site needs, from its access logs, on the command line.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use levada_cache::eviction::{EVICTIONS, EvictionEntry, find_eviction};
use levada_client::command::{CommandStatus, output};
use levada_types::ByteSize;
use serde::Serialize;

use crate::{Admission, CurveOptions, CurveReport, page, read, remarks, text};

/// Computes the hit ratios of every eviction and admission over sizes of a cache, from access logs.
///
/// Reads the formats of docs/operate/traces.md, plain or compressed with gzip, xz or zstd, as one log in the order
/// given. A long log is sampled: a share of its objects, with all of their requests, in a cache that is smaller by
/// the same share. The error of each figure is stated. docs/simulate/cache.md describes it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CacheArgs {
    /// The logs, the oldest first; `-` is standard input.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Sizes of the cache. The default is ten sizes up to one that holds all objects.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size)]
    sizes: Vec<ByteSize>,
    /// Evictions; `levada sim list evictions` lists them. The default is all.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = eviction)]
    eviction: Vec<&'static EvictionEntry>,
    /// Admissions: always, second_hit. The default is both.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = admission)]
    admission: Vec<Admission>,
    /// The share of the objects to begin with. It falls when more requests are sampled than --sample says.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = rate)]
    rate: f64,
    /// The most requests in the sample. One million takes up to 250 MB.
    #[arg(long, value_name = "REQUESTS", default_value_t = 4_000_000, value_parser = clap::value_parser!(u32).range(1_000..=200_000_000))]
    sample: u32,
    /// The largest error that is acceptable, in points of a hit ratio; above it, the exit code is 1.
    #[arg(long, value_name = "POINTS", value_parser = points, allow_negative_numbers = true)]
    error: Option<f64>,
    /// Another seed samples other objects.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Also writes a page with figures.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The report in JSON.
#[derive(Serialize)]
struct CommandReport<'a> {
    #[serde(flatten)]
    report: &'a CurveReport,
    /// Sentences about what limits the meaning of the figures.
    remarks: &'a [String],
}

/// Reads the logs and prints the curves.
///
/// # Errors
/// When a log cannot be read, there is nothing to compute, or the page cannot be written.
pub fn run(args: &CacheArgs) -> anyhow::Result<CommandStatus> {
    let logs = read(&args.logs, args.options())?;
    let mut remarks = remarks::of_lines(&logs);
    remarks.iter().for_each(|remark| eprintln!("{remark}"));
    let report = logs.curves.finish()?;
    let too_uncertain = args.error.and_then(|most| remarks::of_error(&report, most));
    let is_fine = too_uncertain.is_none();
    let mut of_requests = remarks::of_requests(&report);
    of_requests.extend(too_uncertain);
    of_requests.iter().for_each(|remark| eprintln!("{remark}"));
    remarks.extend(of_requests);
    if let Some(file) = &args.html {
        fs::write(file, page(&report, &remarks))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let of_command = CommandReport { report: &report, remarks: &remarks };
    output::print(args.json, &of_command, |out| {
        std::io::Write::write_all(out, text(&report).as_bytes())
    })?;
    Ok(CommandStatus::of(is_fine))
}

impl CacheArgs {
    fn options(&self) -> CurveOptions {
        let default = CurveOptions::default();
        let mut sizes: Vec<u64> = self.sizes.iter().map(|size| size.0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        CurveOptions {
            sizes,
            evictions: chosen(&self.eviction, default.evictions),
            admissions: chosen(&self.admission, default.admissions),
            rate: self.rate,
            sample: self.sample as usize,
            seed: self.seed,
            threads: default.threads,
        }
    }
}

fn chosen<T: Clone>(named: &[T], all: Vec<T>) -> Vec<T> {
    if named.is_empty() { all } else { named.to_vec() }
}

fn size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    (size.0 > 0).then_some(size).ok_or_else(|| "a cache has at least one byte".to_owned())
}

fn eviction(text: &str) -> Result<&'static EvictionEntry, String> {
    find_eviction(text).ok_or_else(|| {
        let names: Vec<_> = EVICTIONS.iter().map(|entry| entry.name).collect();
        format!("there is no such eviction; there are {}", names.join(", "))
    })
}

fn admission(text: &str) -> Result<Admission, String> {
    let named = Admission::ALL.into_iter().find(|admission| admission.as_str() == text);
    named.ok_or_else(|| {
        let names = Admission::ALL.map(Admission::as_str);
        format!("there is no such admission; there are {}", names.join(", "))
    })
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|rate| (1e-9..=1.0).contains(rate));
    number.ok_or_else(|| "must be a number above 0 and at most 1, such as 0.01".to_owned())
}

fn points(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|points| (1e-6..=100.0).contains(points));
    number
        .ok_or_else(|| "must be a number of points above 0 and at most 100, such as 0.5".to_owned())
}

const EXAMPLES: &str = "\
Examples:
  levada sim cache access.log
  levada sim cache access.log.2.gz access.log.1.gz access.log --html curves.html
  levada sim cache access.log --sizes 1GiB,4GiB,16GiB --eviction gdsf,lru --error 0.5
  levada sim cache access.log --json | jq '.curves[] | {eviction, admission, points}'

Exit codes:
  0  done
  1  an error is larger than --error
  2  a log cannot be read, or there is nothing to compute";
