//! The emulated network: an origin, eight nodes, and a host for the clients, on one switch.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use levada_net::{
    lab::{Access, Child, Host, Network},
    wire::{Shape, Wire},
};

use crate::{
    Bench, Result,
    client::{self, Url, Way},
    origin::Origin,
    pattern::Pattern,
};

pub(crate) const NODES: usize = 8;
const ORIGIN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 21, 0, 1));
const CLIENTS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 21, 0, 100));
const ORIGIN_PORT: u16 = 8000;
const CLIENT_PORT: u16 = 80;
const PEER_PORT: u16 = 7070;
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);

/// How much slower the slow node is.
pub(crate) const SLOWER: u32 = 20;
/// One way from a node or a client to the switch: 20 ms from one to another and back.
const DELAY: Duration = Duration::from_millis(5);
/// Packets: more than what is under way at 50 Mbit/s in 40 ms.
const QUEUE: usize = 250;

/// Of sites that do not say otherwise: above the largest piece of the sweep.
pub(crate) const THRESHOLD: u64 = 1_100_000;

/// The links of the origin and of each node, the same in both directions.
#[derive(Clone, Copy)]
pub(crate) struct Links {
    /// Bits per second.
    pub(crate) origin: u64,
    pub(crate) node: u64,
    /// One way from the origin to the switch.
    pub(crate) origin_delay: Duration,
}

impl Default for Links {
    /// 40 ms from the origin to anybody and back.
    fn default() -> Self {
        let origin_delay = Duration::from_millis(15);
        Self { origin: 50_000_000, node: 100_000_000, origin_delay }
    }
}

/// A site: how large files are fetched that are asked for by this host name.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) host: String,
    /// From how many bytes on files are fetched in pieces.
    pub(crate) threshold: u64,
    /// Further keys of its `large` table.
    pub(crate) large: String,
}

/// The site with the defaults, but with a threshold that lets smaller files do, and one copy of each
/// piece.
pub(crate) fn default_site() -> Site {
    Site { host: "default.test".to_owned(), threshold: THRESHOLD, large: String::new() }
}

pub(crate) struct World {
    // Programs go before their hosts, and those before the wire.
    nodes: Mutex<Vec<Option<Child>>>,
    hosts: Vec<Host>,
    clients: Host,
    wire: Wire,
    _network: Network,
    _origin_host: Host,
    origin: Origin,
    pattern: Pattern,
    logs: Vec<PathBuf>,
}

/// The result of one fetch, or of many at once.
pub(crate) struct Outcome {
    /// Mbit/s of each client.
    pub(crate) rates: Vec<f64>,
    /// Why clients failed.
    pub(crate) failed: Vec<String>,
    /// Requests that the origin got.
    pub(crate) requests: u64,
    /// From the first request to the last byte.
    pub(crate) took: Duration,
    /// Bytes of bodies that the origin wrote, and bytes that left it over the wire.
    pub(crate) origin_bytes: u64,
    pub(crate) origin_wire: u64,
    /// Bytes by which each node had grown at its highest.
    pub(crate) growth: Vec<f64>,
    pub(crate) counts: Counts,
}

/// Sums of the nodes' metrics.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) late: f64,
    pub(crate) failed: f64,
    pub(crate) hedges: f64,
    pub(crate) left_out: f64,
}

impl Outcome {
    pub(crate) fn mean(&self) -> f64 {
        self.rates.iter().sum::<f64>() / self.rates.len() as f64
    }

