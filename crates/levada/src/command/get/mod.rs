//! `levada get`: fetches files over connections that may end at any time.

pub(crate) mod args;
pub(super) mod bars;

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail, ensure};
use futures_util::{StreamExt as _, stream};
use levada_client::{
    Client, ClientSettings, DisconnectReason, DownloadProgress, GetReport, GetRequest, Proxy,
    Roots, Versions, name_from_url, parse_url,
};

use args::{GetArgs, NetworkArgs};
use bars::DownloadBars;
use levada_client::command::{CommandStatus, StopSignals, block_on, option, output};
use levada_types::ByteSize;

/// Fetches.
///
/// # Errors
/// If the arguments are invalid, before anything is fetched.
pub(crate) fn run(args: &GetArgs) -> anyhow::Result<CommandStatus> {
    let requests = requests(args)?;
    let client = Arc::new(client(&args.network, args.network.limit_rate)?);
    let reports = block_on(fetch(args, client, requests))??;
    if args.json {
        output::print(true, &serde_json::json!({ "files": reports }), |_| Ok(()))?;
    }
    let all = reports.iter().all(|report| report.complete);
    Ok(CommandStatus::of(all))
}

async fn fetch(
    args: &GetArgs,
    client: Arc<Client>,
    requests: Vec<GetRequest>,
) -> anyhow::Result<Vec<GetReport>> {
    let progress: Vec<_> = requests.iter().map(|_| Arc::new(DownloadProgress::default())).collect();
    let transfers = progress.clone();
    on_signals(move || transfers.iter().for_each(|transfer| transfer.stop()))?;
    let names = requests.iter().map(|request| shown(&request.path));
    let bars = DownloadBars::new(args.quiet, names.zip(progress.iter().cloned()).collect());
    let transfers =
        requests.iter().zip(&progress).enumerate().map(|(place, (request, progress))| {
            let (client, bars) = (&client, &bars);
            async move {
                bars.begin(place);
                let (report, _) = client.get(request, progress).await;
                bars.end(place);
                if !args.quiet || !report.complete {
                    bars.say(&line(&report));
                }
                report
            }
        });
    let fetching = stream::iter(transfers).buffered(args.jobs.max(1)).collect();
    Ok(bars.draw_while(fetching).await)
}

/// Calls `stop` on INT and TERM: transfers end gracefully, and received bytes are kept.
pub(crate) fn on_signals(stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = StopSignals::new(false)?;
    tokio::spawn(async move {
        signals.asked().await;
        stop();
    });
    Ok(())
}

