//! Downloads while a route flips: `levada get` compared with wget, aria2c and curl, from two nodes that
//! share an address.
//!
//! ```text
//!                                             ┌── node a ─┐
//!   client ── 10 Mbit/s, 20 ms ── router ─────┤           ├── 10.99.0.1
//!                      the route, every second└── node b ─┘
//! ```
//!
//! `cargo run --release -p levada-bench --bin flips -- [--every SECONDS] [--rounds N] [--size MB]`, as root: hosts
//! are network namespaces. Programs take turns, one download at a time, first while the route stays and then while
//! it moves. Every copy is compared byte by byte. The nodes and `levada get` are the binary next to this program,
//! or what LEVADA names; programs that are not installed are left out.

use std::{
    error::Error,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use levada_net::{
    lab::{Access, Child, Host, Network},
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

/// A program, and the words after its name, with FILE and URL in their places.
struct Program {
    name: &'static str,
    /// `None` is the binary that is measured.
    program: Option<&'static str>,
    words: &'static [&'static str],
}

/// As users run them first, and with options that let them try as often as it takes.
const PROGRAMS: &[Program] = &[
    Program { name: "levada get", program: None, words: &["get", "-q", "-o", "FILE", "URL"] },
    Program { name: "wget", program: Some("wget"), words: &["-q", "-O", "FILE", "URL"] },
    Program {
        name: "wget, tries without end",
        program: Some("wget"),
        words: &["-q", "-t", "0", "--waitretry=0", "--retry-connrefused", "-O", "FILE", "URL"],
    },
    Program {
        name: "aria2c",
        program: Some("aria2c"),
        words: &["--no-conf", "-q", "--file-allocation=none", "-d", "/", "-o", "FILE", "URL"],
    },
    Program {
        name: "aria2c, tries without end",
        program: Some("aria2c"),
        words: &[
            "--no-conf",
            "-q",
            "-m",
            "0",
            "--file-allocation=none",
            "-d",
            "/",
            "-o",
            "FILE",
            "URL",
        ],
    },
    Program { name: "curl", program: Some("curl"), words: &["-q", "-sSf", "-o", "FILE", "URL"] },
    Program {
        name: "curl, tries and resumes",
        program: Some("curl"),
        words: &[
            "-q",
            "-sf",
            "--retry",
            "1000",
            "--retry-all-errors",
            "--retry-delay",
            "1",
            "-C",
            "-",
            "-o",
            "FILE",
            "URL",
        ],
    },
];

struct Options {
    every: f64,
    rounds: usize,
    megabytes: u64,
}

fn main() -> Result<()> {
    let mut options = Options { every: 1.0, rounds: 3, megabytes: 10 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} wants a number"))?;
        match word.as_str() {
            "--every" => options.every = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--size" => options.megabytes = value.parse()?,
            _ => return Err(format!("no option {word:?}; see the head of this program").into()),
        }
    }
    levada_net::lab::possible()?;
    let levada = match std::env::var_os("LEVADA") {
        Some(path) => fs::canonicalize(path)?,
        None => std::env::current_exe()?.with_file_name("levada"),
    };
    let dir = std::env::temp_dir().join(format!("levada-flips-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let outcome = measure(&options, &levada, &dir);
    fs::remove_dir_all(&dir)?;
    outcome
}

/// A download: whether the copy is whole, its time, and what the nodes sent for it relative to its size.
struct Download {
    whole: bool,
    seconds: f64,
    sent: f64,
}

fn measure(options: &Options, levada: &Path, dir: &Path) -> Result<()> {
    let world = World::new(levada, dir)?;
    let size = options.megabytes * 1_000_000;
    let all = programs();
    let mut taken: Vec<[Vec<Download>; 2]> = all.iter().map(|_| Default::default()).collect();
    for flips in [false, true] {
        let (over, moves) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| -> Result<()> {
            let flipping = scope.spawn(|| {
                let flip = || -> std::result::Result<(), String> {
                    while flips && !over.load(Relaxed) {
                        thread::sleep(Duration::from_secs_f64(options.every));
                        let node = 1 + moves.fetch_add(1, Relaxed) % 2;
                        world.lead_to(node as u8).map_err(|why| why.to_string())?;
                    }
                    Ok(())
                };
                flip()
            });
            let mut run = || -> Result<()> {
                for _ in 0..options.rounds {
                    for (program, taken) in all.iter().zip(&mut taken) {
                        taken[usize::from(flips)].push(world.download(program, size)?);
                    }
                }
                Ok(())
            };
            let outcome = run();
            over.store(true, Relaxed);
            flipping.join().map_err(|_| "the router panicked")??;
            outcome
        })?;
    }
    println!(
        "{} MB, {} downloads each; the route moves every {} s. Seconds are medians [least to most]",
        options.megabytes, options.rounds, options.every
    );
    println!(
        "{:<28}{:>22}{:>8}{:>24}{:>8}{:>8}",
        "", "seconds, still", "whole", "seconds, flips", "whole", "sent"
    );
    for (program, [still, flips]) in all.iter().zip(&taken) {
        let whole = |all: &[Download]| {
            format!("{}/{}", all.iter().filter(|one| one.whole).count(), all.len())
        };
        println!(
            "{:<28}{:>22}{:>8}{:>24}{:>8}{:>8.2}",
            program.name,
            seconds(still),
            whole(still),
            seconds(flips),
            whole(flips),
            median(flips.iter().map(|one| one.sent).collect())
        );
    }
    Ok(())
}

fn programs() -> Vec<&'static Program> {
    let runs = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let is_there = |one: &&Program| {
        let there = one.program.is_none_or(runs);
        if !there {
            eprintln!("{} is not installed, left out", one.name);
        }
        there
    };
    PROGRAMS.iter().filter(is_there).collect()
}

