//! `levada sync`: publishes a tree, or pulls one.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use levada_client::{
    Client, GetRequest, PathFilter, Publication, PullReport, PullRequest, Pulling, SyncError,
    parse_url,
};
use levada_fetch::Algorithm;

use levada_client::command::{CommandStatus, block_on, output};

use super::get::{self, args::NetworkArgs, bars::DRAW_INTERVAL};

/// Publishes a tree with a manifest, or makes a directory equal to a published tree.
///
/// Given a directory, it writes DIRECTORY.manifest next to it. Given a manifest's URL and a directory, it
/// fetches the files that differ, verifies them, and replaces them one by one. The server is any node or
/// any HTTP server with the manifest and the directory next to each other.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SyncArgs {
    /// A directory to publish, or the URL of a manifest.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// The directory to make equal to the published one.
    #[arg(value_name = "DESTINATION")]
    destination: Option<PathBuf>,
    /// Files to include: names anywhere, or paths from the root if they have a slash. The default
    /// is all files.
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Files to exclude, even if included. With --delete they are not removed either.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Publishing: also writes all files into one tar file. Pulling: uses it if most files are
    /// needed.
    #[arg(long)]
    tar: bool,
    /// Prints the report as JSON.
    #[arg(long)]
    json: bool,
    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,

    /// Publishing: the path of the manifest.
    #[arg(short = 'o', long, value_name = "FILE", help_heading = "Publishing")]
    manifest: Option<PathBuf>,
    /// Publishing: the URL of the files; relative to the manifest, or absolute.
    #[arg(long, value_name = "URL", help_heading = "Publishing")]
    root: Option<String>,
    /// Publishing: the digest of files. MD5 does not protect against intentional changes.
    #[arg(long, value_name = "ALGORITHM", default_value = "sha-256", help_heading = "Publishing")]
    digest: DigestName,

    /// Pulling: removes files that the manifest does not have.
    #[arg(long, help_heading = "Pulling")]
    delete: bool,
    /// Pulling: reports the changes and makes none.
    #[arg(short = 'n', long, help_heading = "Pulling")]
    dry_run: bool,
    /// Pulling: compares digests even where length and time are equal.
    #[arg(short, long, help_heading = "Pulling")]
    checksum: bool,
    /// Pulling: number of files to fetch at a time.
    #[arg(long, value_name = "N", default_value = "8", help_heading = "Pulling")]
    transfers: usize,
    #[command(flatten)]
    network: NetworkArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DigestName {
    /// SHA-256.
    #[value(name = "sha-256")]
    Sha256,
    /// MD5, as in the paper.
    Md5,
}

/// Publishes or pulls.
///
/// # Errors
/// If the arguments are invalid, or no file could be processed.
pub(crate) fn run(args: &SyncArgs) -> anyhow::Result<CommandStatus> {
    let filter = PathFilter::new(&args.include, &args.exclude)?;
    match &args.destination {
        None => publish(args, filter),
        Some(destination) => pull(args, filter, destination),
    }
}

fn publish(args: &SyncArgs, filter: PathFilter) -> anyhow::Result<CommandStatus> {
    ensure!(
        !args.source.contains("://"),
        "{}: name the directory that is to be made equal to it",
        args.source
    );
    let directory = std::fs::canonicalize(&args.source);
    let directory = directory.with_context(|| format!("cannot read {}", args.source))?;
    ensure!(directory.is_dir(), "{} is no directory", args.source);
    let name = directory.file_name().context("the root of the file system has no name")?;
    let beside = || {
        let mut file = name.to_owned();
        file.push(".manifest");
        directory.with_file_name(file)
    };
    let manifest = args.manifest.clone().unwrap_or_else(beside);
    let encoded = levada_fetch::manifest::encoded(name.as_encoded_bytes());
    let root = args.root.clone().unwrap_or(encoded);
    let publication = Publication {
        directory,
        manifest,
        root: if root.ends_with('/') { root } else { root + "/" },
        tar: args.tar,
        algorithm: match args.digest {
            DigestName::Sha256 => Algorithm::Sha256,
            DigestName::Md5 => Algorithm::Md5,
        },
        filter,
    };
    let published = publication.publish()?;
    output::print(args.json, &published, |out| {
        let manifest = published.manifest.display();
        writeln!(out, "{manifest}: {} files, {} bytes", published.files, published.bytes)?;
        published.left_out.iter().try_for_each(|path| {
            writeln!(out, "left out: {} is no file, directory or link", path.display())
        })
    })?;
    Ok(CommandStatus::Success)
}