/// The result of a file, as text.
fn line(report: &GetReport) -> String {
    let path = shown(&report.path);
    if let Some(error) = &report.error {
        let place = match (report.held, report.length) {
            (0, _) => String::new(),
            (held, Some(length)) => {
                format!("; {held} of {length} bytes are here, the same command goes on")
            }
            (held, None) => format!("; {held} bytes are here, the same command goes on"),
        };
        return format!("levada: {path}: {error}{place}");
    }
    let moved = report.connections.iter();
    let moved = moved
        .filter(|c| {
            matches!(
                c.ended,
                DisconnectReason::Reset | DisconnectReason::EarlyClose | DisconnectReason::Stall
            )
        })
        .count();
    let mut line = format!("{path}: {} bytes in {:.1} s", report.held, report.seconds);
    if moved > 0 {
        line +=
            &format!(", {moved} connections broke off, {:.1} s lost by that", report.lost_seconds);
    }
    if report.verified.is_some() {
        line += ", digest verified";
    }
    line
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A client with these options and this rate limit.
pub(crate) fn client(args: &NetworkArgs, limit: Option<ByteSize>) -> anyhow::Result<Client> {
    let settings = ClientSettings {
        roots: Roots::of(args.cacert.as_deref(), args.insecure),
        connect_to: None,
        proxy: args.proxy.as_deref().map(Proxy::parse).transpose().context("--proxy")?,
        versions: match (args.http1, args.http3) {
            (true, _) => Versions::Http1,
            (_, true) => Versions::Http3,
            _ => Versions::All,
        },
        connect_timeout: args.connect_timeout,
        limit_rate: limit.map(|rate| rate.0),
    };
    Ok(Client::new(settings)?)
}

/// A request for each URL.
fn requests(args: &GetArgs) -> anyhow::Result<Vec<GetRequest>> {
    let urls = urls(args)?;
    ensure!(!urls.is_empty(), "no URL: name one, or a list of them with -i");
    ensure!(
        args.output.len() <= urls.len(),
        "-o names {} files for {} URLs",
        args.output.len(),
        urls.len()
    );
    ensure!(
        args.checksum.is_none() || urls.len() == 1,
        "--checksum is of one file, not of several"
    );
    let headers = headers(&args.network.header)?;
    let mut paths = HashSet::new();
    let mut requests = Vec::with_capacity(urls.len());
    for (place, text) in urls.iter().enumerate() {
        let url = parse_url(text).map_err(anyhow::Error::msg)?;
        let path = match args.output.get(place) {
            Some(output) if output.as_os_str() == "-" => {
                bail!("-o -: bytes that were written to a pipe cannot be replaced; name a file")
            }
            Some(output) => output.clone(),
            None => PathBuf::from(name_from_url(&url).map_err(anyhow::Error::msg)?),
        };
        let path = args.output_dir.as_ref().map_or(path.clone(), |directory| directory.join(&path));
        ensure!(
            paths.insert(path.clone()),
            "two URLs would be written to {}: name the files with -o",
            path.display()
        );
        let mut request = GetRequest::new(url, path);
        request.server_names = args.remote_header_name && args.output.get(place).is_none();
        request.adopt = args.continue_file;
        request.restart = args.restart;
        request.connections = args.connections.unwrap_or(1);
        request.spreads = args.connections.is_none();
        request.pieces = args.split.unwrap_or(1).max(request.connections);
        request.least_piece = args.min_split_size.0.max(1);
        request.digest = args.checksum;
        request.headers.clone_from(&headers);
        request.retries = args.network.retry;
        request.stall = args.network.stall_timeout;
        request.max_time = args.max_time;
        request.redirects = args.network.max_redirs;
        request.fsync = args.fsync;
        requests.push(request);
    }
    Ok(requests)
}

/// The URLs of the command line and of the list.
fn urls(args: &GetArgs) -> anyhow::Result<Vec<String>> {
    let mut urls = args.urls.clone();
    let mut list = args.input_file.clone();
    if let Some(place) = urls.iter().position(|url| url == "-") {
        urls.remove(place);
        // `-C -` is the notation of curl.
        if !args.continue_file {
            ensure!(list.is_none(), "two lists of URLs");
            list = Some(PathBuf::from("-"));
        }
    }
    if let Some(list) = list {
        urls.extend(listed(&list)?.into_iter().map(|(_, url)| url));
    }
    Ok(urls)
}

/// The URLs of a list with the numbers of their lines; `-` is standard input.
pub(crate) fn listed(list: &Path) -> anyhow::Result<Vec<(usize, String)>> {
    let text = option::text_of(list)?;
    let lines = text.lines().map(|line| line.trim().to_owned()).zip(1..);
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(|(line, number)| (number, line)).collect())
}

/// `Name: value`, as curl reads it.
pub(crate) fn headers(
    texts: &[String],
) -> anyhow::Result<Vec<(http::HeaderName, http::HeaderValue)>> {
    let header = |text: &String| -> anyhow::Result<_> {
        let (name, value) =
            text.split_once(':').with_context(|| format!("-H `{text}`: write NAME: VALUE"))?;
        let name = name.trim().parse().with_context(|| format!("-H `{text}`"))?;
        ensure!(
            name != http::header::RANGE && name != http::header::IF_RANGE,
            "-H `{text}`: ranges are asked for as the transfer needs them"
        );
        Ok((name, value.trim().parse().with_context(|| format!("-H `{text}`"))?))
    };
    texts.iter().map(header).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        get: GetArgs,
    }

    fn read(line: &str) -> anyhow::Result<Vec<GetRequest>> {
        requests(&Line::try_parse_from(line.split(' '))?.get)
    }

    #[test]
    fn options_are_read_as_curls_and_aria2s() {
        let digest = "a".repeat(64);
        let line = format!(
            "get -C - -x 4 -s 8 --retry 3 -H X-A:b --max-time 1m --checksum sha-256={digest} \
             --output-dir d http://h/a%20b"
        );
        let request = &read(&line).unwrap()[0];
        assert_eq!(request.path, Path::new("d/a b"));
        assert_eq!((request.connections, request.pieces, request.retries), (4, 8, 3));
        assert!(request.adopt && request.digest.is_some());
        assert_eq!(request.headers.len(), 1);
        let requests = read("get -o x -O h/one h/two").unwrap();
        assert_eq!(requests[0].path, Path::new("x"));
        assert_eq!(requests[1].path, Path::new("two"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_is_fetched() {
        for line in [
            "get http://h/a http://g/a",
            "get ftp://h/a",
            "get -o - http://h/a",
            "get -o a -o b http://h/a",
            "get -H nothing http://h/a",
            "get -H Range:bytes=1-2 http://h/a",
            "get http://h/a/..",
            "get --checksum sha-256=12 http://h/a",
            "get --checksum crc32=12 http://h/a",
            "get -x 0 http://h/a",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
