//! The options of `levada get`: curl's and aria2's names for what they have.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use levada_fetch::Digest;
use levada_types::{ByteSize, parse_duration};

/// Fetches files, whatever becomes of the connections.
///
/// A connection that ends in the middle means that the route has moved: what came is kept, the same
/// address is connected to again and asked for the rest, as long as there is progress. A file gets its
/// name when it is complete and of one version. An interrupted command goes on when it is run again.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GetArgs {
    /// What to fetch; `-` reads URLs from standard input.
    #[arg(value_name = "URL", required_unless_present = "input_file")]
    pub(super) urls: Vec<String>,
    /// A file with URLs, one per line; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    pub(super) input_file: Option<PathBuf>,
    /// Where to write; once for each URL, in order.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Vec<PathBuf>,
    /// Names files as in the URL. This is the default; curl's users write it.
    #[arg(short = 'O', long)]
    remote_name: bool,
    /// Names files as the server does (Content-Disposition); replaces none.
    #[arg(short = 'J', long)]
    pub(super) remote_header_name: bool,
    /// The directory to write to.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) output_dir: Option<PathBuf>,
    /// Takes a file that another program has left as the beginning.
    #[arg(short = 'C', long = "continue")]
    pub(super) continue_file: bool,
    /// Uses nothing that an earlier run has left.
    #[arg(long, conflicts_with = "continue_file")]
    pub(super) restart: bool,
    /// Connections for each file, each with a part of it.
    #[arg(short = 'x', long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) connections: u32,
    /// Parts that a file is divided into at first; by default as many as connections.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) split: Option<u32>,
    /// Parts are not made smaller than this.
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub(super) min_split_size: ByteSize,
    /// Files at a time.
    #[arg(short, long, value_name = "N", default_value = "1")]
    pub(super) jobs: usize,
    /// The digest that the file must have.
    #[arg(long, value_name = "ALGORITHM=HEX", value_parser = digest)]
    pub(super) checksum: Option<Digest>,
    /// Gives a file up after so long.
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(super) max_time: Option<Duration>,
    /// Writes a file to the disk itself before it gets its name.
    #[arg(long)]
    pub(super) fsync: bool,
    /// Shows no progress, and only what went wrong.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Prints a report as JSON: every connection, what it brought and why it ended.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) network: NetworkArgs,
}

/// How servers are spoken to.
#[derive(Args, Debug)]
pub(crate) struct NetworkArgs {
    /// A field for every request, such as "Accept: text/html".
    #[arg(short = 'H', long, value_name = "FIELD")]
    pub(crate) header: Vec<String>,
    /// Waits for an outage to end, so often: no connection, 429, 500, 502, 503, 504.
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) retry: u32,
    /// At most so many bytes per second altogether, such as 500KiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit_rate: Option<ByteSize>,
    /// Counts a connection as broken after so long a silence; by default learnt from the transfer.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) stall_timeout: Option<Duration>,
    /// How long a connection may take to be made.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) connect_timeout: Duration,
    /// Follows at most so many redirects.
    #[arg(long, value_name = "N", default_value = "20")]
    pub(crate) max_redirs: u32,
    /// An HTTP proxy: http://[USER:PASSWORD@]HOST:PORT.
    #[arg(long, value_name = "PROXY")]
    pub(crate) proxy: Option<String>,
    /// Believes the certificate authorities of this PEM file instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Believes any server.
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,
    /// Does not offer HTTP/2.
    #[arg(long = "http1.1")]
    pub(crate) http1: bool,
}

fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text)
        .ok_or_else(|| "write sha-256= or md5= and the digest in hexadecimal".to_owned())
}

/// Seconds, as curl takes them, or a time with its unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let text = if text.parse::<f64>().is_ok() { &format!("{text}s") } else { text };
    parse_duration(text).map_err(|error| error.to_string())
}

const EXAMPLES: &str = "\
Examples:
  levada get https://www.example.com/disk.iso
  levada get -x 8 -o disk.iso --checksum sha-256=9f86d0...0a08 https://www.example.com/disk.iso
  levada get --retry 5 --limit-rate 2MiB -i urls.txt --output-dir downloads -j 4
  levada get -C -o begun-by-curl.iso https://www.example.com/disk.iso
  levada get --json https://www.example.com/disk.iso | jq '.files[].connections[].ended'

Until it is complete, NAME is NAME.levada-part, with NAME.levada-state beside it.

Exit codes:
  0  every file is complete
  1  a file could not be fetched; what has come is kept, and the same command goes on
  2  nothing was fetched: wrong arguments, an unreadable file";
