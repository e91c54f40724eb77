//! The options of `levada get`, with the names of curl and aria2 where they have them.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use levada_client::command::option;
use levada_fetch::Digest;
use levada_types::{ByteSize, parse_duration};

/// Fetches files over connections that may break.
///
/// A connection that ends in the middle means that the route has moved: the command keeps the received
/// bytes, connects to the same address again and requests the rest, as long as there is progress. A
/// file gets its name when it is complete and of one version. An interrupted command continues when it
/// is run again.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GetArgs {
    /// URLs to fetch; `-` reads URLs from standard input.
    #[arg(value_name = "URL", required_unless_present = "input_file")]
    pub(super) urls: Vec<String>,
    /// A file with URLs, one per line; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    pub(super) input_file: Option<PathBuf>,
    /// The file to write; once for each URL, in order.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Vec<PathBuf>,
    /// Names files as in the URL. This is the default; the option exists for users of curl.
    #[arg(short = 'O', long)]
    remote_name: bool,
    /// Names files by the server's Content-Disposition; overwrites no file.
    #[arg(short = 'J', long)]
    pub(super) remote_header_name: bool,
    /// The directory to write to.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) output_dir: Option<PathBuf>,
    /// Continues a file that another program has started.
    #[arg(short = 'C', long = "continue")]
    pub(super) continue_file: bool,
    /// Ignores partial files of an earlier run.
    #[arg(long, conflicts_with = "continue_file")]
    pub(super) restart: bool,
    /// Number of connections per file; each fetches a part. The default is one, and up to eight after the
    /// route has moved.
    #[arg(short = 'x', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) connections: Option<u32>,
    /// Number of parts of a file at first. The default is the number of connections.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) split: Option<u32>,
    /// Minimum size of a part.
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub(super) min_split_size: ByteSize,
    /// Number of files to fetch at a time.
    #[arg(short, long, value_name = "N", default_value = "1")]
    pub(super) jobs: usize,
    /// The digest of the file, which is verified.
    #[arg(long, value_name = "ALGORITHM=HEX", value_parser = digest)]
    pub(super) checksum: Option<Digest>,
    /// Time limit for each file.
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(super) max_time: Option<Duration>,
    /// Syncs each file to the disk before it gets its name.
    #[arg(long)]
    pub(super) fsync: bool,
    /// Shows no progress, only errors.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Prints a report as JSON: every connection, its bytes and why it ended.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) network: NetworkArgs,
}

/// Options of connections and requests.
#[derive(Args, Debug)]
pub(crate) struct NetworkArgs {
    /// A header field for every request, such as "Accept: text/html".
    #[arg(short = 'H', long, value_name = "FIELD")]
    pub(crate) header: Vec<String>,
    /// Number of waits for an outage to end: no connection, 429, 500, 502, 503, 504.
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) retry: u32,
    /// Rate limit of all files together, in bytes per second: 100K and 2.5M as in curl and wget, 500KiB,
    /// 10Mbit/s.
    #[arg(long, value_name = "RATE", value_parser = option::rate_limit)]
    pub(crate) limit_rate: Option<ByteSize>,
    /// Time without data after which a connection counts as broken. By default it is learned from
    /// the transfer.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) stall_timeout: Option<Duration>,
    /// Time limit for making a connection.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) connect_timeout: Duration,
    /// Maximum number of redirects to follow.
    #[arg(long, value_name = "N", default_value = "20")]
    pub(crate) max_redirs: u32,
    /// An HTTP proxy: `http://[USER:PASSWORD@]HOST:PORT`.
    #[arg(long, value_name = "PROXY")]
    pub(crate) proxy: Option<String>,
    /// Trusts the certificate authorities of this PEM file instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Accepts any certificate.
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,
    /// Uses neither HTTP/2 nor HTTP/3.
    #[arg(long = "http1.1")]
    pub(crate) http1: bool,
    /// Uses HTTP/3 from the first connection on, not only after the route has moved.
    #[arg(long, conflicts_with_all = ["http1", "proxy"])]
    pub(crate) http3: bool,
}

fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text)
        .ok_or_else(|| "write sha-256= or md5= and the digest in hexadecimal".to_owned())
}

/// Seconds, as in curl, or a time with its unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let text = if text.parse::<f64>().is_ok() { &format!("{text}s") } else { text };
    parse_duration(text).map_err(|error| error.to_string())
}

const EXAMPLES: &str = "\
Examples:
  levada get https://www.example.com/disk.iso
  levada get -x 8 -o disk.iso --checksum sha-256=9f86d0...0a08 https://www.example.com/disk.iso
  levada get --retry 5 --limit-rate 500K -i urls.txt --output-dir downloads -j 4
  levada get -C -o begun-by-curl.iso https://www.example.com/disk.iso
  levada get --json https://www.example.com/disk.iso | jq '.files[].connections[].ended'

Until it is complete, NAME is NAME.levada-part, with NAME.levada-state beside it.

Exit codes:
  0  every file is complete
  1  a file could not be fetched; what has come is kept, and the same command goes on
  2  nothing was fetched: wrong arguments, an unreadable file";
