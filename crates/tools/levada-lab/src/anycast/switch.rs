//! A route that moves under running downloads: two nodes with one address, each with a BGP daemon that
//! its controller instructs.
//!
//! ```text
//!                                ┌── 10.0.1.2  node a, BIRD or ExaBGP ─┐
//!  clients ── 10.0.0.1  router ──┼── 10.0.2.2  node b, BIRD or ExaBGP ─┴ both 10.99.0.1
//!                  (BIRD)        └── 10.0.3.2  origin
//! ```

use std::{
    fs::{self, File},
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use levada_client::command::{CommandStatus, admin_client};
use levada_net::{
    lab::{Access, Child, Host, Network},
    wire::{Shape, Wire},
};
use levada_report::chart::{Axes, Curve, lines};
use levada_testbed::cluster::on_host;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;

use super::{
    draw, is_whole,
    sender::{self, Sender},
};
use crate::args::anycast::{Daemon, SwitchArgs};

/// Starts everything, moves the route, and checks the downloads.
///
/// # Errors
/// If the network cannot be created, or BIRD is missing.
pub(super) fn run(args: &SwitchArgs) -> anyhow::Result<CommandStatus> {
    let directory = tempfile::tempdir().context("no room for the downloads")?;
    let world = SwitchWorld::new(args, directory.path())?;
    let _origin = world.origin(args)?;
    let mut programs = vec![world.bird(&world.router, "router", &router_conf(args.daemon))?];
    for (index, node) in world.nodes.iter().enumerate() {
        programs.extend(world.node(node, index, args.daemon)?);
    }
    world.until_routed_to(0)?;
    let downloads = world.downloads(args)?;
    let over = AtomicBool::new(false);
    let (moves, outcomes, curves) = thread::scope(|scope| -> anyhow::Result<_> {
        let sampling = scope.spawn(|| world.sample(&over));
        let done = moves_and_outcomes(args, &world, downloads);
        over.store(true, Relaxed);
        let curves = sampling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (moves, outcomes) = done?;
        Ok((moves, outcomes, curves))
    })?;
    let [x, y] = ["seconds", "Mbit/s"].map(str::to_owned);
    let axes = Axes { x, y, ..Axes::default() };
    draw(&args.every, "A route that moves", lines("The rate of each node", &curves, &axes))?;
    report(args, &moves, &outcomes)
}

fn moves_and_outcomes(
    args: &SwitchArgs,
    world: &SwitchWorld<'_>,
    downloads: Vec<Download>,
) -> anyhow::Result<(Vec<Move>, Vec<Outcome>)> {
    let mut moves = Vec::new();
    for number in 0..args.moves {
        thread::sleep(args.pause);
        let undo = number % 2 == 1;
        moves.push(world.move_route(undo)?);
    }
    let outcomes = downloads.into_iter().map(|download| download.outcome(args.size.0));
    Ok((moves, outcomes.collect::<Result<Vec<_>, _>>()?))
}

struct SwitchWorld<'a> {
    directory: &'a Path,
    clients: Host,
    router: Host,
    nodes: [Host; 2],
    origin: Host,
    /// Links from the nodes to the router.
    wires: Vec<Wire>,
    _network: Network,
}

/// The route has moved.
struct Move {
    to: usize,
    /// Time from the command until the router sends packets the other way.
    routed: Duration,
    /// Time from the command until the other node sends data.
    first_byte: Duration,
}

impl<'a> SwitchWorld<'a> {
    fn new(args: &SwitchArgs, directory: &'a Path) -> anyhow::Result<Self> {
        let mut network = Network::new(args.every.seed);
        let (clients, router) = (network.host("clients")?, network.host("router")?);
        let nodes = [network.host("node a")?, network.host("node b")?];
        let origin = network.host("origin")?;
        let shape = Shape { rate: Some(args.rate * 8), delay: args.rtt / 2, ..Shape::default() };
        let mut wires = Vec::new();
        for (net, host) in [(1, &nodes[0]), (2, &nodes[1]), (3, &origin), (0, &clients)] {
            let shape = if net == 0 { shape.checked()? } else { Shape::default() };
            wires.push(network.join(&[
                (host, Access::at(Ipv4Addr::new(10, 0, net, 2)).sending(shape)),
                (&router, Access::at(Ipv4Addr::new(10, 0, net, 1)).sending(shape)),
            ])?);
            host.ip(&[&format!("route add default via 10.0.{net}.1")])?;
        }
        router.forward()?;
        for node in &nodes {
            node.ip(&[&format!("addr add {ADDRESS}/32 dev lo")])?;
        }
        Ok(Self { directory, clients, router, nodes, origin, wires, _network: network })
    }

