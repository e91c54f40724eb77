//! `levada warm`: fills the caches of a cluster before clients come.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use clap::Args;
use http::Uri;
use levada_client::command::{CommandStatus, block_on, option, output};
use levada_client::{
    Client, ClientSettings, Roots, Versions, WarmOutcome, WarmReport, WarmRequest, WarmedUrl,
    parse_url,
};
use levada_types::ByteSize;

use super::get::{args::time, headers, listed};

/// Requests objects, so that the caches of a cluster have them before clients ask.
///
/// Every request is an ordinary GET, read to its end. The node that gets it forwards it to the node that
/// the site's policy chooses, so that any node of a cluster will do.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WarmArgs {
    /// URLs to request.
    #[arg(value_name = "URL", required_unless_present_any = ["file", "sitemap"])]
    urls: Vec<String>,
    /// A file with URLs, one per line; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// A sitemap or a sitemap index, plain or gzip.
    #[arg(short, long, value_name = "URL")]
    sitemap: Vec<String>,
    /// The node that gets all requests, whatever the names in the URLs resolve to.
    #[arg(long, value_name = "HOST:PORT")]
    node: Option<String>,
    /// A header field for every request, such as "Accept-Encoding: br".
    #[arg(short = 'H', long, value_name = "FIELD")]
    header: Vec<String>,
    /// Requests at a time.
    #[arg(short = 'j', long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Rate limit of all requests together, in bytes per second, such as 20MiB or 500K.
    #[arg(long, value_name = "RATE", value_parser = option::rate_limit)]
    limit_rate: Option<ByteSize>,
    /// Bytes in all, after which no more is requested.
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<ByteSize>,
    /// The most URLs; more is an error.
    #[arg(long, value_name = "N", default_value = "100000")]
    max_urls: usize,
    /// Time without data after which a request has failed.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    stall_timeout: Duration,
    /// Trusts the certificate authorities of this PEM file instead of the system's.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Accepts any certificate.
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Prints a report with every URL as JSON.
    #[arg(long)]
    json: bool,
}

/// Warms.
///
/// # Errors
/// If a URL, a list or a sitemap is wrong; no object was requested then.
pub(crate) fn run(args: &WarmArgs) -> anyhow::Result<CommandStatus> {
    let request = request(args)?;
    let client = Client::new(ClientSettings {
        roots: Roots::of(args.cacert.as_deref(), args.insecure),
        limit_rate: args.limit_rate.map(|rate| rate.0),
        connect_to: args.node.as_deref().map(node).transpose()?,
        // One connection each, so that --concurrency says how many there are.
        versions: Versions::Http1,
        ..ClientSettings::default()
    })?;
    let report = block_on(request.run(&client, |_| {}))??;
    output::print(args.json, &report, |out| print(out, &report))?;
    Ok(CommandStatus::of(report.is_complete()))
}

fn node(text: &str) -> anyhow::Result<(String, u16)> {
    let (host, port) = text.rsplit_once(':').context("--node: write HOST:PORT")?;
    let port = port.parse().with_context(|| format!("--node: `{port}` is no port"))?;
    ensure!(!host.is_empty(), "--node: write HOST:PORT");
    Ok((host.to_owned(), port))
}

fn request(args: &WarmArgs) -> anyhow::Result<WarmRequest> {
    let url = |text: &String| parse_url(text).map_err(anyhow::Error::msg);
    let mut urls: Vec<Uri> = args.urls.iter().map(url).collect::<Result<_, _>>()?;
    for file in &args.file {
        for (number, url) in listed(file)? {
            let place = || format!("{}, line {number}", file.display());
            urls.push(parse_url(&url).map_err(anyhow::Error::msg).with_context(place)?);
        }
    }
    let sitemaps: Vec<Uri> = args.sitemap.iter().map(url).collect::<Result<_, _>>()?;
    ensure!(!urls.is_empty() || !sitemaps.is_empty(), "the list has no URL");
    Ok(WarmRequest {
        urls,
        sitemaps,
        headers: headers(&args.header)?,
        concurrency: usize::from(args.concurrency),
        max_urls: args.max_urls,
        max_bytes: args.max_bytes.map(|bytes| bytes.0),
        stall: args.stall_timeout,
    })
}

type Kind = fn(&WarmOutcome) -> bool;

fn print(out: &mut impl Write, report: &WarmReport) -> io::Result<()> {
    let kinds: [(&str, Kind); 5] = [
        ("warmed", |one| *one == WarmOutcome::Warmed),
        ("already there", |one| *one == WarmOutcome::AlreadyThere),
        ("not storable", |one| matches!(one, WarmOutcome::NotStorable { .. })),
        ("failed", |one| matches!(one, WarmOutcome::Failed { .. })),
        ("not tried", |one| *one == WarmOutcome::NotTried),
    ];
    for (name, is) in kinds {
        let these: Vec<&WarmedUrl> = report.urls.iter().filter(|one| is(&one.outcome)).collect();
        if these.is_empty() && name != "warmed" {
            continue;
        }
        let bytes: u64 = these.iter().map(|one| one.bytes).sum();
        writeln!(out, "{name:<13} {:>7} URLs   {}", these.len(), ByteSize(bytes))?;
        for one in these {
            if let WarmOutcome::NotStorable { why } | WarmOutcome::Failed { why } = &one.outcome {
                writeln!(out, "  {}  {why}", one.url)?;
            }
        }
    }
    Ok(())
}

const EXAMPLES: &str = "\
Examples:
  levada warm https://www.example.com/a.js https://www.example.com/b.css
  levada warm --file list.txt --node 10.0.0.1:80 --limit-rate 20MiB
  levada warm --sitemap https://www.example.com/sitemap.xml

Exit codes: 0 everything is stored, 1 something is not, 2 nothing was requested";
