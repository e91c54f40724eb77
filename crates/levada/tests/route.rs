//! The route of a node at a real BIRD, as a router sees it: it goes with the node, however that ends. As root on Linux,
//! with `bird`; skipped elsewhere.
#![cfg(target_os = "linux")]

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use levada_net::lab::{Child, Ethernet, Host, Network};
use rustix::process::Signal;

const NODE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const PREFIX: &str = "192.0.2.0/24";
/// Longer than any wait here.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A node next to its BIRD, and a router that hears from it.
struct World {
    node: Option<Child>,
    _birds: [Child; 2],
    host: Host,
    _router: Host,
    _ethernet: Ethernet,
    _network: Network,
    directory: tempfile::TempDir,
}

impl World {
    /// `None` on a machine without BIRD, or without the right to have networks of its own.
    fn start() -> Option<Self> {
        if Command::new("bird").arg("--version").stderr(Stdio::null()).status().is_err() {
            levada_skip::skipped("bird is not installed: apt install bird2");
            return None;
        }
        let network = Network::new(1);
        let (host, router) = match (network.host("node"), network.host("router")) {
            (Ok(host), Ok(router)) => (host, router),
            (Err(error), _) | (_, Err(error)) => {
                levada_skip::skipped(format_args!("no networks here: {error}"));
                return None;
            }
        };
        let ethernet =
            network.ethernet(&[(&host, "eth0", NODE), (&router, "eth0", ROUTER)]).unwrap();
        host.ip(&["link set lo up"]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::write(at.join("node.conf"), bird(NODE, ROUTER, (65001, 65000), STATIC)).unwrap();
        fs::write(at.join("router.conf"), bird(ROUTER, NODE, (65000, 65001), "")).unwrap();
        let birds = [(&host, "node"), (&router, "router")].map(|(host, name)| {
            let mut command = Command::new("bird");
            command.arg("-f").arg("-c").arg(at.join(format!("{name}.conf")));
            command.arg("-s").arg(at.join(format!("{name}.ctl")));
            command.arg("-P").arg(at.join(format!("{name}.pid")));
            host.start(command).unwrap()
        });
        fs::write(at.join("levada.toml"), configuration(at)).unwrap();
        let mut world = Self {
            node: None,
            _birds: birds,
            host,
            _router: router,
            _ethernet: ethernet,
            _network: network,
            directory,
        };
        eventually("the routers are neighbours", || {
            world.router("protocols").contains("Established")
        });
        world.run();
        Some(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a node in the place of the former one.
    fn run(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(["run", "-c"]).arg(self.path("levada.toml"));
        self.node = Some(self.host.start(command).unwrap());
    }

    fn tell(&self, signal: Signal) {
        self.node.as_ref().unwrap().tell(signal).unwrap();
    }

    /// The answer of the router's BIRD to `show`.
    fn router(&self, about: &str) -> String {
        let mut birdc = Command::new("birdc");
        let output = birdc.arg("-s").arg(self.path("router.ctl")).args(["show", about]).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    }

    /// Waits until the router has the route, or has it no more.
    fn until_routed(&self, routed: bool, when: &str) {
        let begin = Instant::now();
        eventually(when, || self.router("route").contains(PREFIX) == routed);
        let word = if routed { "there" } else { "gone" };
        eprintln!("{when}: the route is {word} after {} ms", begin.elapsed().as_millis());
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

const STATIC: &str = "
protocol static levada { disabled; ipv4 { preference 210; }; route 192.0.2.0/24 blackhole; }
protocol static levada_backup { disabled; ipv4; route 192.0.2.0/24 blackhole { bgp_med = 100; }; }
";

fn bird(own: Ipv4Addr, other: Ipv4Addr, (from, to): (u32, u32), routes: &str) -> String {
    format!(
        "router id {own};\nprotocol device {{}}\n{routes}\nprotocol bgp neighbour {{\n  \
         local {own} as {from};\n  neighbor {other} as {to};\n  connect delay time 1;\n  \
         ipv4 {{ import all; export where source = RTS_STATIC; }};\n}}\n"
    )
}

fn configuration(directory: &Path) -> String {
    let socket = directory.join("node.ctl");
    let files = directory.join("www");
    fs::create_dir_all(&files).unwrap();
    format!(
        "name = \"a\"\n[[listen]]\naddress = \"{NODE}:80\"\n[[site]]\nhosts = \"*\"\n\
         files = {files:?}\n[route.bird]\nsocket = {socket:?}\nprotocol = \"levada\"\n\
         backup_protocol = \"levada_backup\"\n"
    )
}

#[test]
fn route_goes_with_the_node_however_it_ends_and_comes_back_with_it() {
    let Some(mut world) = World::start() else { return };
    world.until_routed(true, "the node has started");
    world.tell(Signal::STOP);
    world.until_routed(false, "the node hangs");
    world.tell(Signal::CONT);
    world.until_routed(true, "the node goes on");
    world.tell(Signal::KILL);
    world.until_routed(false, "the node is killed");
    world.node.as_mut().unwrap().wait().unwrap();
    world.run();
    world.until_routed(true, "another node has started");
    world.tell(Signal::TERM);
    world.until_routed(false, "the node is stopped");
    assert!(world.node.as_mut().unwrap().wait().unwrap().success());
}
