//! Full links and clients that are gone: what nodes behind 4 Mbit/s cost their live clients, and how long they
//! keep clients that have vanished, with `dormant_retries` as it is by default and without it.
//!
//! ```text
//!   live clients ══╗
//!                  ╠══ 4 Mbit/s, full ══ node (eight of them)
//!   others ════════╝                      │
//!      └───────── 20 Mbit/s, free ────────┘
//! ```
//!
//! `cargo run --release -p levada-bench --bin full_links -- [--seconds N] [--logs DIR]`, as root: hosts are network
//! namespaces. Live clients fetch one file after the other over connections that stay, as many as let each of
//! them lose every other packet. Others vanish in the middle of their downloads: nothing of theirs arrives any
//! more. At the end the full links are cut. The node is the binary next to this program, or what LEVADA names.

use std::{
    collections::HashMap,
    error::Error,
    fs::{self, File},
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use levada_net::{
    lab::{Access, Child, Host, Network, allow_files},
    wire::{Shape, Wire},
};
use origin::Origin;
use pattern::Pattern;

#[expect(dead_code, reason = "other programs count what it is asked")]
#[path = "../origin.rs"]
mod origin;
#[path = "../pattern.rs"]
mod pattern;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NODES: usize = 8;
/// Live clients of each node, and others at each of its links.
const LIVE: usize = 70;
const OTHERS: usize = 9;
/// Bytes of the file of live clients, and of the others, who never get all of it.
const FILE: u64 = 50_000;
const LONG_FILE: u64 = 100_000_000;

/// The link of a prototype of the papers, with half a second of packets before it.
const FULL: Shape = Shape {
    rate: Some(4_000_000),
    delay: Duration::from_millis(5),
    loss: 0.0,
    reordering: 0.0,
    duplicates: 0.0,
    queue: 170,
};
const FREE: Shape = Shape { rate: Some(20_000_000), queue: 500, ..FULL };

const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);
/// A request without a byte for so long has failed.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest measurement of what is left of clients.
const LONGEST: Duration = Duration::from_secs(90);
/// The interval at which the connections of all nodes are counted; it is short against the times that are measured.
const COUNT_INTERVAL: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let (mut seconds, mut logs) = (60, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => seconds = words.next().ok_or("--seconds wants a number")?.parse()?,
            "--logs" => logs = Some(PathBuf::from(words.next().ok_or("--logs wants a directory")?)),
            _ => return Err(format!("no option {word:?}; see the head of this program").into()),
        }
    }
    levada_net::lab::possible()?;
    allow_files(10_000)?;
    let levada = match std::env::var_os("LEVADA") {
        Some(path) => fs::canonicalize(path)?,
        None => std::env::current_exe()?.with_file_name("levada"),
    };
    let dir = std::env::temp_dir().join(format!("levada-full-links-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let settings = [("default", ""), ("off", "dormant_retries = \"off\"\n")];
    let outcome = settings.iter().try_for_each(|(name, setting)| {
        let world = World::new(&logs.as_ref().unwrap_or(&dir).join(name), &levada, setting)?;
        println!("\ndormant_retries: {name}");
        measure(&world, Duration::from_secs(seconds), *name == "default")
    });
    fs::remove_dir_all(&dir)?;
    outcome
}

/// Results of the live clients.
#[derive(Default)]
struct Seen {
    whole: AtomicU64,
    bytes: AtomicU64,
    failed: Mutex<HashMap<String, u64>>,
    over: AtomicBool,
}

fn measure(world: &World, load: Duration, vanish: bool) -> Result<()> {
    let (seen, left) = (Seen::default(), AtomicBool::new(false));
    thread::scope(|scope| -> Result<()> {
        for node in 0..NODES {
            for _ in 0..LIVE {
                let seen = &seen;
                spawn(scope, move || live(&world.live, full(node, NODE), seen))?;
            }
        }
        let outcome = phases(world, load, vanish, &seen, &left, scope);
        seen.over.store(true, Relaxed);
        left.store(true, Relaxed);
        outcome
    })
}

