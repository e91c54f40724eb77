//! WWW'09 Sec. 5: the state that vanishing clients leave at a node, and its lifetime.
//!
//! The acknowledgements of thousands of downloads stop at one moment, as after a route has moved; another
//! download, over its own link, continues. The thousands receive objects that grow at their origin, a
//! piece every second: each client has data to acknowledge, and the emulating machine is not overloaded.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use levada_net::{
    lab::{Access, Child, Host, Network, allow_files},
    wire::{Shape, Wire},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::sender::{self, Sender};
use levada_client::command::{CommandStatus, admin_client};
use levada_testbed::cluster::{on_host, resident};

use crate::args::anycast::VanishingArgs;

/// Makes the clients vanish, and measures the state that remains.
///
/// # Errors
/// If the network, or that many connections, cannot be created.
pub(super) fn run(args: &VanishingArgs) -> anyhow::Result<CommandStatus> {
    let needed = args.clients as u64 + SPARE;
    allow_files(needed).with_context(|| format!("{needed} files cannot be open at once"))?;
    let directory = tempfile::tempdir().context("no room for a configuration")?;
    let world = VanishingWorld::new(args, directory.path())?;
    let _origin = world.origin()?;
    let node = world.node(args, directory.path())?;
    let (over, received) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let other = scope.spawn(|| world.other(&over, &received));
        let measured = measure(args, &world, &node, &received);
        over.store(true, Relaxed);
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        report(args, &measured?)
    })
}

struct VanishingWorld {
    node: Host,
    clients: Host,
    other: Host,
    /// Links to the clients, and to the one that stays.
    wires: [Wire; 2],
    _network: Network,
}

/// The measurements.
struct Measured {
    /// Time from the clients' vanishing until the node has no state of them.
    gone: Duration,
    /// Time until the node has the state of half of them.
    half: Duration,
    /// Number of connections given up as dormant.
    dormant: u64,
    /// Memory of the node's process: without clients, with all clients, and after they are gone.
    memory: [u64; 3],
    /// Connections in the node's kernel when the clients are gone.
    left: u64,
    /// Bytes per second of the remaining transfer, before and after the moment.
    other: [f64; 2],
    /// The longest time without data for it afterwards.
    silence: Duration,
}

fn measure(
    args: &VanishingArgs,
    world: &VanishingWorld,
    node: &Child,
    received: &AtomicU64,
) -> anyhow::Result<Measured> {
    let empty = memory(node)?;
    let mut streams = Vec::new();
    while streams.len() < args.clients {
        streams.extend(world.vanishing(AT_ONCE.min(args.clients - streams.len()))?);
        let connecting = Instant::now();
        loop {
            let count = world.connections()?;
            if count >= streams.len() as u64 {
                break;
            }
            let (wanted, patient) = (streams.len(), connecting.elapsed() < STEP_TIMEOUT);
            ensure!(patient, "the node has {count} of {wanted} connections");
            thread::sleep(CHECK_INTERVAL);
        }
    }
    // Each client sends a request and receives data.
    thread::sleep(4 * PIECE_EVERY);
    let full = memory(node)?;
    let rate = |since: (Instant, u64)| {
        (received.load(Relaxed) - since.1) as f64 / since.0.elapsed().as_secs_f64()
    };
    let mark = (Instant::now(), received.load(Relaxed));
    thread::sleep(WHILE);
    let undisturbed = rate(mark);

    world.wires[0].up(1).cut(true);
    let began = Instant::now();
    let (mut half, mut silence, mut moved) = (None, Duration::ZERO, (began, 0));
    let mark = (began, received.load(Relaxed));
    let gone = loop {
        let now = received.load(Relaxed);
        silence = silence.max(moved.0.elapsed());
        if now != moved.1 {
            moved = (Instant::now(), now);
        }
        let left = world.connections()?;
        if half.is_none() && left <= args.clients as u64 / 2 {
            half = Some(began.elapsed());
        }
        if left <= STAYING {
            break began.elapsed();
        }
        if began.elapsed() > STEP_TIMEOUT {
            bail!("{left} connections are left after {STEP_TIMEOUT:?}");
        }
        thread::sleep(CHECK_INTERVAL);
    };
    drop(streams);
    while mark.0.elapsed() < WHILE {
        thread::sleep(CHECK_INTERVAL);
    }
    Ok(Measured {
        gone,
        half: half.unwrap_or(gone),
        dormant: world.dormant()?,
        memory: [empty, full, memory(node)?],
        left: world.kernel()?,
        other: [undisturbed, rate(mark)],
        silence,
    })
}

