//! `kill -9` of a node under load, again and again: what its cache on disk serves afterwards.
//!
//! ```text
//! cargo build --release -p levada
//! cargo run --release -p levada-bench --bin kill [-- --kills N --seed S]
//! ```
//!
//! Clients ask a node with a small memory and a disk for whole objects and ranges, short ones and such
//! that are kept in blocks; the node is killed at a random moment and started again on the same
//! directory. Every body says by its ETag which bytes it must consist of, so that each response is
//! checked byte for byte, also those that the kill has cut: what has arrived must be right. Everything
//! listens on loopback; needs nothing but the binary, which `LEVADA` may name.

use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use levada_types::{Rng, hash64};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const CLIENTS: u64 = 4;
const OBJECTS: usize = 600;
const LONGEST: usize = 700_000;
/// How many kills an object lasts before the origin has another version.
const VERSION: u64 = 20;

fn main() -> Result<()> {
    let (mut kills, mut seed) = (200, u64::from(std::process::id()));
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} wants a number"))?.parse()?;
        match word.as_str() {
            "--kills" => kills = value,
            "--seed" => seed = value,
            _ => return Err(format!("no option {word}").into()),
        }
    }
    let dir = std::env::temp_dir().join(format!("levada-kill-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let outcome = run(&dir, kills, seed);
    if outcome.is_err() {
        eprintln!("{}", fs::read_to_string(dir.join("levada.log")).unwrap_or_default());
    }
    fs::remove_dir_all(&dir)?;
    outcome
}

/// Results of all clients.
#[derive(Default)]
struct Seen {
    whole: AtomicU64,
    hits: AtomicU64,
    cut: AtomicU64,
    wrong: AtomicU64,
}

fn run(dir: &Path, kills: u64, seed: u64) -> Result<()> {
    let version = Arc::new(AtomicU64::new(0));
    let origin = origin(version.clone())?;
    let (port, admin) = (free_port()?, free_port()?);
    let config = configuration(dir, origin, port, admin)?;
    let seen = Arc::new(Seen::default());
    let mut rng = Rng::new(seed);
    let (mut recovered, mut damaged, mut errors) = (0, 0, 0);
    let mut slowest = Duration::ZERO;
    println!("{kills} kills, seed {seed}");
    for kill in 1..=kills {
        version.store(kill / VERSION, Relaxed);
        let mut node = Node::start(&config, port)?;
        let begun = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (seen, stop) = (seen.clone(), stop.clone());
                let mut rng =
                    Rng::new(seed ^ hash64(&[kill.to_le_bytes(), client.to_le_bytes()].concat()));
                thread::spawn(
                    move || {
                        while !stop.load(Relaxed) && ask(port, &mut rng, &seen).is_ok() {}
                    },
                )
            })
            .collect();
        // Read the first page after the scan, before the load adds entries.
        let found = scanned(admin)?;
        slowest = slowest.max(begun.elapsed());
        recovered += found.entries;
        thread::sleep(Duration::from_millis(rng.below(700) as u64));
        let last = page(admin)?;
        damaged += last.damaged;
        errors += last.errors;
        node.0.kill()?;
        node.0.wait()?;
        stop.store(true, Relaxed);
        clients.into_iter().for_each(|client| drop(client.join()));
        if kill % 10 == 0 || kill == kills {
            println!(
                "{kill} kills: {recovered} records recovered; {} whole responses, {} of them hits, {} cut; \
                 {damaged} records found damaged, {errors} errors of the disk, {} wrong bytes served; \
                 scanned after {slowest:?} at the latest",
                seen.whole.load(Relaxed),
                seen.hits.load(Relaxed),
                seen.cut.load(Relaxed),
                seen.wrong.load(Relaxed),
            );
        }
    }
    match seen.wrong.load(Relaxed) {
        0 => Ok(()),
        wrong => Err(format!("{wrong} responses were wrong").into()),
    }
}

