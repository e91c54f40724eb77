//! `levada logs report`: what access logs say, on the command line.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use levada_client::command::CommandStatus;

use crate::{Summary, page, read, text};

/// Reads access logs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LogsArgs {
    #[command(subcommand)]
    command: LogsCommand,
}

#[derive(Debug, Subcommand)]
enum LogsCommand {
    Report(ReportArgs),
}

/// Summarises access logs: requests, bytes, hit ratio, errors, latency, and what causes most of them.
///
/// Reads the formats of docs/operate/traces.md, plain or compressed with gzip, xz or zstd: those of Levada,
/// nginx, Apache, Caddy, HAProxy, Envoy, Squid and others. All files are summarised together.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct ReportArgs {
    /// The logs; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Rows of each ranking.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Writes a page with pictures to this file instead of text. An existing file is replaced.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When a log cannot be read, or the page not be written.
pub fn run(args: &LogsArgs) -> anyhow::Result<CommandStatus> {
    let LogsCommand::Report(args) = &args.command;
    let census = read(&args.files)?;
    let summary = Summary::of(&census, args.top.into());
    match &args.html {
        Some(file) => {
            fs::write(file, page(&summary))
                .with_context(|| format!("cannot write {}", file.display()))?;
            println!("{} is written: {} requests", file.display(), summary.requests);
        }
        None if args.json => println!("{}", serde_json::to_string_pretty(&summary)?),
        None => print!("{}", text(&summary)),
    }
    Ok(CommandStatus::Success)
}

const EXAMPLES: &str = "\
Examples:
  levada logs report /var/log/levada/access.log
  levada logs report access.log access.log.*.gz --html report.html
  bzcat access.log.bz2 | levada logs report - --json | jq '.hit_ratio'

Exit codes:
  0  done
  2  a log cannot be read, or its format is unknown";