impl VanishingWorld {
    fn new(args: &VanishingArgs, directory: &std::path::Path) -> anyhow::Result<Self> {
        let mut network = Network::new(args.every.seed);
        let (node, clients) = (network.host("node")?, network.host("clients")?);
        let other = network.host("other")?;
        let shape = Shape { rate: Some(args.rate * 8), ..Shape::default() }.checked()?;
        let wires = [
            network.join(&[
                (&node, Access::at(NODE)),
                (&clients, Access::at(Ipv4Addr::new(10, 0, 0, 2))),
            ])?,
            network.join(&[
                (&node, Access::at(BESIDE).sending(shape)),
                (&other, Access::at(Ipv4Addr::new(10, 0, 1, 2))),
            ])?,
        ];
        clients.set("net.ipv4.ip_local_port_range", "1024 65535")?;
        fs::write(
            directory.join("levada.toml"),
            format!(
                "name = \"a\"\n[[listen]]\naddress = \"0.0.0.0:80\"\n[admin]\nlisten = \"{ADMIN}\"\n\
                 [log]\naccess = \"off\"\n[limits]\nconnections = {connections}\ncapacity = {connections}\n\
                 send_timeout = \"1h\"\n[[site]]\nhosts = \"other\"\norigin = \"http://127.0.0.1:8000\"\n\
                 default_ttl = \"1h\"\n[[site]]\nhosts = \"live\"\norigin = \"http://127.0.0.1:8001\"\n\
                 default_ttl = \"1h\"\n",
                // All clients have one address, which may hold half of the connections.
                connections = 2 * (args.clients + 100)
            ),
        )?;
        Ok(Self { node, clients, other, wires, _network: network })
    }

    fn origin(&self) -> anyhow::Result<tokio::runtime::Runtime> {
        let listener = sender::listen(&self.node, Ipv4Addr::LOCALHOST, 8000)?;
        let live = sender::listen(&self.node, Ipv4Addr::LOCALHOST, 8001)?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let guard = runtime.enter();
        let sender = std::sync::Arc::new(Sender::new(FILE));
        runtime.spawn(sender.serve(TcpListener::from_std(listener)?));
        runtime.spawn(grow(TcpListener::from_std(live)?));
        drop(guard);
        Ok(runtime)
    }

    fn node(&self, args: &VanishingArgs, directory: &std::path::Path) -> anyhow::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["run", "--log-level", "error", "-c"]).arg(directory.join("levada.toml"));
        command.stdin(Stdio::null());
        let child = self.node.start(command)?;
        let began = Instant::now();
        while self.connect(&self.other, BESIDE).is_err() {
            ensure!(
                began.elapsed() < STEP_TIMEOUT,
                "the node of {} clients does not start",
                args.clients
            );
            thread::sleep(CHECK_INTERVAL);
        }
        Ok(child)
    }

    fn connect(&self, host: &Host, address: Ipv4Addr) -> io::Result<TcpStream> {
        host.namespace().run(|| TcpStream::connect(SocketAddr::from((address, 80))))?
    }

    /// Clients in the middle of their downloads. The data waits in their socket buffers.
    fn vanishing(&self, count: usize) -> anyhow::Result<Vec<TcpStream>> {
        let streams = self.clients.namespace().run(|| {
            let connect = |number: usize| {
                let socket = socket2::Socket::new(
                    socket2::Domain::IPV4,
                    socket2::Type::STREAM,
                    Some(socket2::Protocol::TCP),
                )?;
                socket.connect(&SocketAddr::from((NODE, 80)).into())?;
                let mut stream: TcpStream = socket.into();
                let object = number % OBJECTS;
                write!(stream, "GET /{object} HTTP/1.1\r\nHost: live\r\n\r\n")?;
                Ok(stream)
            };
            (0..count).map(connect).collect::<io::Result<Vec<_>>>()
        })?;
        streams.context("the clients cannot connect")
    }

    /// Downloads one after the other, over the other link.
    fn other(&self, over: &AtomicBool, received: &AtomicU64) -> anyhow::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        while !over.load(Relaxed) {
            let mut stream = self.connect(&self.other, BESIDE)?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n")?;
            while !over.load(Relaxed) {
                let count = stream.read(&mut buffer)?;
                received.fetch_add(count as u64, Relaxed);
                if count == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn metric(&self, name: &str) -> anyhow::Result<u64> {
        let admin: SocketAddr = ADMIN.parse()?;
        let asked = || admin_client::metric(admin, name, STEP_TIMEOUT);
        on_host(&self.node, asked).map(|value| value as u64)
    }

    /// Connections that the node has.
    fn connections(&self) -> anyhow::Result<u64> {
        self.metric("levada_connections ")
    }

    fn dormant(&self) -> anyhow::Result<u64> {
        self.metric("levada_connections_ended_total{reason=\"dormant\"} ")
    }

    /// Connections to clients in the kernel of the node's host, in any state.
    fn kernel(&self) -> anyhow::Result<u64> {
        let table =
            self.node.namespace().run(|| fs::read_to_string("/proc/thread-self/net/tcp"))??;
        let own = format!("{:08X}:0050", u32::from_ne_bytes(NODE.octets()));
        let is_ours = |line: &&str| line.split_whitespace().nth(1) == Some(&*own);
        Ok(table.lines().filter(is_ours).count() as u64)
    }
}

/// Serves an object that takes an hour, piece by piece.
async fn grow(listener: TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let pieces = 3600 * 1000 / PIECE_EVERY.as_millis() as usize;
            let whole = pieces * PIECE;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {whole}\r\n\r\n");
            let mut asked = [0; 256];
            let length = stream.read(&mut asked).await?;
            let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
            let number = asked.strip_prefix("GET /").and_then(|rest| rest.split(' ').next());
            let number: u32 = number.and_then(|number| number.parse().ok()).unwrap_or_default();
            stream.write_all(head.as_bytes()).await?;
            tokio::time::sleep(number * PIECE_EVERY / OBJECTS as u32).await;
            for _ in 0..pieces {
                stream.write_all(&[7; PIECE]).await?;
                tokio::time::sleep(PIECE_EVERY).await;
            }
            io::Result::Ok(())
        });
    }
}