fn seconds(all: &[Download]) -> String {
    let mut taken: Vec<_> = all.iter().map(|one| one.seconds).collect();
    taken.sort_by(f64::total_cmp);
    let [Some(least), Some(most)] = [taken.first(), taken.last()] else { return "-".to_owned() };
    format!("{:.1} [{least:.1} to {most:.1}]", median(taken.clone()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct World {
    // Programs go before their hosts, and those before the wires.
    _nodes: Vec<Child>,
    client: Host,
    router: Host,
    levada: PathBuf,
    dir: PathBuf,
    pattern: Pattern,
    wires: Vec<Wire>,
    _hosts: Vec<Host>,
    _network: Network,
}

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The client's link, and the queue of the papers' dummynet before it.
const LINK: Shape = Shape {
    rate: Some(10_000_000),
    delay: Duration::from_millis(10),
    loss: 0.0,
    reordering: 0.0,
    duplicates: 0.0,
    queue: 50,
};
/// A download that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(60);

impl World {
    fn new(levada: &Path, dir: &Path) -> Result<Self> {
        let mut network = Network::new(1);
        let (client, router) = (network.host("client")?, network.host("router")?);
        let hosts = vec![network.host("node a")?, network.host("node b")?];
        let end = |net: u8, end: u8| Ipv4Addr::new(10, 0, net, end);
        let mut wires = Vec::new();
        for (net, host) in (0..).zip([&client, &hosts[0], &hosts[1]]) {
            let mut far = Access::at(end(net, 2));
            if net == 0 {
                far = far.sending(LINK).receiving(LINK);
            }
            let near = Access { router: true, ..Access::at(end(net, 1)) };
            wires.push(network.join(&[(host, far), (&router, near)])?);
            host.ip(&[&format!("route add default via 10.0.{net}.1")])?;
        }
        router.forward()?;
        let mut nodes = Vec::new();
        for (host, name) in hosts.iter().zip(["a", "b"]) {
            host.ip(&[&format!("addr add {ADDRESS}/32 dev lo")])?;
            let origin = host.namespace().run(|| TcpListener::bind(("127.0.0.1", 8000)))??;
            Origin::behind(origin)?;
            let config = dir.join(format!("{name}.toml"));
            fs::write(
                &config,
                format!(
                    "name = \"{name}\"\n[runtime]\nthreads = 1\n[log]\naccess = \"off\"\n\
                     [[listen]]\naddress = \"{ADDRESS}:80\"\n[[site]]\nhosts = \"*\"\n\
                     origin = \"http://127.0.0.1:8000\"\n"
                ),
            )?;
            let mut command = Command::new(levada);
            command.args(["--log-level", "error", "run", "-c"]).arg(config).stdin(Stdio::null());
            nodes.push(host.start(command)?);
            let (begun, at) = (Instant::now(), SocketAddr::new(IpAddr::V4(ADDRESS), 80));
            while host.namespace().run(|| TcpStream::connect(at))?.is_err() {
                if begun.elapsed() > Duration::from_secs(30) {
                    return Err(format!("node {name} does not start").into());
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        let world = Self {
            _nodes: nodes,
            client,
            router,
            levada: levada.to_owned(),
            dir: dir.to_owned(),
            pattern: Pattern::default(),
            wires,
            _hosts: hosts,
            _network: network,
        };
        world.lead_to(1)?;
        Ok(world)
    }

    /// Moves the route.
    fn lead_to(&self, node: u8) -> Result<()> {
        Ok(self.router.ip(&[&format!("route replace {ADDRESS}/32 via 10.0.{node}.2")])?)
    }

    fn download(&self, program: &Program, size: u64) -> Result<Download> {
        let file = self.dir.join("copy");
        let url = format!("http://{ADDRESS}/{size}/file");
        let mut command = Command::new(program.program.map_or(self.levada.as_path(), Path::new));
        command.args(program.words.iter().map(|word| match *word {
            "FILE" => file.display().to_string().trim_start_matches('/').to_owned(),
            "URL" => url.clone(),
            word => word.to_owned(),
        }));
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let sent =
            || self.wires[1..].iter().map(|wire| wire.up(0).bytes.load(Relaxed)).sum::<u64>();
        let (before, begun) = (sent(), Instant::now());
        let mut child = self.client.start(command)?;
        let ended = loop {
            if let Some(status) = child.process.try_wait()? {
                break status.success();
            }
            if begun.elapsed() > LONGEST {
                break false;
            }
            thread::sleep(Duration::from_millis(10));
        };
        let seconds = begun.elapsed().as_secs_f64();
        drop(child);
        let whole = ended && self.is_whole(&file, size)?;
        for left in fs::read_dir(&self.dir)?.filter_map(std::result::Result::ok) {
            if left.file_name().to_string_lossy().starts_with("copy") {
                fs::remove_file(left.path())?;
            }
        }
        Ok(Download { whole, seconds, sent: (sent() - before) as f64 / size as f64 })
    }

    fn is_whole(&self, file: &Path, size: u64) -> Result<bool> {
        let copy = fs::read(file)?;
        Ok(copy.len() as u64 == size && self.pattern.holds(0, &copy))
    }
}