fn phases<'scope>(
    world: &'scope World,
    load: Duration,
    vanish: bool,
    seen: &Seen,
    left: &'scope AtomicBool,
    scope: &'scope thread::Scope<'scope, '_>,
) -> Result<()> {
    let begun = Instant::now();
    thread::sleep(load);
    report(world, seen, begun)?;
    if !vanish {
        return Ok(());
    }
    for node in 0..NODES {
        let World { neighbours, others, .. } = world;
        let (full, free) = (full(node, NODE), free(node, NODE));
        for (host, address) in [(others, free), (others, full), (neighbours, full)] {
            for _ in 0..OTHERS {
                spawn(scope, move || drain(host, address, left))?;
            }
        }
    }
    thread::sleep(Duration::from_secs(10));
    for Link { full, free } in &world.links {
        full.up(2).cut(true);
        full.up(3).cut(true);
        free.up(1).cut(true);
    }
    let gone = world.gone(&[&|node| free(node, OTHER), &|node| full(node, OTHER), &|node| {
        full(node, NEIGHBOUR)
    }]);
    let names = [
        "vanish, free links",
        "vanish, full links, a network of their own",
        "vanish, full links, beside live ones",
    ];
    names.iter().zip(gone).for_each(|(name, gone)| gone.print(name));
    report(world, seen, begun)?;
    seen.over.store(true, Relaxed);
    world.links.iter().for_each(|link| link.full.up(1).cut(true));
    for gone in world.gone(&[&|node| full(node, CLIENT)]) {
        gone.print("full links are cut");
    }
    Ok(())
}

fn report(world: &World, seen: &Seen, begun: Instant) -> Result<()> {
    let load = begun.elapsed();
    let failed = seen.failed.lock().unwrap_or_else(PoisonError::into_inner);
    let total: u64 = failed.values().sum();
    let rate = seen.bytes.load(Relaxed) as f64 * 8e-6 / load.as_secs_f64() / NODES as f64;
    println!(
        "  after {:.0} s: {} requests of {LIVE} x {NODES} live clients, {total} failed {failed:?}; {rate:.2} \
         Mbit/s a link; {} connections given up, {} of their clients returned; {:.0} % of the packets lost",
        load.as_secs_f64(),
        seen.whole.load(Relaxed),
        world.metric("levada_connections_ended_total{reason=\"dormant\"}")?,
        world.metric("levada_dormant_returned_total")?,
        world.lost()
    );
    Ok(())
}

fn spawn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    run: impl FnOnce() + Send + 'scope,
) -> Result<()> {
    thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, run)?;
    Ok(())
}

/// Fetches one file after the other, and counts.
fn live(host: &Host, node: SocketAddr, seen: &Seen) {
    let pattern = Pattern::default();
    let mut connection = None;
    while !seen.over.load(Relaxed) {
        match get(host, node, &mut connection, &pattern, seen) {
            Ok(()) => {
                seen.whole.fetch_add(1, Relaxed);
            }
            Err(_) if seen.over.load(Relaxed) => {}
            Err(why) => {
                connection = None;
                let mut failed = seen.failed.lock().unwrap_or_else(PoisonError::into_inner);
                *failed.entry(why.to_string()).or_default() += 1;
            }
        }
    }
}

