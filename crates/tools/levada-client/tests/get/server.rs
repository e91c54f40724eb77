//! A server with scripted misbehaviour: a closure answers each request.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

/// The parts of a request that the tests use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Counted from 0 over all connections.
    pub(crate) number: u32,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Asked {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The first byte and the last, if given.
    pub(crate) fn range(&self) -> Option<(usize, Option<usize>)> {
        let (start, end) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse().unwrap(), end.parse().ok()))
    }
}

/// The action of a connection after it has sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Read the next request.
    Go,
    /// Close with FIN.
    Close,
    /// Close with RST.
    Reset,
    /// Send nothing while the client waits.
    Silence,
}

/// The bytes to send, and the action after them.
pub(crate) struct Reply(pub(crate) Vec<u8>, pub(crate) Then);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(crate) fn new(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        Self::behind(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    /// The server behind a listener, which may be another host's.
    pub(crate) fn behind(
        listener: TcpListener,
        answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (asked.clone(), Arc::new(answer));
        let count = Arc::new(AtomicU32::new(0));
        // The thread ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, answer, count) = (log.clone(), answer.clone(), count.clone());
                thread::spawn(move || {
                    let _ = serve(stream, &log, &count, &*answer);
                });
            }
        });
        Self { address, asked }
    }

    pub(crate) fn url(&self, path: &str) -> http::Uri {
        format!("http://{}{path}", self.address).parse().unwrap()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<Asked>>,
    count: &AtomicU32,
    answer: &dyn Fn(&Asked) -> Reply,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut fields = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
        let number = count.fetch_add(1, Ordering::SeqCst);
        let asked = Asked { number, target, fields };
        log.lock().unwrap().push(asked.clone());
        let Reply(bytes, then) = answer(&asked);
        stream.write_all(&bytes)?;
        match then {
            Then::Go => {}
            Then::Close => return stream.shutdown(std::net::Shutdown::Both),
            Then::Reset => {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
                drop(reader);
                return Ok(());
            }
            Then::Silence => {
                let mut end = String::new();
                reader.read_line(&mut end)?;
                return Ok(());
            }
        }
    }
}

/// A file on a correct server: whole or in ranges, with an entity tag.
pub(crate) fn file(asked: &Asked, content: &[u8], etag: &str) -> (Vec<u8>, usize) {
    let total = content.len();
    let fresh = asked.field("if-range").is_none_or(|tag| tag == etag);
    let tag = if etag.is_empty() { String::new() } else { format!("ETag: {etag}\r\n") };
    match asked.range().filter(|_| fresh) {
        None => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n{tag}\r\n");
            ([head.as_bytes(), content].concat(), head.len())
        }
        Some((start, _)) if start >= total => {
            let head = format!(
                "HTTP/1.1 416 Range\r\nContent-Range: bytes */{total}\r\nContent-Length: 0\r\n\r\n"
            );
            (head.clone().into_bytes(), head.len())
        }
        Some((start, last)) => {
            let end = last.map_or(total, |last| (last + 1).min(total));
            let head = format!(
                "HTTP/1.1 206 Partial\r\nContent-Range: bytes {start}-{}/{total}\r\n\
                 Content-Length: {}\r\n{tag}\r\n",
                end - 1,
                end - start
            );
            ([head.as_bytes(), &content[start..end]].concat(), head.len())
        }
    }
}

/// The file, but the connection ends after `bytes` of the body.
pub(crate) fn cut(asked: &Asked, content: &[u8], etag: &str, bytes: usize, then: Then) -> Reply {
    let (mut reply, head) = file(asked, content, etag);
    if reply.len() <= head + bytes {
        return Reply(reply, Then::Go);
    }
    reply.truncate(head + bytes);
    Reply(reply, then)
}

/// Random bytes, in which a wrong range cannot go unnoticed.
pub(crate) fn content(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = levada_types::Rng::new(seed);
    (0..length).map(|_| rng.below(256) as u8).collect()
}
