//! Clients that ask all the time and count what goes wrong.

use std::sync::Mutex;

use super::*;

/// The experience of all clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadReport {
    /// Right responses.
    pub(crate) answered: u64,
    /// Among them those after which the connection was to end, although the client wanted to go on.
    pub(crate) goodbyes: u64,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
    /// Connections that were not accepted.
    pub(crate) refused: u64,
    /// Requests without a whole response.
    pub(crate) cut: u64,
    /// Whole responses with other bytes than the right ones.
    pub(crate) wrong: u64,
    /// The errors.
    pub(crate) errors: Vec<String>,
}

impl LoadReport {
    pub(crate) fn failures(&self) -> u64 {
        self.refused + self.cut + self.wrong
    }
}

/// The kinds of clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientKind {
    /// Keeps its connection as long as it may.
    Keeps,
    /// Connects for each request.
    Fresh,
    /// Keeps its connection for long bodies.
    Downloads,
}

const CLIENTS: [(ClientKind, usize); 3] =
    [(ClientKind::Keeps, 8), (ClientKind::Fresh, 4), (ClientKind::Downloads, 2)];

/// The largest body.
const LARGEST: usize = 8_000_000;

impl Cluster {
    /// Lets clients ask while something happens.
    pub(crate) fn under_load(&self, happens: impl FnOnce()) -> LoadReport {
        let (report, over, right) =
            (Mutex::<LoadReport>::default(), AtomicBool::new(false), content(LARGEST));
        thread::scope(|scope| {
            let (report, over, right) = (&report, &over, &right);
            let mut seed = 0;
            for (kind, count) in CLIENTS {
                for _ in 0..count {
                    seed += 1;
                    scope.spawn(move || self.ask(kind, seed, right, report, over));
                }
            }
            // It ends in any case, also if something has failed.
            let _over = Ends(over);
            happens();
        });
        report.into_inner().unwrap()
    }

    fn ask(
        &self,
        kind: ClientKind,
        seed: usize,
        right: &[u8],
        report: &Mutex<LoadReport>,
        over: &AtomicBool,
    ) {
        let mut kept: Option<BufReader<TcpStream>> = None;
        for turn in 0.. {
            if over.load(Relaxed) {
                return;
            }
            let size = match kind {
                ClientKind::Downloads => LARGEST,
                _ => 1 + (turn * 7919 + seed * 104_729) % 60_000,
            };
            let host = ["back0.test", "back1.test", "both.test"][(turn + seed) % 3];
            let mut stream =
                match kept.take().map(Ok).unwrap_or_else(|| self.try_connect().map(BufReader::new))
                {
                    Ok(stream) => stream,
                    Err(error) => {
                        let mut report = report.lock().unwrap();
                        report.refused += 1;
                        report.errors.push(format!("connect: {error}"));
                        continue;
                    }
                };
            let close = if kind == ClientKind::Fresh { "Connection: close\r\n" } else { "" };
            // No client may send a POST twice.
            let mut request = match kind == ClientKind::Keeps && turn % 4 == 0 {
                true => {
                    format!("POST /echo HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\n")
                }
                false => format!("GET /{size} HTTP/1.1\r\nHost: {host}\r\n{close}"),
            }
            .into_bytes();
            request.extend(b"\r\n");
            if request.starts_with(b"POST") {
                request.extend(&right[..size]);
            }
            let answer = stream.get_mut().write_all(&request);
            let answer = answer.and_then(|()| receive(&mut stream));
            let mut report = report.lock().unwrap();
            match answer {
                Ok((head, body)) if head.starts_with("HTTP/1.1 200 ") && body == right[..size] => {
                    report.answered += 1;
                    report.bytes += size as u64;
                    let ends = head.to_lowercase().contains("\r\nconnection: close");
                    report.goodbyes += u64::from(ends && kind != ClientKind::Fresh);
                    kept = (!ends).then_some(stream);
                }
                Ok((head, body)) => {
                    report.wrong += 1;
                    report.errors.push(format!("{host} {size}: {} bytes after {head}", body.len()));
                }
                Err(error) => {
                    report.cut += 1;
                    report.errors.push(format!("{host} {size}, request {turn}: {error}"));
                }
            }
        }
    }
}

/// Ends the load when it is dropped.
pub(super) struct Ends<'a>(pub(super) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A response's head and body.
fn receive(stream: &mut BufReader<TcpStream>) -> io::Result<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("after {head:?}")));
        }
    }
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    stream.read_exact(&mut body)?;
    Ok((head, body))
}