fn get(
    host: &Host,
    node: SocketAddr,
    connection: &mut Option<BufReader<TcpStream>>,
    pattern: &Pattern,
    seen: &Seen,
) -> Result<()> {
    let reader = match connection {
        Some(reader) => reader,
        None => {
            let stream = host.namespace().run(|| TcpStream::connect(node))??;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            connection.insert(BufReader::new(stream))
        }
    };
    // In one segment: the rest of a request would wait for an acknowledgement through the full link.
    let request = format!("GET /{FILE}/live HTTP/1.1\r\nHost: a\r\n\r\n");
    reader.get_mut().write_all(request.as_bytes())?;
    let mut moved = Instant::now();
    let (mut head, mut at) = (Vec::new(), 0);
    while at < FILE {
        let there = match reader.fill_buf() {
            Ok([]) => return Err("closed".into()),
            Ok(there) => there,
            Err(error) if is_late(&error) && !seen.over.load(Relaxed) => {
                if moved.elapsed() > SILENCE_TIMEOUT {
                    return Err("no byte for long".into());
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        moved = Instant::now();
        let taken = if head.ends_with(b"\r\n\r\n") {
            if !pattern.holds(at, there) {
                return Err("wrong bytes".into());
            }
            at += there.len() as u64;
            seen.bytes.fetch_add(there.len() as u64, Relaxed);
            there.len()
        } else {
            let line =
                there.iter().position(|byte| *byte == b'\n').map_or(there.len(), |at| at + 1);
            head.extend_from_slice(&there[..line]);
            line
        };
        reader.consume(taken);
    }
    if head.starts_with(b"HTTP/1.1 200") { Ok(()) } else { Err("not a 200".into()) }
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Downloads as quickly as data comes, until all is over.
fn drain(host: &Host, node: SocketAddr, over: &AtomicBool) {
    let Ok(Ok(mut stream)) = host.namespace().run(|| TcpStream::connect(node)) else { return };
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let request = format!("GET /{LONG_FILE}/long HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = stream.write_all(request.as_bytes());
    let mut buffer = vec![0; 64 << 10];
    while !over.load(Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Err(error) if !is_late(&error) => return,
            _ => {}
        }
    }
}

/// Ends of a link.
const NODE: u8 = 1;
const CLIENT: u8 = 2;
/// In the network of the live clients.
const NEIGHBOUR: u8 = 3;
/// In another one.
const OTHER: u8 = 4;

fn full(node: usize, end: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 30 + node as u8, u8::from(end == OTHER), end), 80).into()
}

fn free(node: usize, end: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 50 + node as u8, 0, end), 80).into()
}

struct Link {
    full: Wire,
    free: Wire,
}

struct World {
    // Programs go before their hosts, and those before the wires.
    nodes: Vec<Child>,
    hosts: Vec<Host>,
    live: Host,
    neighbours: Host,
    others: Host,
    links: Vec<Link>,
    _network: Network,
}

impl World {
    fn new(dir: &Path, levada: &PathBuf, setting: &str) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let mut network = Network::new(1);
        let live = network.host("live")?;
        let (neighbours, others) = (network.host("neighbours")?, network.host("others")?);
        let (mut hosts, mut links, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..NODES {
            let host = network.host(&format!("node {node}"))?;
            let at = |address: SocketAddr| Access { prefix: 16, ..Access::at(address.ip()) };
            let full = network.join(&[
                (&host, at(full(node, NODE)).sending(FULL)),
                (&live, at(full(node, CLIENT))),
                (&neighbours, at(full(node, NEIGHBOUR))),
                (&others, at(full(node, OTHER))),
            ])?;
            let free = network.join(&[
                (&host, at(free(node, NODE)).sending(FREE)),
                (&others, at(free(node, OTHER))),
            ])?;
            let origin = host.namespace().run(|| TcpListener::bind(("127.0.0.1", 8000)))??;
            Origin::behind(origin)?;
            let config = dir.join(format!("node-{node}.toml"));
            fs::write(
                &config,
                format!(
                    "name = \"n{node}\"\n[runtime]\nthreads = 1\n[log]\naccess = \"off\"\n\
                     [admin]\nlisten = \"{ADMIN}\"\n[[listen]]\naddress = \"0.0.0.0:80\"\n{setting}\
                     [[site]]\nhosts = \"*\"\norigin = \"http://127.0.0.1:8000\"\n"
                ),
            )?;
            let mut command = Command::new(levada);
            let log = File::create(dir.join(format!("node-{node}.log")))?;
            command.args(["--log-level", "levada_access=debug", "run", "-c"]).arg(&config);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            nodes.push(host.start(command)?);
            let begun = Instant::now();
            while live.namespace().run(|| TcpStream::connect(self::full(node, NODE)))?.is_err() {
                if begun.elapsed() > Duration::from_secs(30) {
                    return Err(format!("node {node} does not start").into());
                }
                thread::sleep(COUNT_INTERVAL);
            }
            hosts.push(host);
            links.push(Link { full, free });
        }
        Ok(Self { nodes, hosts, live, neighbours, others, links, _network: network })
    }

