//! Load over several nodes with one route, each at a real BIRD, as a router sees it. As root on Linux, with
//! `bird`; skipped elsewhere.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use levada_net::lab::{Child, Ethernet, Host, Network};
use socket2::{Domain, Socket, Type};

const NODES: [&str; 3] = ["a", "b", "c"];
const CAPACITY: usize = 4;
/// The first of the clients' addresses, which the router has.
const CLIENTS: usize = 100;
/// Longer than any wait here.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// Three nodes of a cluster, each next to its BIRD, and a router that hears from all of them.
struct World {
    // Programs go before their hosts.
    _programs: Vec<Child>,
    router: Host,
    _hosts: Vec<Host>,
    _ethernet: Ethernet,
    _network: Network,
    directory: tempfile::TempDir,
}

fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, 1 + host as u8)
}

impl World {
    /// `None` on a machine without BIRD, or without the right to have networks of its own.
    fn start() -> Option<Self> {
        if Command::new("bird").arg("--version").stderr(Stdio::null()).status().is_err() {
            levada_skip::skipped("bird is not installed: apt install bird2");
            return None;
        }
        let network = Network::new(1);
        let hosts: Result<Vec<_>, _> =
            ["router", "a", "b", "c"].iter().map(|name| network.host(name)).collect();
        let mut hosts = match hosts {
            Ok(hosts) => hosts,
            Err(error) => {
                levada_skip::skipped(format_args!("no networks here: {error}"));
                return None;
            }
        };
        let ends: Vec<_> =
            hosts.iter().enumerate().map(|(at, host)| (host, "eth0", address(at))).collect();
        let ethernet = network.ethernet(&ends).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("www")).unwrap();
        fs::write(directory.path().join("www/large"), vec![7; 64 << 20]).unwrap();
        let router = hosts.remove(0);
        for client in 0..CAPACITY {
            let own = format!("addr add {}/24 dev eth0", address(CLIENTS + client));
            router.ip(&[&own]).unwrap();
        }
        let mut world = Self {
            _programs: Vec::new(),
            router,
            _hosts: Vec::new(),
            _ethernet: ethernet,
            _network: network,
            directory,
        };
        let neighbours: String = (1..=NODES.len())
            .map(|node| {
                format!(
                    "protocol bgp node{node} {{ local {} as 65000; neighbor {} as 65001; \
                     connect delay time 1; ipv4 {{ import all; export none; }}; }}\n",
                    address(0),
                    address(node)
                )
            })
            .collect();
        let mut programs = vec![world.bird(&world.router, 0, &neighbours)];
        for (node, host) in (1..).zip(&hosts) {
            host.ip(&["link set lo up"]).unwrap();
            programs.push(world.bird(host, node, &node_routes(node)));
            let config = world.file(&format!("{node}.toml"), &world.configuration(node));
            let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
            command.args(["--log-level", "warn", "run", "-c", &config]);
            programs.push(host.start(command).unwrap());
        }
        (world._programs, world._hosts) = (programs, hosts);
        Some(world)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn bird(&self, host: &Host, at: usize, protocols: &str) -> Child {
        let start = format!("router id {};\nprotocol device {{}}\n{protocols}", address(at));
        let (config, ctl) = (self.file(&format!("bird{at}.conf"), &start), self.ctl(at));
        let mut command = Command::new("bird");
        command.args(["-f", "-c", &config, "-s", &ctl, "-P", &format!("{ctl}.pid")]);
        host.start(command).unwrap()
    }

    fn ctl(&self, at: usize) -> String {
        self.directory.path().join(format!("bird{at}.ctl")).display().to_string()
    }

    fn configuration(&self, node: usize) -> String {
        let peers: String = (1..=NODES.len())
            .map(|peer| {
                let name = NODES[peer - 1];
                format!("[[peer]]\nname = \"{name}\"\naddress = \"{}:7070\"\n", address(peer))
            })
            .collect();
        format!(
            "name = \"{}\"\n[limits]\ncapacity = {CAPACITY}\n[log]\naccess = \"off\"\n\
             [[listen]]\naddress = \"{own}:80\"\n[peering]\nlisten = \"{own}:7070\"\n\
             secret = \"that nobody else knows it\"\n{peers}\
             [[site]]\nhosts = \"*\"\nfiles = {:?}\n\
             [route]\ndwell = \"2s\"\n[route.bird]\nsocket = {:?}\nprotocol = \"levada\"\n\
             backup_protocol = \"levada_backup\"\n",
            NODES[node - 1],
            self.directory.path().join("www"),
            self.ctl(node),
            own = address(node),
        )
    }

    /// The routes that the router has from nodes: whether each is a backup, `None` if there is none.
    fn routes(&self) -> Vec<Option<bool>> {
        let of = |node: usize| {
            let mut birdc = Command::new("birdc");
            birdc.arg("-s").arg(self.ctl(0));
            let output =
                birdc.args(["show", "route", "protocol", &format!("node{node}"), "all"]).output();
            let shown = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
            shown.contains("192.0.2.0/24").then(|| shown.contains("BGP.med: 100"))
        };
        (1..=NODES.len()).map(of).collect()
    }

    /// Waits for these routes. Once a node is announced, there is always one that is.
    fn until(&self, wanted: [Option<bool>; 3], when: &str) {
        let (begun, mut was_announced) = (Instant::now(), false);
        loop {
            let routes = self.routes();
            was_announced |= routes.contains(&Some(false));
            assert!(!was_announced || routes.contains(&Some(false)), "{when}: {routes:?}");
            if routes == wanted {
                return;
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "{when}: {routes:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clients that take nothing of their response, as many as the node may serve at once. Each has an address of its
    /// own, since a node does not give all of its capacity to one.
    fn fill(&self, node: usize) -> Vec<Socket> {
        let connect = |client| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from((address(CLIENTS + client), 0)).into()).unwrap();
            socket.connect(&SocketAddr::from((address(node), 80)).into()).unwrap();
            (&socket).write_all(b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
            socket
        };
        self.router.namespace().run(|| (0..CAPACITY).map(connect).collect()).unwrap()
    }
}

fn node_routes(node: usize) -> String {
    format!(
        "protocol static levada {{ disabled; ipv4 {{ preference 210; }}; route 192.0.2.0/24 blackhole; }}\n\
         protocol static levada_backup {{ disabled; ipv4; route 192.0.2.0/24 blackhole {{ bgp_med = 100; }}; }}\n\
         protocol bgp edge {{ local {} as 65001; neighbor {} as 65000; connect delay time 1;\n\
         ipv4 {{ import none; export where source = RTS_STATIC; }}; }}\n",
        address(node),
        address(0)
    )
}

const ANNOUNCED: Option<bool> = Some(false);
const BACKUP: Option<bool> = Some(true);

#[test]
fn full_node_steps_back_for_nodes_with_room_and_never_the_last_one() {
    let Some(world) = World::start() else { return };
    world.until([ANNOUNCED; 3], "all are announced");
    let full = world.fill(1);
    world.until([BACKUP, ANNOUNCED, ANNOUNCED], "a is full, the others have room");
    drop(full);
    world.until([ANNOUNCED; 3], "there is less to do");
    let _full: Vec<_> = (1..=NODES.len()).map(|node| world.fill(node)).collect();
    // None steps back, since the others have no room: a load that rises to 1 is averaged to 0.9 after 23 s.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        assert_eq!(world.routes(), [ANNOUNCED; 3]);
        thread::sleep(Duration::from_millis(100));
    }
}