    /// The origin of both nodes, for the lifetime of the runtime.
    fn origin(&self, args: &SwitchArgs) -> anyhow::Result<tokio::runtime::Runtime> {
        let listener = sender::listen(&self.origin, Ipv4Addr::UNSPECIFIED, 80)?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let guard = runtime.enter();
        runtime.spawn(Arc::new(Sender::new(args.size.0)).serve(TcpListener::from_std(listener)?));
        drop(guard);
        Ok(runtime)
    }

    fn bird(&self, host: &Host, name: &str, conf: &str) -> anyhow::Result<Child> {
        let file = self.file(&format!("{name}.conf"), conf)?;
        let mut command = Command::new("bird");
        command.arg("-f").arg("-c").arg(file).arg("-s").arg(self.socket(name));
        command.arg("-P").arg(self.directory.join(format!("{name}.pid")));
        self.start(host, command, name).context("install bird2")
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.ctl"))
    }

    fn file(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.directory.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Starts a program that logs to a file.
    fn start(&self, host: &Host, mut command: Command, name: &str) -> anyhow::Result<Child> {
        let log = File::create(self.directory.join(format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(host.start(command)?)
    }

    /// A node and its daemon.
    fn node(&self, host: &Host, index: usize, daemon: Daemon) -> anyhow::Result<Vec<Child>> {
        let (name, net) = (NAMES[index], index + 1);
        let (bird, levada) = (format!("bird-{name}"), std::env::current_exe()?);
        let route = match daemon {
            Daemon::Bird => {
                let socket = self.socket(&bird);
                format!("[route.bird]\nsocket = {socket:?}\nprotocol = \"levada\"\n")
            }
            Daemon::Exabgp => format!(
                "[route.exabgp]\nprefixes = [\"{ADDRESS}/32\"]\nattributes = \"next-hop self\"\n"
            ),
        };
        let conf = self.file(
            &format!("{name}.toml"),
            &format!(
                "name = \"{name}\"\n[[listen]]\naddress = \"{ADDRESS}:80\"\n[admin]\nlisten = \"{ADMIN}\"\n\
                 [log]\naccess = \"off\"\n[cache]\nmax_object = \"128MiB\"\n[[site]]\nhosts = \"*\"\n\
                 origin = \"http://10.0.3.2\"\ndefault_ttl = \"1h\"\n[route]\nsettle = \"200ms\"\n{route}"
            ),
        )?;
        let daemon = match daemon {
            Daemon::Bird => self.bird(host, &bird, &node_conf(net))?,
            Daemon::Exabgp => {
                let file = self.file(&format!("exabgp-{name}.conf"), &exabgp_conf(net, &levada))?;
                let mut command = Command::new("exabgp");
                command.env("exabgp.daemon.user", "root").env("exabgp.api.ack", "false");
                command.env("exabgp.daemon.drop", "false").env("exabgp.api.cli", "false");
                command.env("exabgp.log.destination", "stderr").arg(file);
                self.start(host, command, &format!("exabgp-{name}")).context("install exabgp")?
            }
        };
        let mut command = Command::new(levada);
        command.args(["run", "-c"]).arg(conf);
        Ok(vec![daemon, self.start(host, command, name)?])
    }

    /// The node to which the router sends packets, if any.
    fn routed_to(&self) -> anyhow::Result<Option<usize>> {
        let table =
            self.router.namespace().run(|| fs::read_to_string("/proc/thread-self/net/route"))??;
        let wanted = format!("{:08X}", u32::from_ne_bytes(ADDRESS.octets()));
        let gateway = table.lines().find_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            (fields.next()? == wanted).then(|| fields.next()).flatten()
        });
        let via = |node: &usize| {
            let gateway_of = Ipv4Addr::new(10, 0, *node as u8 + 1, 2).octets();
            gateway == Some(&*format!("{:08X}", u32::from_ne_bytes(gateway_of)))
        };
        Ok((0..2).find(via))
    }

    /// Waits until the route leads to this node; returns the time.
    fn until_routed_to(&self, node: usize) -> anyhow::Result<Duration> {
        let began = Instant::now();
        while self.routed_to()? != Some(node) {
            if began.elapsed() > STEP_TIMEOUT {
                for entry in fs::read_dir(self.directory)?.filter_map(Result::ok) {
                    let path = entry.path();
                    if path.extension().is_some_and(|end| end == "log") {
                        eprintln!("{}:\n{}", path.display(), fs::read_to_string(&path)?);
                    }
                }
                bail!("the router has no route to node {}", NAMES[node]);
            }
            thread::sleep(ROUTE_INTERVAL);
        }
        Ok(began.elapsed())
    }

    /// Drains the first node, or undoes it: all downloads move to the other node.
    fn move_route(&self, undo: bool) -> anyhow::Result<Move> {
        let to = usize::from(!undo);
        let (target, sent) = (if undo { "/drain?undo" } else { "/drain" }, self.wires[to].up(0));
        let before = sent.bytes.load(Relaxed);
        let began = Instant::now();
        thread::scope(|scope| {
            let order = scope.spawn(|| {
                on_host(&self.nodes[0], async || {
                    let (admin, nothing): (SocketAddr, _) = (ADMIN.parse()?, json!({}));
                    admin_client::post(admin, target, &nothing, None, STEP_TIMEOUT).await.map(drop)
                })
            });
            let routed = self.until_routed_to(to)?;
            // A limit above the traffic between the daemons.
            while sent.bytes.load(Relaxed) < before + A_FEW_PACKETS {
                ensure!(began.elapsed() < STEP_TIMEOUT, "no download came to the other node");
                thread::sleep(BYTE_INTERVAL);
            }
            let first_byte = began.elapsed();
            order.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(Move { to, routed, first_byte })
        })
    }

    /// The rate of each node over time.
    fn sample(&self, over: &AtomicBool) -> Vec<Curve> {
        let (began, mut points) = (Instant::now(), [Vec::new(), Vec::new()]);
        let sent = || [0, 1].map(|node: usize| self.wires[node].up(0).bytes.load(Relaxed));
        let mut before = sent();
        while !over.load(Relaxed) {
            thread::sleep(SAMPLE);
            let (now, at) = (sent(), began.elapsed().as_secs_f64());
            for (node, points) in points.iter_mut().enumerate() {
                let bits = (now[node] - before[node]) as f64 * 8.0;
                points.push((at, bits / SAMPLE.as_secs_f64() / 1e6));
            }
            before = now;
        }
        let names = NAMES.map(|name| format!("node {name}"));
        names.into_iter().zip(points).collect()
    }

    fn downloads(&self, args: &SwitchArgs) -> anyhow::Result<Vec<Download>> {
        let url = format!("http://{ADDRESS}/file");
        let mut downloads = Vec::new();
        for number in 0..args.downloads {
            for tool in TOOLS {
                let path = self.directory.join(format!("{}-{number}", tool.name.replace(' ', "-")));
                let program = match tool.program {
                    None => std::env::current_exe()?,
                    Some(program) => program.into(),
                };
                let mut command = Command::new(program);
                let target = path.display().to_string();
                command.args(tool.arguments.iter().map(|word| match *word {
                    "FILE" => target.clone(),
                    "NAME" => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                    "DIRECTORY" => self.directory.display().to_string(),
                    "URL" => url.clone(),
                    word => word.to_owned(),
                }));
                let log = format!("{}.log", path.file_name().unwrap_or_default().to_string_lossy());
                let report = self.directory.join(&log);
                let log = File::create(&report)?;
                command.stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
                // Programs that are not installed are left out.
                match self.clients.start(command) {
                    Ok(child) => downloads.push(Download { tool, child, path, report }),
                    Err(_) if tool.program.is_some() => eprintln!("{} is not installed", tool.name),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(downloads)
    }
}

struct Tool {
    name: &'static str,
    /// `None` is this program itself.
    program: Option<&'static str>,
    arguments: &'static [&'static str],
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "levada get",
        program: None,
        arguments: &["get", "-q", "--json", "-o", "FILE", "URL"],
    },
    Tool { name: "curl", program: Some("curl"), arguments: &["-sf", "-o", "FILE", "URL"] },
    Tool { name: "wget", program: Some("wget"), arguments: &["-q", "-O", "FILE", "URL"] },
    Tool {
        name: "aria2c",
        program: Some("aria2c"),
        arguments: &["-q", "--file-allocation=none", "-d", "DIRECTORY", "-o", "NAME", "URL"],
    },
];

struct Download {
    tool: &'static Tool,
    child: Child,
    path: PathBuf,
    report: PathBuf,
}

struct Outcome {
    tool: &'static str,
    whole: bool,
    /// Time between connections, as `levada get` reports it.
    lost: Option<f64>,
    connections: Option<u64>,
}

impl Download {
    fn outcome(mut self, size: u64) -> anyhow::Result<Outcome> {
        let status = self.child.wait()?;
        let whole = status.success() && is_whole(&self.path, size).unwrap_or(false);
        let report: Json = serde_json::from_slice(&fs::read(&self.report)?).unwrap_or_default();
        let file = &report["files"][0];
        Ok(Outcome {
            tool: self.tool.name,
            whole,
            lost: file["lost_seconds"].as_f64(),
            connections: file["connections_total"].as_u64(),
        })
    }
}

fn report(
    args: &SwitchArgs,
    moves: &[Move],
    outcomes: &[Outcome],
) -> anyhow::Result<CommandStatus> {
    let of = |tool: &'static str| outcomes.iter().filter(move |outcome| outcome.tool == tool);
    let failed = |tool| of(tool).filter(|outcome| !outcome.whole).count();
    let mut out = io::stdout().lock();
    if args.every.json {
        let moves: Vec<_> = moves
            .iter()
            .map(|moved| {
                json!({ "to": NAMES[moved.to], "routed_seconds": moved.routed.as_secs_f64(),
                    "first_byte_seconds": moved.first_byte.as_secs_f64() })
            })
            .collect();
        let tools: Vec<_> = TOOLS
            .iter()
            .map(|tool| {
                let lost: Vec<_> = of(tool.name).filter_map(|outcome| outcome.lost).collect();
                json!({ "tool": tool.name, "downloads": of(tool.name).count(),
                    "failed": failed(tool.name), "lost_seconds": lost })
            })
            .collect();
        let report = json!({ "moves": moves, "tools": tools });
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        for moved in moves {
            let millis = |time: Duration| time.as_secs_f64() * 1e3;
            writeln!(
                out,
                "route to node {}: {:.1} ms after the order; first data from there after {:.1} ms",
                NAMES[moved.to],
                millis(moved.routed),
                millis(moved.first_byte)
            )?;
        }
        writeln!(out, "\n{:<12} {:>9} {:>7}", "", "downloads", "failed")?;
        for tool in TOOLS {
            write!(out, "{:<12} {:>9} {:>7}", tool.name, of(tool.name).count(), failed(tool.name))?;
            let lost = of(tool.name).filter_map(|outcome| outcome.lost).reduce(f64::max);
            let connections = of(tool.name).filter_map(|outcome| outcome.connections).max();
            if let (Some(lost), Some(connections)) = (lost, connections) {
                write!(out, "   at most {:.0} ms lost, {connections} connections", lost * 1e3)?;
            }
            writeln!(out)?;
        }
    }
    Ok(CommandStatus::of(failed(TOOLS[0].name) == 0))
}

fn router_conf(daemon: Daemon) -> String {
    let passive = if daemon == Daemon::Exabgp { "passive;" } else { "" };
    let session = |net: usize| {
        format!(
            "protocol bgp node{net} {{ local 10.0.{net}.1 as 65000; neighbor 10.0.{net}.2 as 6500{net};\n\
             {TIMES} {passive} ipv4 {{ import all; export none; }}; }}\n"
        )
    };
    let kernel = "protocol kernel { ipv4 { export where source = RTS_BGP; import none; }; }\n";
    format!("router id 10.0.0.1;\nprotocol device {{}}\n{kernel}{}{}", session(1), session(2))
}

fn node_conf(net: usize) -> String {
    format!(
        "router id 10.0.{net}.2;\nprotocol device {{}}\n\
         protocol static levada {{ disabled; ipv4; route {ADDRESS}/32 blackhole; }}\n\
         protocol bgp upstream {{ local 10.0.{net}.2 as 6500{net}; neighbor 10.0.{net}.1 as 65000;\n\
         {TIMES} ipv4 {{ import none; export where source = RTS_STATIC; }}; }}\n"
    )
}

fn exabgp_conf(net: usize, levada: &Path) -> String {
    format!(
        "process levada {{ run {} route exabgp --admin {ADMIN}; encoder text; }}\n\
         neighbor 10.0.{net}.1 {{ router-id 10.0.{net}.2; local-address 10.0.{net}.2;\n\
         local-as 6500{net}; peer-as 65000; hold-time 9; api {{ processes [ levada ]; }} }}\n",
        levada.display()
    )
}

const SAMPLE: Duration = Duration::from_millis(100);
const NAMES: [&str; 2] = ["a", "b"];
const TIMES: &str = "hold time 9; connect delay time 1; connect retry time 1;";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const ADMIN: &str = "127.0.0.1:9180";
const A_FEW_PACKETS: u64 = 4000;
/// The resolution of the time until the route has moved.
const ROUTE_INTERVAL: Duration = Duration::from_millis(1);
/// The resolution of the time until the first byte.
const BYTE_INTERVAL: Duration = Duration::from_micros(200);
/// The timeout for each step of the lab: BGP needs some seconds to connect.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