/// Bytes of the node in memory.
fn memory(node: &Child) -> anyhow::Result<u64> {
    resident(node.process.id(), "VmRSS:").context("the node is gone")
}

fn report(args: &VanishingArgs, measured: &Measured) -> anyhow::Result<CommandStatus> {
    let Measured { gone, half, dormant, memory, left, other, silence } = measured;
    let holds = gone.as_secs_f64() <= MOST && *left == 0;
    let mut out = io::stdout().lock();
    if args.every.json {
        let report = json!({ "clients": args.clients, "gone_seconds": gone.as_secs_f64(),
            "half_gone_seconds": half.as_secs_f64(), "given_up": dormant, "kernel_left": left,
            "memory_bytes": memory, "other_bytes_per_second": other,
            "other_longest_silence_seconds": silence.as_secs_f64() });
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        let seconds = Duration::as_secs_f64;
        let [empty, full, after] = memory.map(|bytes| bytes >> 20);
        writeln!(out, "{} clients vanished in the middle of their downloads", args.clients)?;
        writeln!(
            out,
            "half of them gone after {:.2} s, all after {:.2} s",
            seconds(half),
            seconds(gone)
        )?;
        writeln!(out, "{dormant} were given up as dormant; the kernel has {left} of them left")?;
        writeln!(
            out,
            "memory of the node: {empty} MiB, {full} MiB with them, {after} MiB afterwards"
        )?;
        writeln!(
            out,
            "another transfer: {:.1} Mbit/s before, {:.1} after, at most {:.0} ms without a byte",
            other[0] * 8.0 / 1e6,
            other[1] * 8.0 / 1e6,
            seconds(silence) * 1e3
        )?;
        let verdict = if holds { "holds" } else { "does not hold" };
        writeln!(out, "nothing is left after {MOST} s: {verdict}")?;
    }
    Ok(CommandStatus::of(holds))
}

/// Time of the paper's one retry, doubled.
const MOST: f64 = 2.0;
/// The timeout for each step of the lab: hundreds of clients connect through a narrow link.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const PIECE_EVERY: Duration = Duration::from_secs(1);
/// Objects that grow in turn.
const OBJECTS: usize = 100;
const PIECE: usize = 200;
/// The interval of checks whether a step is done; it is short against the times that are measured.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Length of the measurement of the other transfer.
const WHILE: Duration = Duration::from_secs(3);
/// Clients that connect at once: fewer than the system's backlog.
const AT_ONCE: usize = 1000;
/// Port of the other transfer.
const STAYING: u64 = 2;
/// Other open files: two for each of the node's connections are in another process.
const SPARE: u64 = 1000;
const FILE: u64 = 16 << 20;
const NODE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const BESIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const ADMIN: &str = "127.0.0.1:9180";