/// One request on a connection of its own, checked. An error means that there is no node.
fn ask(port: u16, rng: &mut Rng, seen: &Seen) -> Result<()> {
    // Some objects are popular, so that some records are read often and others rarely.
    let bound = 1 + rng.below(OBJECTS);
    let number = rng.below(bound);
    let range = (rng.below(4) == 0).then(|| rng.below(LONGEST / 2));
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let range =
        range.map_or(String::new(), |from| format!("Range: bytes={from}-{}\r\n", from + 90_000));
    write!(stream, "GET /{number} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n{range}\r\n")?;
    let mut reader = BufReader::new(stream);
    let Ok(head) = Head::read(&mut reader) else {
        seen.cut.fetch_add(1, Relaxed);
        return Ok(());
    };
    let mut body = Vec::new();
    let ended = reader.read_to_end(&mut body).is_ok();
    if head.status == 416 || head.status >= 500 {
        return Ok(());
    }
    let expected = head.etag.as_deref().and_then(|tag| expected(number, tag));
    let expected = expected.as_deref().and_then(|whole| whole.get(head.from..));
    if expected.is_none_or(|bytes| !bytes.starts_with(&body)) {
        eprintln!("wrong: /{number} {range:?} {head:?} with {} bytes", body.len());
        seen.wrong.fetch_add(1, Relaxed);
    } else if ended && head.length == Some(body.len()) {
        seen.whole.fetch_add(1, Relaxed);
        seen.hits.fetch_add(u64::from(head.hit), Relaxed);
    } else {
        seen.cut.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// The whole body that an ETag of the origin stands for.
fn expected(number: usize, tag: &str) -> Option<Vec<u8>> {
    let (object, version) = tag.trim_matches('"').split_once('-')?;
    (object.parse() == Ok(number)).then_some(())?;
    Some(content(number, version.parse().ok()?))
}

fn content(number: usize, version: u64) -> Vec<u8> {
    let seed = hash64(&[number as u64, version].map(u64::to_le_bytes).concat());
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::new();
    let length = rng.below(LONGEST) * rng.below(LONGEST) / LONGEST;
    while bytes.len() < length {
        bytes.extend(rng.bits().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The fields of a response that matter here.
#[derive(Debug, Default)]
struct Head {
    status: u16,
    etag: Option<String>,
    length: Option<usize>,
    /// Where its body begins in the whole one.
    from: usize,
    hit: bool,
    range: Option<(usize, usize)>,
}

impl Head {
    /// Of a response or, but for the status, of a request.
    fn read(reader: &mut impl BufRead) -> Result<Self> {
        let mut head = Self::default();
        let mut line = String::new();
        reader.read_line(&mut line)?;
        head.status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Err("the head is cut".into());
            }
            let Some((name, value)) = line.split_once(':') else { return Ok(head) };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "etag" => head.etag = Some(value.to_owned()),
                "content-length" => head.length = value.parse().ok(),
                "cache-status" => head.hit = value.contains("; hit"),
                "content-range" => {
                    // That of a 416 has no bounds.
                    let range = value.strip_prefix("bytes ").and_then(|v| v.split_once('-'));
                    head.from = range.map_or(Ok(0), |(from, _)| from.parse())?;
                }
                "range" => {
                    let range = value.strip_prefix("bytes=").and_then(|v| v.split_once('-'));
                    let (from, to) = range.ok_or("Range")?;
                    head.range = Some((from.parse()?, to.parse().unwrap_or(usize::MAX)));
                }
                _ => {}
            }
        }
    }
}

/// An origin whose objects follow from number and version.
fn origin(version: Arc<AtomicU64>) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let version = version.clone();
            thread::spawn(move || drop(answer(&stream, &version)));
        }
    });
    Ok(port)
}

