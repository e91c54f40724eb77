//! An origin whose bodies follow from their paths.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use crate::load::{LARGE, body_of};

#[derive(Default)]
struct Shared {
    requests: AtomicU64,
    versions: Mutex<HashMap<String, u64>>,
    slow: AtomicBool,
    goes_on: Mutex<bool>,
    gone_on: Condvar,
}

/// Serves until the test ends.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let of = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = of.clone();
                thread::spawn(move || while serve(&stream, &shared).is_some() {});
            }
        });
        Self { address, shared }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(SeqCst)
    }

    /// Whether a slow request has come.
    pub(crate) fn is_slow(&self) -> bool {
        self.shared.slow.load(SeqCst)
    }

    /// Answers slow requests.
    pub(crate) fn go_on(&self) {
        *self.shared.goes_on.lock().unwrap() = true;
        self.shared.gone_on.notify_all();
    }
}

/// Answers one request; `None` when the connection is over.
fn serve(mut stream: &TcpStream, shared: &Shared) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split_whitespace().nth(1)?.to_owned();
    while line.trim() != "" {
        line.clear();
        reader.read_line(&mut line).ok()?;
    }
    shared.requests.fetch_add(1, SeqCst);
    let (mut lifetime, mut length) = ("max-age=3600", None);
    let body = match path.split('/').nth(1)? {
        "version" => {
            let mut versions = shared.versions.lock().unwrap();
            let version = versions.entry(path).or_default();
            *version += 1;
            version.to_string().into_bytes()
        }
        "large" => {
            (lifetime, length) = ("no-store", Some(LARGE));
            Vec::new()
        }
        "slow" => {
            shared.slow.store(true, SeqCst);
            let goes_on = shared.goes_on.lock().unwrap();
            drop(shared.gone_on.wait_while(goes_on, |goes_on| !*goes_on).unwrap());
            body_of(&path)
        }
        _ => body_of(&path),
    };
    let size = length.unwrap_or(body.len() as u64);
    let head = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: {lifetime}\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()?;
    let chunk = [b'x'; 64 << 10];
    for _ in 0..length.unwrap_or(0) / chunk.len() as u64 {
        stream.write_all(&chunk).ok()?;
    }
    Some(())
}