    /// The sum of a metric over all nodes.
    fn metric(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for host in &self.hosts {
            let mut stream = host.namespace().run(|| TcpStream::connect(ADMIN))??;
            write!(
                stream,
                "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )?;
            let mut page = String::new();
            stream.read_to_string(&mut page)?;
            let value = |line: &str| line.strip_prefix(name)?.trim().parse::<u64>().ok();
            sum += page.lines().find_map(value).unwrap_or(0);
        }
        Ok(sum)
    }

    /// Percent of the packets to clients for which the full links' queues had no room.
    fn lost(&self) -> f64 {
        let (mut lost, mut sent) = (0, 0);
        for Link { full, .. } in &self.links {
            lost += full.up(0).overflowed.load(Relaxed);
            sent += full.up(0).packets.load(Relaxed);
        }
        100.0 * lost as f64 / sent.max(1) as f64
    }

    /// Waits until no node has data any more for the clients at these addresses, and says how long each
    /// connection stayed.
    fn gone(&self, kinds: &[&dyn Fn(usize) -> SocketAddr]) -> Vec<Gone> {
        let begun = Instant::now();
        let mut stayed: Vec<HashMap<(usize, u16), Duration>> = vec![HashMap::new(); kinds.len()];
        loop {
            let now = begun.elapsed();
            let mut left = 0;
            for (node, program) in self.nodes.iter().enumerate() {
                let owing = owing(program);
                for (address, stayed) in kinds.iter().zip(&mut stayed) {
                    let of_kind = owing.iter().filter(|(ip, _)| *ip == address(node).ip());
                    for (_, port) in of_kind {
                        left += 1;
                        stayed.insert((node, *port), now);
                    }
                }
            }
            if left == 0 || now > LONGEST {
                return stayed.into_iter().map(|stayed| Gone::of(stayed.into_values())).collect();
            }
            thread::sleep(COUNT_INTERVAL);
        }
    }
}

/// The clients for which the kernel of a node has data that they have not acknowledged.
fn owing(node: &Child) -> Vec<(std::net::IpAddr, u16)> {
    let table = fs::read_to_string(format!("/proc/{}/net/tcp", node.process.id()));
    let read = |line: &str| {
        let mut fields = line.split_whitespace().skip(2);
        let (address, port) = fields.next()?.split_once(':')?;
        let (unsent, _) = fields.nth(1)?.split_once(':')?;
        let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
        let owes = u64::from_str_radix(unsent, 16).ok()? > 0;
        owes.then_some((Ipv4Addr::from(address).into(), u16::from_str_radix(port, 16).ok()?))
    };
    table.unwrap_or_default().lines().skip(1).filter_map(read).collect()
}

/// How long connections stayed, in seconds, sorted.
struct Gone(Vec<f64>);

impl Gone {
    fn of(stayed: impl Iterator<Item = Duration>) -> Self {
        let mut stayed: Vec<_> = stayed.map(|time| time.as_secs_f64()).collect();
        stayed.sort_by(f64::total_cmp);
        Self(stayed)
    }

    fn print(&self, name: &str) {
        let Self(stayed) = self;
        let at = |part: usize| stayed.get((stayed.len() * part / 100).min(stayed.len().max(1) - 1));
        let second = |part| at(part).copied().unwrap_or(0.0);
        let late = stayed.iter().filter(|time| **time > 3.0).count();
        println!(
            "  {name}: {} connections, half gone after {:.1} s, all after {:.1} s, {late} after more than 3 s",
            stayed.len(),
            second(50),
            second(100)
        );
    }
}
