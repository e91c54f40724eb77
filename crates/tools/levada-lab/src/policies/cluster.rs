//! The cluster: front-ends, cache nodes behind links of limited rate, and an origin for each node.
//!
//! ```text
//!   hub: clients (this process) ── 2 front-ends ──┬── wire, 4 Mbit/s ── node 0 ─┐
//!                                                 ├── wire, 4 Mbit/s ── node 1 ─┤
//!        origin of node 0, of node 1, ... ────────┴───── Ethernet ──────────────┘
//! ```
//!
//! Requests and responses cross the wire; what a node fetches crosses the Ethernet, which does not
//! limit it. So a node's link is the bottleneck, or its origin, whose disk is emulated: it stands for
//! the node's own disk.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use levada_client::command::node::{Addresses, configuration_head};
use levada_net::{
    lab::{Access, Ethernet, Host, Network},
    wire::{Shape, Wire},
};
use levada_sim::prototype::server_name;
use levada_testbed::{
    cluster::{nodes::Nodes, spawn_on},
    emulation::cluster::{BackendProcess, PREFIX},
};

use crate::args::policies::PoliciesArgs;

/// The differences between clusters.
pub(super) struct NodeSpec<'a> {
    /// The inline table of the policy.
    pub(super) policy: &'a str,
    /// Speeds of the emulated disks, relative to that of ASPLOS'98.
    pub(super) disks: Vec<f64>,
    /// How often a front-end tries a request.
    pub(super) tries: u32,
    /// Capacity of a node's memory, in bytes.
    pub(super) memory: u64,
}

/// A running cluster. It ends when this is dropped.
pub(super) struct NodeCluster {
    /// The front-ends' addresses for clients.
    pub(super) fronts: Vec<SocketAddr>,
    nodes: Nodes,
    _backends: Vec<BackendProcess>,
}

/// The hosts, without programs.
pub(super) struct ClusterHosts {
    pub(super) hub: Host,
    nodes: Vec<Host>,
    _ethernet: Ethernet,
    _wires: Vec<Wire>,
    _network: Network,
}

impl ClusterHosts {
    /// Creates the hosts.
    ///
    /// # Errors
    /// If the network cannot be created, for example without root.
    pub(super) fn new(args: &PoliciesArgs) -> anyhow::Result<Self> {
        let mut network = Network::new(args.seed.into());
        let hub = network.host("hub")?;
        let names = (0..args.nodes).map(|at| network.host(&server_name(at.into())));
        let nodes = names.collect::<Result<Vec<_>, _>>()?;
        // Where the kernel allows it to all networks; otherwise they stay with reno.
        let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
        if allowed.is_ok_and(|list| list.split_whitespace().any(|one| one == "cubic")) {
            for host in nodes.iter().chain([&hub]) {
                host.set("net.ipv4.tcp_congestion_control", "cubic")?;
            }
        }
        let mut ends = vec![(&hub, DEVICE, ORIGIN)];
        ends.extend((0..).zip(&nodes).map(|(at, node)| (node, DEVICE, behind(at))));
        let ethernet = network.ethernet(&ends)?;
        let shape = Shape { rate: Some(args.rate * 8), queue: QUEUE, ..Shape::default() };
        let shape = shape.checked()?;
        let mut wires = Vec::new();
        for (at, node) in (0..).zip(&nodes) {
            let [near, far] = link(at);
            let far = Access::at(far).sending(shape).receiving(shape);
            wires.push(network.join(&[(&hub, Access::at(near)), (node, far)])?);
        }
        Ok(Self { hub, nodes, _ethernet: ethernet, _wires: wires, _network: network })
    }

