//! An origin that tells what it was asked. It has two addresses, one for each front, which count by themselves.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// Requests so far, by address and path.
type Counts = Arc<Mutex<HashMap<(SocketAddr, String), usize>>>;

/// The addresses of one origin: one for nginx, one for Levada.
pub(crate) struct Origin {
    pub(crate) addresses: [SocketAddr; 2],
}

/// Starts an origin that serves until the test ends. `counts` are shared by the servers of one pool.
pub(crate) fn start(counts: &Counts) -> Origin {
    let addresses = [0, 1].map(|front| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counts = counts.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = counts.clone();
                thread::spawn(move || serve(stream, front, &counts));
            }
        });
        address
    });
    Origin { addresses }
}

struct Asked {
    method: String,
    target: String,
    fields: HashMap<String, String>,
    body: usize,
}

impl Asked {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("-", String::as_str)
    }
}

/// Answers one request. A client that breaks off is of no interest.
fn serve(mut stream: TcpStream, front: u16, counts: &Counts) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let asked = read(&mut reader, &mut stream)?;
    let place = (SocketAddr::from(([127, 0, 0, 1], front)), asked.target.clone());
    let count = {
        let mut counts = counts.lock().unwrap();
        let count = counts.entry(place).or_default();
        *count += 1;
        *count
    };
    stream.write_all(&answer(&asked, count)).ok()
}

fn read(reader: &mut impl BufRead, stream: &mut TcpStream) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut fields = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        fields.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut asked = Asked { method, target, fields, body: 0 };
    if asked.field("expect").eq_ignore_ascii_case("100-continue") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    if asked.field("transfer-encoding") == "chunked" {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            asked.body += size;
            if size == 0 {
                break;
            }
        }
    } else if let Ok(length) = asked.field("content-length").parse::<usize>() {
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        asked.body = length;
    }
    Some(asked)
}

/// When all files of the origin were changed last.
pub(crate) const CHANGED: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

/// The first and the last byte of a range, the last one excluded.
fn range(field: &str, length: usize) -> Option<(usize, usize)> {
    let (from, to) = field.strip_prefix("bytes=")?.split_once('-')?;
    let from: usize = from.parse().ok().filter(|from| *from < length)?;
    Some((from, to.parse().map_or(length, |to: usize| length.min(to + 1))))
}

fn answer(asked: &Asked, count: usize) -> Vec<u8> {
    let path = asked.target.split('?').next().unwrap_or_default();
    if asked.field("upgrade") != "-" {
        return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
            .to_vec();
    }
    let tag = format!("\"{}\"", path.len());
    let known = asked.field("if-none-match") == tag
        || asked.field("if-none-match") == "-" && asked.field("if-modified-since") == CHANGED;
    let (mut status, mut kind, mut fields) = ("200 OK", "text/plain", String::new());
    let mut body = match path {
        path if path.starts_with("/text/") => {
            kind = if path.ends_with(".css") { "text/css" } else { "image/gif" };
            let size = path.split(['/', '.']).filter_map(|part| part.parse().ok()).next();
            "a { color: black } ".chars().cycle().take(size.unwrap_or(0)).collect()
        }
        path if path.contains("count") => count.to_string(),
        path if path.contains("missing") => {
            status = "404 Not Found";
            "the origin has no such page".to_owned()
        }
        path if path.contains("failing") => {
            status = "500 Internal Server Error";
            "the origin fails".to_owned()
        }
        path if path.contains("digits") => "0123456789".to_owned(),
        _ => format!(
            "{} {} host={} for={} proto={} range={} accept={} body={}",
            asked.method,
            asked.target,
            asked.field("host"),
            asked.field("x-forwarded-for"),
            asked.field("x-forwarded-proto"),
            asked.field("range"),
            asked.field("accept"),
            asked.body
        ),
    };
    if status.starts_with("200") && matches!(asked.method.as_str(), "GET" | "HEAD") {
        fields = format!("ETag: {tag}\r\nLast-Modified: {CHANGED}\r\nAccept-Ranges: bytes\r\n");
        if known {
            status = "304 Not Modified";
            body.clear();
        } else if let Some((from, to)) = range(asked.field("range"), body.len()) {
            status = "206 Partial Content";
            fields += &format!("Content-Range: bytes {from}-{}/{}\r\n", to - 1, body.len());
            body = body[from..to].to_owned();
        }
    }
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nX-Powered-By: an origin\r\n{fields}Connection: close\r\n"
    );
    let length = match status.starts_with("304") {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    if asked.method == "HEAD" {
        body.clear();
    }
    format!("{head}{length}\r\n{body}").into_bytes()
}
