//! `levada sync`: publishes a tree, or pulls one.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use levada_client::command::{
    CommandStatus, block_on, option, output,
    sync_options::{DigestName, ExtraArgs, FilterArgs},
};
use levada_client::{
    Client, FollowSettings, GetRequest, PathFilter, Publication, PullRequest, Pulling, Round,
    SyncError, parse_url,
};
use levada_types::ByteSize;

use super::get::{self, args::NetworkArgs, bars::DRAW_INTERVAL};

/// Publishes a tree with a manifest, or makes a directory equal to a published tree.
///
/// Given a directory, it writes DIRECTORY.manifest next to it. Given a manifest's URL and a directory, it
/// fetches the files that differ, verifies them, and replaces them one by one. The server is any node or
/// any HTTP server with the manifest and the directory next to each other.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
// -H is what it is in rsync.
#[command(mut_arg("header", |arg| arg.short(None)))]
pub(crate) struct SyncArgs {
    /// A directory to publish, or the URL of a manifest.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// The directory to make equal to the published one.
    #[arg(value_name = "DESTINATION")]
    destination: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    extras: ExtraArgs,
    /// Prints the report as JSON.
    #[arg(long)]
    json: bool,
    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,

    /// Publishing: the path of the manifest.
    #[arg(long, value_name = "FILE", help_heading = "Publishing")]
    manifest: Option<PathBuf>,
    /// Publishing: the URL of the files; relative to the manifest, or absolute.
    #[arg(long, value_name = "URL", help_heading = "Publishing")]
    root: Option<String>,
    /// Publishing: the digest of files. MD5 does not protect against intentional changes.
    #[arg(long, value_name = "ALGORITHM", default_value = "sha-256", help_heading = "Publishing")]
    digest: DigestName,

    /// Publishing: files up to this size are also in a pack next to the manifest, from which many are
    /// fetched by one request. 0 for none.
    #[arg(long, value_name = "SIZE", default_value = "64KiB", help_heading = "Publishing")]
    pack: ByteSize,

    /// Pulling: removes entries that the manifest does not have, after all others are right.
    #[arg(long, help_heading = "Pulling")]
    delete: bool,
    /// Pulling: removes excluded entries as well.
    #[arg(long, help_heading = "Pulling")]
    delete_excluded: bool,
    /// Pulling: reports the changes and makes none.
    #[arg(short = 'n', long, help_heading = "Pulling")]
    dry_run: bool,
    /// Pulling: reads all files, even those that nobody has changed since they were installed.
    #[arg(short, long, help_heading = "Pulling")]
    checksum: bool,
    /// Pulling: lists what is changed.
    #[arg(long, help_heading = "Pulling")]
    list: bool,
    /// Pulling: makes holes of zero blocks.
    #[arg(short = 'S', long, help_heading = "Pulling")]
    sparse: bool,
    /// Pulling: gives files their places when all are complete; if one fails, none is replaced.
    #[arg(long, help_heading = "Pulling")]
    delay_updates: bool,
    /// Pulling: writes all bytes to the disk before the command ends.
    #[arg(long, help_heading = "Pulling")]
    fsync: bool,
    /// Pulling: limits the rate, in KiB per second or with a unit, as rsync does.
    #[arg(long, value_name = "RATE", value_parser = option::bandwidth_limit, conflicts_with = "limit_rate", help_heading = "Pulling")]
    bwlimit: Option<ByteSize>,
    /// Pulling: pulls again whenever the manifest changes, until it is stopped by TERM or INT.
    #[arg(long, conflicts_with = "dry_run", help_heading = "Pulling")]
    follow: bool,
    /// Pulling: time between two requests for the manifest, on average.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = interval, requires = "follow", help_heading = "Pulling")]
    interval: Duration,
    /// Pulling: the most transfers at a time. As many run as make the whole faster.
    #[arg(long, value_name = "N", default_value = "64", help_heading = "Pulling")]
    transfers: usize,
    #[command(flatten)]
    network: NetworkArgs,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = get::args::time(text)?;
    if time < Duration::from_millis(100) { Err("at least 100ms".to_owned()) } else { Ok(time) }
}