    /// Starts all programs and waits until the front-ends are ready. The caller runs on the hub.
    ///
    /// # Errors
    /// If a program does not start, with its log.
    pub(super) async fn start(&self, spec: &NodeSpec<'_>) -> anyhow::Result<NodeCluster> {
        let (mut nodes, mut backends) = (Nodes::new(PREFIX)?, Vec::new());
        for (at, _) in (0..).zip(&self.nodes) {
            let origin = SocketAddr::from((ORIGIN, ORIGIN_PORT + u16::from(at)));
            let disk = format!("--disk={}", spec.disks[usize::from(at)]);
            let options =
                ["--memory=0B".into(), "--cpu=1000".into(), disk, format!("--listen={origin}")];
            backends.push(BackendProcess::start(None, &options).await?);
            let clients = SocketAddr::from((Ipv4Addr::UNSPECIFIED, NODE_PORT));
            let addresses = addresses(clients, (behind(at), ADMIN_PORT));
            let name = server_name(at.into());
            let text = node_configuration(&name, origin, addresses, spec.memory);
            nodes.all.push(nodes.node(&name, addresses, &text)?);
        }
        let mut fronts = Vec::new();
        for number in 0..FRONTS {
            let clients = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080 + number));
            let addresses = addresses(clients, (Ipv4Addr::LOCALHOST, ADMIN_PORT + number));
            let name = format!("front{number}");
            let text = front_configuration(&name, addresses, spec, self.nodes.len());
            nodes.all.push(nodes.node(&name, addresses, &text)?);
            fronts.push(clients);
        }
        // The front-ends are on the hub, as the caller is.
        nodes.start(|at, node| spawn_on(self.nodes.get(at), || node.spawn())).await?;
        Ok(NodeCluster { fronts, nodes, _backends: backends })
    }
}

impl NodeCluster {
    /// Kills a cache node, and starts it again after `away` with an empty memory.
    ///
    /// # Errors
    /// If it does not start again, with its log.
    pub(super) async fn kill(
        &mut self,
        hosts: &ClusterHosts,
        at: usize,
        away: Duration,
    ) -> anyhow::Result<()> {
        let node = &mut self.nodes.all[at];
        node.kill().await;
        tokio::time::sleep(away).await;
        spawn_on(hosts.nodes.get(at), || node.spawn())
    }
}

/// The addresses of a node without peers.
fn addresses(clients: SocketAddr, admin: (Ipv4Addr, u16)) -> Addresses {
    Addresses { clients, peers: clients, admin: admin.into() }
}

fn node_configuration(name: &str, origin: SocketAddr, own: Addresses, memory: u64) -> String {
    configuration_head(name, own.clients, own.admin)
        + &format!(
            r#"
[cache]
memory = "{memory}B"

[[site]]
hosts = "*"
origin = "http://{origin}"
default_ttl = "1d"
health_check = {{ interval = "0s" }}
"#
        )
}

fn front_configuration(name: &str, own: Addresses, spec: &NodeSpec<'_>, nodes: usize) -> String {
    let NodeSpec { policy, tries, .. } = spec;
    let mut text = configuration_head(name, own.clients, own.admin)
        + &format!(
            r#"
[limits]
tries = {tries}

[[site]]
hosts = "*"
policy = {policy}
cache = false
health_check = {{ interval = "0s" }}
"#
        );
    for at in 0..nodes {
        let [_, address] = link(at as u8);
        let name = server_name(at);
        text += &format!(
            "[[site.server]]\nname = \"{name}\"\nurl = \"http://{address}:{NODE_PORT}\"\n"
        );
    }
    text
}

/// The addresses of both ends of a node's wire: the hub's and the node's.
fn link(at: u8) -> [Ipv4Addr; 2] {
    [1, 2].map(|end| Ipv4Addr::new(10, 1, at, end))
}

/// A node's address on the Ethernet.
fn behind(at: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 2, 11 + at)
}

/// The hub's address on the Ethernet.
const ORIGIN: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
const ORIGIN_PORT: u16 = 9000;
const NODE_PORT: u16 = 8080;
const ADMIN_PORT: u16 = 9180;
/// Front-ends.
pub(super) const FRONTS: u16 = 2;
const DEVICE: &str = "eth0";
/// Packets that may wait for a link: half a second of 4 Mbit/s.
pub(super) const QUEUE: usize = 170;
