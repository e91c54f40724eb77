//! Clients that check every byte: plain HTTP/1.1, a thread for each connection.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::Range,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use levada_net::lab::Host;

use crate::{Result, pattern::Pattern};

/// An object and the server that it is requested from.
#[derive(Clone)]
pub(crate) struct Url {
    pub(crate) server: SocketAddr,
    /// Which site it is.
    pub(crate) host: String,
    pub(crate) size: u64,
    pub(crate) name: String,
}

/// A server that sends nothing for so long has failed: among hundreds of connections that share a full
/// queue, one may well wait for minutes.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(300);
/// The paper's aggressive client (Sec. 4): parallel ranges of so many bytes from the origin.
const PARALLEL: usize = 10;
const RANGE: u64 = 60_000;

struct Connection<'a> {
    reader: BufReader<TcpStream>,
    url: &'a Url,
    pattern: &'a Pattern,
}

impl<'a> Connection<'a> {
    fn open(host: &Host, url: &'a Url, pattern: &'a Pattern) -> Result<Self> {
        let stream =
            host.namespace().run(|| TcpStream::connect_timeout(&url.server, SILENCE_TIMEOUT))??;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
        Ok(Self { reader: BufReader::with_capacity(64 << 10, stream), url, pattern })
    }

    /// Asks for the whole, or for a range of it, and holds each byte against what it has to be.
    fn get(&mut self, range: Option<Range<u64>>) -> Result<()> {
        let Url { host, size, name, .. } = self.url;
        let (status, field, span) = match range {
            Some(range) => {
                let field = format!("Range: bytes={}-{}\r\n", range.start, range.end - 1);
                ("206", field, range)
            }
            None => ("200", String::new(), 0..*size),
        };
        let request = format!("GET /{size}/{name} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n");
        self.reader.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if (&mut self.reader).take(16 << 10).read_line(&mut head)? == 0 {
                return Err("closed without an answer".into());
            }
        }
        if head.split(' ').nth(1) != Some(status) {
            return Err(format!("not a {status}: {head}").into());
        }
        let mut offset = span.start;
        while offset < span.end {
            let there = self.reader.fill_buf()?;
            let taken = there.len().min((span.end - offset) as usize);
            if taken == 0 {
                return Err(format!("ends after {offset} bytes").into());
            }
            if !self.pattern.holds(offset, &there[..taken]) {
                return Err(format!("wrong bytes after {offset}").into());
            }
            self.reader.consume(taken);
            offset += taken as u64;
        }
        Ok(())
    }
}

/// How a client goes about it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Way {
    /// One connection, one request.
    Plain,
    /// Ranges over several connections at once.
    Aggressive,
}

/// Fetches one file, checks it, and says how long that took, connecting included.
pub(crate) fn fetch(host: &Host, url: &Url, way: Way, pattern: &Pattern) -> Result<Duration> {
    let begun = Instant::now();
    match way {
        Way::Plain => Connection::open(host, url, pattern)?.get(None)?,
        Way::Aggressive => {
            let next = AtomicU64::new(0);
            in_threads(PARALLEL, |_| {
                let mut connection = Connection::open(host, url, pattern)?;
                loop {
                    let start = next.fetch_add(RANGE, Relaxed);
                    if start >= url.size {
                        return Ok(());
                    }
                    connection.get(Some(start..url.size.min(start + RANGE)))?;
                }
            })?;
        }
    }
    Ok(begun.elapsed())
}

/// Fetches by many clients, each of its URL, that begin at the same moment. `Err` for a client that failed.
pub(crate) fn crowd(
    host: &Host,
    urls: &[Url],
    way: Way,
    pattern: &Pattern,
) -> Result<Vec<std::result::Result<Duration, String>>> {
    let start = Barrier::new(urls.len());
    in_threads(urls.len(), |number| {
        start.wait();
        Ok(fetch(host, &urls[number], way, pattern).map_err(|why| why.to_string()))
    })
}

fn in_threads<T: Send>(count: usize, run: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || run(number).map_err(|e| e.to_string())))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|ended| Ok(ended.map_err(|_| "a client panicked")??)).collect()
    })
}
