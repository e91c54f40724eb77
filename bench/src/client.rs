//! A client that checks every byte, keeps a rate and acts as a crowd, which wrk cannot. It speaks plain
//! HTTP/1.1, with a thread for each connection.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Command,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use crate::{Result, case::Case, pattern::Pattern, wrk::Load};

/// One connection to a server.
pub(crate) struct Client<'a> {
    reader: BufReader<TcpStream>,
    port: u16,
    pattern: &'a Pattern,
}

/// When a body began and ended.
pub(crate) struct Received {
    pub(crate) first_byte: Instant,
    pub(crate) last_byte: Instant,
}

/// An answer may take so long; a server that holds it back for longer has failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

impl<'a> Client<'a> {
    pub(crate) fn connect(port: u16, pattern: &'a Pattern) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { reader: BufReader::with_capacity(64 << 10, stream), port, pattern })
    }

    /// Asks for a path, `/SIZE/NAME`, and checks the answer byte for byte.
    pub(crate) fn get(&mut self, path: &str) -> Result<Received> {
        // As wrk writes it: the host is part of what an object is known by.
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", self.port);
        self.reader.get_mut().write_all(request.as_bytes())?;
        let length = self.head()?;
        let size: u64 = path.split('/').nth(1).ok_or("a path has a size")?.parse()?;
        if length != size {
            return Err(format!("{path}: {length} bytes are announced").into());
        }
        let mut first_byte = None;
        let mut offset = 0;
        while offset < size {
            let there = self.reader.fill_buf()?;
            first_byte.get_or_insert_with(Instant::now);
            let taken = there.len().min((size - offset) as usize);
            if taken == 0 {
                return Err(format!("{path}: ends after {offset} bytes").into());
            }
            if !self.pattern.holds(offset, &there[..taken]) {
                return Err(format!("{path}: wrong bytes after {offset}").into());
            }
            self.reader.consume(taken);
            offset += taken as u64;
        }
        let last_byte = Instant::now();
        Ok(Received { first_byte: first_byte.unwrap_or(last_byte), last_byte })
    }

    /// Reads the head of a 200, and returns the length of its body.
    fn head(&mut self) -> Result<u64> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if (&mut self.reader).take(16 << 10).read_line(&mut head)? == 0 {
                return Err("closed without an answer".into());
            }
        }
        if !head.starts_with("HTTP/1.1 200 ") {
            return Err(format!("not a 200: {head}").into());
        }
        let length = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .ok_or("an answer without a length")?
            .1;
        Ok(length.trim().parse()?)
    }
}

/// Asks for the first object over TLS or HTTP/2, and checks every byte.
pub(crate) fn check_by_curl(case: &Case, port: u16, pattern: &Pattern) -> Result<()> {
    let version = if case.setting.http2 { "--http2-prior-knowledge" } else { "--http1.1" };
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--insecure", version])
        .arg(format!("{}://127.0.0.1:{port}{}", case.setting.scheme(), case.path(0)))
        .output()
        .map_err(|e| format!("curl: {e}; install curl"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    if output.stdout.len() as u64 != case.size || !pattern.holds(0, &output.stdout) {
        return Err(format!("{} wrong bytes", output.stdout.len()).into());
    }
    Ok(())
}

/// Asks for a path at a rate. A request that is due while the connection still waits for the last
/// answer counts from when it was due, so that a server that stalls cannot hide it.
pub(crate) fn at_rate(
    path: &str,
    rate: u32,
    port: u16,
    seconds: u64,
    connections: u32,
    pattern: &Pattern,
) -> Result<Load> {
    let begun = Instant::now() + Duration::from_millis(20);
    let mut times = in_threads(connections as usize, |number| {
        let mut client = Client::connect(port, pattern)?;
        let mut times = Vec::new();
        for turn in (number as u32..).step_by(connections as usize) {
            let due = begun + Duration::from_secs_f64(f64::from(turn) / f64::from(rate));
            if due > begun + Duration::from_secs(seconds) {
                return Ok(times);
            }
            let early = due.saturating_duration_since(Instant::now());
            thread::sleep(early);
            let asked = if early.is_zero() { due } else { Instant::now() };
            times.push(client.get(path)?.last_byte - asked);
        }
        Ok(times)
    })?
    .concat();
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    Ok(Load { requests: times.len() as u64, p99_ms: p99.as_secs_f64() * 1e3 })
}

/// Many clients that ask for a path at the same moment.
pub(crate) fn crowd(
    path: &str,
    clients: usize,
    port: u16,
    pattern: &Pattern,
) -> Result<Vec<Received>> {
    let start = Barrier::new(clients);
    in_threads(clients, |_| {
        let client = Client::connect(port, pattern);
        start.wait();
        client?.get(path)
    })
}

/// Runs the same in some threads and waits for all.
pub(crate) fn in_threads<T: Send>(
    count: usize,
    run: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || run(number).map_err(|e| e.to_string())))
            .collect();
        threads
            .into_iter()
            .map(|thread| Ok(thread.join().map_err(|_| "a client panicked")??))
            .collect()
    })
}