fn pull(args: &SyncArgs, filter: PathFilter, destination: &Path) -> anyhow::Result<CommandStatus> {
    if !args.source.contains("://") && Path::new(&args.source).exists() {
        bail!("{} is here: only what has a URL can be pulled", args.source);
    }
    let url = parse_url(&args.source).map_err(anyhow::Error::msg)?;
    let mut get = GetRequest::new(url, PathBuf::new());
    get.headers = get::headers(&args.network.header)?;
    get.retries = args.network.retry;
    get.stall = args.network.stall_timeout;
    get.redirects = args.network.max_redirs;
    let request = PullRequest {
        get,
        directory: destination.to_owned(),
        filter,
        delete: args.delete,
        dry_run: args.dry_run,
        thorough: args.checksum,
        tar: args.tar,
        transfers: args.transfers,
    };
    let client = get::client(&args.network)?;
    let report = match block_on(pull_with_bar(args, &client, &request))? {
        Ok(report) => report,
        Err(error @ SyncError::Stopped) => {
            eprintln!("levada: {}: {error}", destination.display());
            return Ok(CommandStatus::ProblemsFound);
        }
        Err(error) => return Err(error.into()),
    };
    output::print(args.json, &report, |out| print(out, &report, args))?;
    Ok(CommandStatus::of(report.complete))
}

async fn pull_with_bar(
    args: &SyncArgs,
    client: &Client,
    request: &PullRequest,
) -> Result<PullReport, SyncError> {
    let pulling = Arc::new(Pulling::default());
    let stopping = pulling.clone();
    get::on_signals(move || stopping.stop())
        .map_err(|why| SyncError::Io { path: request.directory.clone(), why })?;
    let bar = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
    let style = ProgressStyle::with_template(TEMPLATE);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut work = std::pin::pin!(client.pull(request, &pulling));
    loop {
        tokio::select! {
            done = &mut work => {
                bar.finish_and_clear();
                return done;
            }
            () = tokio::time::sleep(DRAW_INTERVAL) => {
                bar.set_length(pulling.total.load(Ordering::Relaxed));
                bar.set_position(pulling.bytes());
            }
        }
    }
}

fn print(out: &mut impl io::Write, report: &PullReport, args: &SyncArgs) -> io::Result<()> {
    let would = if args.dry_run { "would be " } else { "" };
    if args.dry_run {
        for (what, paths) in
            [("fetch", &report.fetched), ("link", &report.linked), ("delete", &report.deleted)]
        {
            for path in paths {
                writeln!(out, "{what:6}  {path}")?;
            }
        }
    }
    writeln!(
        out,
        "{} files {would}fetched ({} bytes), {} unpacked, {} unchanged, {} {would}linked, {} {would}deleted",
        report.fetched.len(),
        report.bytes,
        report.unpacked,
        report.unchanged,
        report.linked.len(),
        report.deleted.len(),
    )?;
    for failure in &report.failed {
        writeln!(out, "failed: {}: {}", failure.path, failure.error)?;
    }
    if !report.complete {
        writeln!(out, "{} failed; the same command goes on", report.failed.len())?;
    }
    Ok(())
}

const TEMPLATE: &str = "{wide_bar} {bytes:>10} / {total_bytes:10} {bytes_per_sec:>12} {eta:>4}";

const EXAMPLES: &str = "\
Examples:
  levada sync site                          writes site.manifest beside site
  levada sync --tar site --exclude '*.bak'
  levada sync https://www.example.com/site.manifest /srv/site
  levada sync https://www.example.com/site.manifest /srv/site --delete --dry-run
  levada sync https://www.example.com/site.manifest /srv/site --tar --transfers 16 --retry 5

Exit codes:
  0  done: the destination is as the manifest says, or the tree is published
  1  some files could not be fetched or put in place, or it was interrupted: the same command goes on
  2  nothing was done: wrong arguments, no manifest or one that cannot be used";
