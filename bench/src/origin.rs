//! The origin: answers `/SIZE/NAME` with so many bytes of a pattern, and counts what it is asked.
//!
//! It is part of the program, so that counts are exact and every server stands before the same one. One
//! thread serves all connections: an origin that costs more than the server in front of it would leave
//! that one idle between requests, and what is measured then is how it falls asleep and wakes up.
//! A name that begins with `slow` is answered after a round trip and at the pace of a distant origin.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    runtime,
    time::{Instant, sleep},
};

use crate::{Result, pattern::Pattern};

pub(crate) struct Origin {
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    requests: AtomicU64,
    bytes: AtomicU64,
    pattern: Pattern,
}

/// Of a request, what the answer depends on.
struct Asked {
    size: u64,
    slow: bool,
    range: Option<Range<u64>>,
}

/// The time until a slow response begins.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(100);
/// Bytes per second of a slow response.
const SLOW: f64 = 50e6;

impl Origin {
    /// On a free port of this machine.
    pub(crate) fn start() -> Result<Self> {
        Self::behind(std::net::TcpListener::bind("127.0.0.1:0")?)
    }

    /// Behind a listener, which may be another host's.
    pub(crate) fn behind(listener: std::net::TcpListener) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State::default());
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = state.clone();
        thread::spawn(move || runtime.block_on(listen(listener, shared)));
        Ok(Self { port, state })
    }

    /// How many requests it was asked so far.
    pub(crate) fn requests(&self) -> u64 {
        self.state.requests.load(Relaxed)
    }

    /// How many bytes of bodies it sent so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.bytes.load(Relaxed)
    }
}

/// Accepts connections for as long as the program runs.
async fn listen(listener: std::net::TcpListener, state: Arc<State>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let state = state.clone();
        tokio::spawn(async move { state.converse(stream).await });
    }
}

impl State {
    /// Answers a connection's requests, until it closes or a request is not understood.
    async fn converse(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let (reader, mut stream) = stream.split();
        let mut reader = BufReader::new(reader);
        loop {
            let asked = read_request(&mut reader).await?;
            self.requests.fetch_add(1, Relaxed);
            self.answer(&asked, &mut stream).await.ok()?;
        }
    }

    async fn answer(
        &self,
        asked: &Asked,
        stream: &mut (impl AsyncWriteExt + Unpin),
    ) -> std::io::Result<()> {
        if asked.slow {
            sleep(ROUND_TRIP).await;
        }
        let body = asked.range.clone().unwrap_or(0..asked.size);
        let mut head = head(asked, &body);
        let begun = Instant::now();
        let mut sent = 0;
        for piece in self.pattern.pieces(body) {
            if sent == 0 {
                // One write for an answer that is short.
                head.extend_from_slice(piece);
                stream.write_all(&head).await?;
            } else {
                stream.write_all(piece).await?;
            }
            sent += piece.len() as u64;
            self.bytes.fetch_add(piece.len() as u64, Relaxed);
            if asked.slow {
                let due = Duration::from_secs_f64(sent as f64 / SLOW);
                sleep(due.saturating_sub(begun.elapsed())).await;
            }
        }
        Ok(())
    }
}

async fn read_request(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let mut path = line.split(' ').nth(1)?.split('/').skip(1);
    let size = path.next()?.parse().ok()?;
    let slow = path.next()?.starts_with("slow");
    let mut range = None;
    loop {
        line.clear();
        reader.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        if line.trim_end().is_empty() {
            return Some(Asked { size, slow, range });
        }
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("range") {
            let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
            let end = last.parse::<u64>().map_or(size, |last| size.min(last + 1));
            range = Some(first.parse().ok()?..end);
        }
    }
}

/// The fields that a server for files sends. Objects never change, so that `If-Range` always holds.
fn head(asked: &Asked, body: &Range<u64>) -> Vec<u8> {
    let size = asked.size;
    let (status, range) = match asked.range {
        Some(_) => (
            "206 Partial Content",
            format!("Content-Range: bytes {}-{}/{size}\r\n", body.start, body.end - 1),
        ),
        None => ("200 OK", String::new()),
    };
    format!(
        "HTTP/1.1 {status}\r\nServer: origin\r\nDate: {date}\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n{range}\
         Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nETag: \"{size}\"\r\n\
         Cache-Control: max-age=3600\r\nAccept-Ranges: bytes\r\n\r\n",
        date = httpdate::fmt_http_date(SystemTime::now()),
        length = body.end - body.start,
    )
    .into_bytes()
}