fn answer(stream: &TcpStream, version: &AtomicU64) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        // The first line by itself: the number is its path.
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).ok_or("no path")?;
        let number: usize = path.trim_start_matches('/').parse()?;
        let request = Head::read(&mut line.as_bytes().chain(&mut reader))?;
        let version = version.load(Relaxed);
        let whole = content(number, version);
        let common = format!(
            "ETag: \"{number}-{version}\"\r\nCache-Control: max-age=36000\r\nAccept-Ranges: bytes\r\n"
        );
        match request.range.map(|(from, to)| (from, to.saturating_add(1).min(whole.len()))) {
            Some((from, _)) if from >= whole.len() => write!(
                writer,
                "HTTP/1.1 416 No\r\n{common}Content-Range: bytes */{}\r\nContent-Length: 0\r\n\r\n",
                whole.len()
            )?,
            Some((from, end)) => {
                write!(
                    writer,
                    "HTTP/1.1 206 Part\r\n{common}Content-Range: bytes {from}-{}/{}\r\n\
                     Content-Length: {}\r\n\r\n",
                    end - 1,
                    whole.len(),
                    end - from
                )?;
                writer.write_all(&whole[from..end])?;
            }
            None => {
                let length = whole.len();
                write!(writer, "HTTP/1.1 200 OK\r\n{common}Content-Length: {length}\r\n\r\n")?;
                writer.write_all(&whole)?;
            }
        }
    }
}

fn configuration(dir: &Path, origin: u16, port: u16, admin: u16) -> Result<PathBuf> {
    let path = dir.join("levada.toml");
    let text = format!(
        "name = \"kill\"\n[log]\naccess = \"off\"\n[admin]\nlisten = \"127.0.0.1:{admin}\"\n\
         [cache]\nmemory = \"4MiB\"\nblock = \"64KiB\"\n\
         [cache.disk]\npath = \"{}\"\nsize = \"64MiB\"\n\
         [[listen]]\naddress = \"127.0.0.1:{port}\"\n\
         [[site]]\nhosts = [\"*\"]\norigin = \"http://127.0.0.1:{origin}\"\n",
        dir.join("cache").display()
    );
    fs::write(&path, text)?;
    Ok(path)
}

/// A node, killed at the latest when this ends.
struct Node(Child);

impl Node {
    fn start(config: &Path, port: u16) -> Result<Self> {
        let log =
            fs::File::options().create(true).append(true).open(config.with_extension("log"))?;
        let mut command = Command::new(binary()?);
        command.args(["run", "-c"]).arg(config).stdin(Stdio::null()).stdout(Stdio::null());
        let mut node = Self(command.stderr(log).spawn()?);
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > deadline || node.0.try_wait()?.is_some() {
                let log = fs::read_to_string(config.with_extension("log"))?;
                return Err(format!("the node does not start:\n{log}").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The release build next to this program, or what LEVADA names.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("LEVADA") {
        return Ok(path.into());
    }
    let path = std::env::current_exe()?.with_file_name("levada");
    if !path.exists() {
        return Err("build the binary first: cargo build --release -p levada".into());
    }
    Ok(path)
}

/// The metrics of the disk tier.
struct Page {
    scanned: bool,
    entries: u64,
    damaged: u64,
    errors: u64,
}

fn scanned(admin: u16) -> Result<Page> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        // The admin address is listened on a moment after the other.
        match page(admin) {
            Ok(page) if page.scanned => return Ok(page),
            Err(error) if Instant::now() > deadline => return Err(error),
            _ if Instant::now() > deadline => return Err("the scan does not end".into()),
            _ => {}
        }
    }
}

fn page(admin: u16) -> Result<Page> {
    let mut stream = TcpStream::connect(("127.0.0.1", admin))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let sum = |name: &str| -> u64 {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    };
    Ok(Page {
        scanned: sum("levada_cache_disk_scanned ") == 1,
        entries: sum("levada_cache_disk_entries "),
        damaged: sum("levada_cache_disk_damaged_total "),
        errors: sum("levada_cache_disk_errors_total{"),
    })
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