    pub(crate) fn min(&self) -> f64 {
        self.rates.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

impl World {
    /// Starts everything.
    pub(crate) fn new(bench: &Bench, sites: &[Site]) -> Result<Self> {
        Self::over(bench, sites, Links::default())
    }

    /// The same over other links.
    pub(crate) fn over(bench: &Bench, sites: &[Site], links: Links) -> Result<Self> {
        let mut network = Network::new(1);
        let origin_host = network.host("origin")?;
        let clients = network.host("clients")?;
        let hosts: Vec<_> = (0..NODES)
            .map(|node| network.host(&format!("node {node}")))
            .collect::<std::result::Result<_, _>>()?;
        let shape = |rate, delay| Shape { rate, delay, queue: QUEUE, ..Shape::default() };
        let access = |address, shape: Shape| Access::at(address).sending(shape).receiving(shape);
        let origin = access(ORIGIN, shape(Some(links.origin), links.origin_delay));
        let mut ends =
            vec![(&origin_host, origin), (&clients, access(CLIENTS, shape(None, DELAY)))];
        for (node, host) in hosts.iter().enumerate() {
            ends.push((host, access(address(node), shape(Some(links.node), DELAY))));
        }
        let wire = network.join(&ends)?;
        let listener =
            origin_host.namespace().run(|| TcpListener::bind((ORIGIN, ORIGIN_PORT)))??;
        let logs = bench.logs.as_ref().unwrap_or(&bench.dir);
        let world = Self {
            nodes: Mutex::default(),
            hosts,
            clients,
            wire,
            _network: network,
            _origin_host: origin_host,
            origin: Origin::behind(listener)?,
            pattern: Pattern::default(),
            logs: (0..NODES).map(|node| logs.join(format!("node-{node}.log"))).collect(),
        };
        for (node, host) in world.hosts.iter().enumerate() {
            let dir = bench.dir.join(format!("node-{node}"));
            fs::create_dir_all(&dir)?;
            let config = dir.join("levada.toml");
            fs::write(&config, configuration(node, sites)?)?;
            let log = File::options().create(true).append(true).open(&world.logs[node])?;
            let mut command = Command::new(&bench.levada);
            let level = if bench.logs.is_some() { "debug" } else { "info" };
            command.args(["--log-level", level, "run", "-c"]).arg(&config);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            world.nodes().push(Some(host.start(command)?));
        }
        world.wait()?;
        Ok(world)
    }

    /// Until every node takes every other for healthy.
    fn wait(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        for node in 0..NODES {
            loop {
                let found = self.healthy_peers(node);
                if found.as_ref().is_ok_and(|up| *up == NODES - 1) {
                    break;
                }
                if Instant::now() > deadline {
                    let log = fs::read_to_string(&self.logs[node])?;
                    return Err(format!("node {node} has healthy peers: {found:?}\n{log}").into());
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Option<Child>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the nodes declared a server down so far, by their logs.
    pub(crate) fn declared_down(&self) -> usize {
        let logs = self.logs.iter().map(|log| fs::read_to_string(log).unwrap_or_default());
        logs.map(|log| {
            log.lines().filter(|line| line.contains(" WARN ") && line.contains("down")).count()
        })
        .sum()
    }

    /// How many peers a node takes for healthy.
    fn healthy_peers(&self, node: usize) -> Result<usize> {
        let page = self.admin(node, "/status")?;
        let (_, body) = page.split_once("\r\n\r\n").ok_or("no status")?;
        let status: serde_json::Value = serde_json::from_str(body)?;
        let peers = status["peers"].as_array().ok_or("no peers")?;
        // It takes itself for one.
        Ok(peers.iter().filter(|peer| peer["up"] == true).count().saturating_sub(1))
    }

    fn admin(&self, node: usize, path: &str) -> Result<String> {
        let mut stream = self.hosts[node].namespace().run(|| TcpStream::connect(ADMIN))??;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// The file by its origin's own address.
    pub(crate) fn at_origin(&self, size: u64, name: &str) -> Url {
        let server = SocketAddr::new(ORIGIN, ORIGIN_PORT);
        Url { server, host: "origin.test".to_owned(), size, name: name.to_owned() }
    }

    /// The file of a site as a node serves it.
    pub(crate) fn at_node(&self, node: usize, site: &str, size: u64, name: &str) -> Url {
        let server = SocketAddr::new(address(node % NODES), CLIENT_PORT);
        Url { server, host: site.to_owned(), size, name: name.to_owned() }
    }

    /// Gives the wire of a node a twentieth of its rate from now on.
    pub(crate) fn slow_down(&self, node: usize) {
        // The origin and the clients come first.
        self.wire.up(node + 2).slow_down(SLOWER);
        self.wire.down(node + 2).slow_down(SLOWER);
    }

    /// The same, and after a time a node is killed without a word.
    pub(crate) fn fetch_and_kill(
        &self,
        url: &Url,
        after: Duration,
        victim: usize,
    ) -> Result<Outcome> {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(after);
                drop(self.nodes()[victim].take());
            });
            self.fetch(std::slice::from_ref(url), Way::Plain)
        })
    }

    /// Fetches by one client for each URL, all at the same moment, and measures.
    pub(crate) fn fetch(&self, urls: &[Url], way: Way) -> Result<Outcome> {
        let fetched = self.fetch_as_far(urls, way)?;
        match fetched.failed.first() {
            Some(why) => Err(format!("{why}\n{}", self.logs()).into()),
            None => Ok(fetched),
        }
    }

    /// The same, and clients may fail.
    pub(crate) fn fetch_as_far(&self, urls: &[Url], way: Way) -> Result<Outcome> {
        self.measure(|| client::crowd(&self.clients, urls, way, &self.pattern), urls)
    }

    /// The last lines of the nodes' logs.
    fn logs(&self) -> String {
        let last = |log: &PathBuf| {
            let text = fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(20).map(str::to_owned).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        self.logs.iter().map(last).collect::<Vec<_>>().join("\n")
    }

    fn measure(
        &self,
        run: impl FnOnce() -> Result<Vec<std::result::Result<Duration, String>>>,
        urls: &[Url],
    ) -> Result<Outcome> {
        let requests = self.origin.requests();
        let counts = self.counts();
        let resident = self.memory(Memory::Now)?;
        let (bytes, wire) = (self.origin.bytes(), self.wire.up(0).bytes.load(Relaxed));
        let begun = Instant::now();
        let times = run()?;
        let took = begun.elapsed();
        let peak = self.memory(Memory::Peak)?;
        Ok(Outcome {
            rates: times
                .iter()
                .zip(urls)
                .filter_map(|(time, url)| {
                    Some(url.size as f64 * 8e-6 / time.as_ref().ok()?.as_secs_f64())
                })
                .collect(),
            failed: times.iter().filter_map(|time| time.clone().err()).collect(),
            requests: self.origin.requests() - requests,
            took,
            origin_bytes: self.origin.bytes() - bytes,
            origin_wire: self.wire.up(0).bytes.load(Relaxed) - wire,
            growth: peak
                .iter()
                .zip(&resident)
                .map(|(peak, before)| (peak - before).max(0.0))
                .collect(),
            counts: self.counts() - counts,
        })
    }

    /// Sums over all nodes that run.
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for page in (0..NODES).filter_map(|node| self.admin(node, "/metrics").ok()) {
            let total = |name: &str| -> f64 {
                let lines = page.lines().filter(|line| line.starts_with(name));
                lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
            };
            sum.late += total("levada_large_retries_total{reason=\"late\"");
            sum.failed += total("levada_large_retries_total{reason=\"failed\"");
            sum.hedges += total("levada_large_hedges_total");
            sum.left_out += total("levada_large_left_out_total");
        }
        sum
    }

    /// Resident bytes of each node that lives: now, from where a new peak is looked for; or that peak.
    fn memory(&self, what: Memory) -> Result<Vec<f64>> {
        let nodes = self.nodes();
        let pids = nodes.iter().map(|node| Some(node.as_ref()?.process.id()));
        pids.map(|pid| {
            let Some(pid) = pid else { return Ok(0.0) };
            if what == Memory::Now {
                fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
            }
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let name = if what == Memory::Now { "VmRSS:" } else { "VmHWM:" };
            let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or(name)?;
            Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
        })
        .collect()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Now,
    Peak,
}

impl std::ops::Sub for Counts {
    type Output = Self;

    /// The increase. A node that has stopped takes its counts with it, so no difference is negative.
    fn sub(self, before: Self) -> Self {
        Self {
            late: (self.late - before.late).max(0.0),
            failed: (self.failed - before.failed).max(0.0),
            hedges: (self.hedges - before.hedges).max(0.0),
            left_out: (self.left_out - before.left_out).max(0.0),
        }
    }
}

fn address(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 21, 0, 11 + node as u8))
}

fn configuration(node: usize, sites: &[Site]) -> Result<String> {
    let me = address(node);
    let mut text = format!(
        "name = \"n{node}\"\n[runtime]\nthreads = 1\n[log]\naccess = \"off\"\n\
         [admin]\nlisten = \"{ADMIN}\"\n[[listen]]\naddress = \"{me}:{CLIENT_PORT}\"\n\
         [peering]\nlisten = \"{me}:{PEER_PORT}\"\nsecret = \"no secret in this network\"\n"
    );
    for peer in 0..NODES {
        let address = address(peer);
        write!(text, "[[peer]]\nname = \"n{peer}\"\naddress = \"{address}:{PEER_PORT}\"\n")?;
    }
    for Site { host, threshold, large } in sites {
        // So many sites would have the origin answer probes all the time.
        write!(
            text,
            "[[site]]\nhosts = \"{host}\"\norigin = \"http://{ORIGIN}:{ORIGIN_PORT}\"\n\
             [site.health_check]\ninterval = \"0s\"\n\
             [site.large]\nenabled = true\nthreshold = \"{threshold}B\"\nreplicas = 1\n{large}"
        )?;
    }
    Ok(text)
}