/// Publishes or pulls.
///
/// # Errors
/// If the arguments are invalid, or no file could be processed.
pub(crate) fn run(args: &SyncArgs) -> anyhow::Result<CommandStatus> {
    let filter = PathFilter::new(&args.filter.rules()?)?;
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
    let mut publication =
        Publication::new(directory).context("the root of the file system has no name")?;
    if let Some(manifest) = &args.manifest {
        publication.manifest.clone_from(manifest);
    }
    if let Some(root) = &args.root {
        publication.root = if root.ends_with('/') { root.clone() } else { format!("{root}/") };
    }
    publication.pack_limit = args.pack.0.min(LARGEST_PACKED);
    publication.algorithm = args.digest.algorithm();
    publication.filter = filter;
    publication.extras = args.extras.recorded();
    publication.numeric_ids = args.extras.numeric_ids;
    let published = publication.publish()?;
    output::print(args.json, &published, |out| published.write(out))?;
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
        delete: args.delete || args.delete_excluded,
        delete_excluded: args.delete_excluded,
        dry_run: args.dry_run,
        thorough: args.checksum,
        extras: args.extras.taken_over(),
        numeric_ids: args.extras.numeric_ids,
        sparse: args.sparse,
        // A publication in progress must not leave a follower with some files of it.
        delay: args.delay_updates || args.follow,
        fsync: args.fsync,
        unless: None,
        transfers: args.transfers,
    };
    let client = get::client(&args.network, args.bwlimit.or(args.network.limit_rate))?;
    if args.follow {
        return block_on(follow(args, &client, &request))?;
    }
    let report = match block_on(pull_with_bar(args, &client, &request))? {
        Ok(report) => report,
        Err(error @ SyncError::Stopped) => {
            eprintln!("levada: {}: {error}", destination.display());
            return Ok(CommandStatus::ProblemsFound);
        }
        Err(error) => return Err(error.into()),
    };
    let verbose = args.list || args.dry_run;
    output::print(args.json, &report, |out| report.write(out, args.dry_run, verbose))?;
    Ok(CommandStatus::of(report.complete))
}

/// Pulls whenever the manifest changes, and prints a report of each round that has done something.
async fn follow(
    args: &SyncArgs,
    client: &Client,
    request: &PullRequest,
) -> anyhow::Result<CommandStatus> {
    let stop = Arc::new(tokio::sync::Notify::new());
    let stopping = stop.clone();
    get::on_signals(move || stopping.notify_one())?;
    let print = |round: &Round| match round {
        Ok(report) if report.is_idle() => Ok(()),
        Ok(report) => output::print(args.json, report, |out| report.write(out, false, args.list)),
        Err(error) => {
            eprintln!("levada: {}: {error}", request.directory.display());
            Ok(())
        }
    };
    let mut printed = Ok(());
    let is_complete = client
        .follow(request, FollowSettings { interval: args.interval }, &stop, |round| {
            printed = print(round);
            if printed.is_err() {
                stop.notify_one();
            }
        })
        .await;
    printed.map(|()| CommandStatus::of(is_complete))
}

async fn pull_with_bar(args: &SyncArgs, client: &Client, request: &PullRequest) -> Round {
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

/// A destination has such files in memory while they arrive.
const LARGEST_PACKED: u64 = 16 << 20;

const TEMPLATE: &str = "{wide_bar} {bytes:>10} / {total_bytes:10} {bytes_per_sec:>12} {eta:>4}";

const EXAMPLES: &str = "\
Examples:
  levada sync site                          writes site.manifest next to site
  levada sync https://www.example.com/site.manifest /srv/site
  levada sync https://www.example.com/site.manifest /srv/site --delete --dry-run
  levada sync https://www.example.com/site.manifest /srv/site --delete --follow --interval 5m

Exit codes:
  0  done: the destination is as the manifest says, or the tree is published
  1  some files could not be fetched or put in place, or it was interrupted: the same command goes on
  2  nothing was done: wrong arguments, no manifest or one that cannot be used";
