//! The hosts, and clusters of nodes with the configurations that `levada plan` writes.
//!
//! ```text
//!   hub: clients (this process) ──┬── node 1 ──┬── link with a rate ── origin
//!                                 ├── node 2 ──┤
//!                                 └── ...  ────┘
//! ```
//!
//! Clients ask the nodes in turn. Clients and nodes are on an Ethernet without limits.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use levada_client::command::{admin_client, node::Addresses};
use levada_net::{
    lab::{Access, Ethernet, Host, Network},
    wire::{Shape, Wire},
};
use levada_sim::prototype::HOST;
use levada_testbed::{
    cluster::{nodes::Nodes, spawn_on},
    emulation::cluster::PREFIX,
};

use crate::{
    args::PlanLabArgs,
    origin::{self, Sent},
};

/// The hosts, without programs.
pub(crate) struct PlanHosts {
    pub(crate) hub: Host,
    origin: Host,
    nodes: Vec<Host>,
    _ethernet: Ethernet,
    _wire: Wire,
    _network: Network,
}

/// A running cluster. It ends when this is dropped.
pub(crate) struct PlanCluster {
    nodes: Nodes,
    logs: Vec<PathBuf>,
}

impl PlanHosts {
    /// Creates the hosts.
    ///
    /// # Errors
    /// If the network cannot be created, for example without root.
    pub(crate) fn new(args: &PlanLabArgs) -> anyhow::Result<Self> {
        let mut network = Network::new(args.seed.into());
        let (hub, origin) = (network.host("hub")?, network.host("origin")?);
        let names = (1..=u16::from(args.nodes)).map(|number| network.host(&name(number)));
        let nodes = names.collect::<Result<Vec<_>, _>>()?;
        let mut ends = vec![(&hub, "eth0", CLIENTS)];
        ends.extend((1..).zip(&nodes).map(|(number, host)| (host, "eth0", address(number))));
        let ethernet = network.ethernet(&ends)?;
        let shape = Shape { rate: Some(args.origin_rate * 8), queue: QUEUE, ..Shape::default() };
        let mut ends = vec![(&origin, Access::at(ORIGIN).sending(shape.checked()?))];
        ends.extend((1..).zip(&nodes).map(|(number, host)| (host, Access::at(behind(number)))));
        let wire = network.join(&ends)?;
        Ok(Self { hub, origin, nodes, _ethernet: ethernet, _wire: wire, _network: network })
    }

    /// Starts the origin on its host, with tasks of this thread.
    ///
    /// # Errors
    /// If it cannot listen.
    pub(crate) fn origin(&self, latency: Duration) -> anyhow::Result<Sent> {
        let listener = self.origin.namespace().run(|| TcpListener::bind((ORIGIN, ORIGIN_PORT)))?;
        origin::start(listener.context("the origin cannot listen")?, latency)
    }

    /// Starts a node for each of these configurations, and waits until all are ready.
    ///
    /// # Errors
    /// If a configuration is not as expected, or a node does not start, with its log.
    pub(crate) async fn start(&self, configurations: &[String]) -> anyhow::Result<PlanCluster> {
        let (mut nodes, mut logs) = (Nodes::new(PREFIX)?, Vec::new());
        for (number, text) in (1..).zip(configurations) {
            let log = nodes.directory().join(format!("{}.access.log", name(number)));
            let addresses = addresses(number);
            let text = placed(text, addresses.admin, &log)?;
            nodes.all.push(nodes.node(&name(number), addresses, &text)?);
            logs.push(log);
        }
        nodes.start(|at, node| spawn_on(self.nodes.get(at), || node.spawn())).await?;
        Ok(PlanCluster { nodes, logs })
    }
}

impl PlanCluster {
    /// The addresses for clients.
    pub(crate) fn clients(&self) -> Vec<SocketAddr> {
        self.nodes.all.iter().map(|node| node.addresses.clients).collect()
    }

    /// The addresses for operators.
    pub(crate) fn admins(&self) -> Vec<SocketAddr> {
        self.nodes.all.iter().map(|node| node.addresses.admin).collect()
    }

    /// Copies the access logs, as they are now, and the configurations into a directory; returns the logs' names.
    ///
    /// # Errors
    /// If they cannot be copied.
    pub(crate) fn copy(&self, directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut copies = Vec::new();
        for (node, log) in self.nodes.all.iter().zip(&self.logs) {
            let copy = directory.join(format!("{}.log", node.name));
            std::fs::copy(log, &copy).with_context(|| format!("{} has no log", node.name))?;
            copies.push(copy);
            let file = format!("{}.toml", node.name);
            std::fs::copy(self.nodes.directory().join(&file), directory.join(&file))?;
        }
        Ok(copies)
    }

    /// The CPU seconds of each node so far.
    ///
    /// # Errors
    /// If a node does not answer.
    pub(crate) async fn cpu(&self) -> anyhow::Result<Vec<f64>> {
        let mut all = Vec::new();
        for admin in self.admins() {
            all.push(cpu_seconds(admin).await?);
        }
        Ok(all)
    }

    /// Ends all nodes.
    pub(crate) async fn stop(self) {
        self.nodes.stop().await;
    }
}

/// Asks again if a busy machine lets the connection end before the answer.
async fn cpu_seconds(admin: SocketAddr) -> anyhow::Result<f64> {
    let mut tries = 1;
    loop {
        match admin_client::metric(admin, CPU, ANSWER_TIMEOUT).await {
            Err(_) if tries < TRIES => tries += 1,
            answer => return answer,
        }
    }
}

/// A configuration of `levada plan` at its place: with the lab's host, origin and secret, and with tables for the log
/// and for operators. The addresses of peers are those of the lab's hosts.
fn placed(text: &str, admin: SocketAddr, log: &Path) -> anyhow::Result<String> {
    let mut placed = text.to_owned();
    let origin = format!("{ORIGIN}:{ORIGIN_PORT}");
    let secret = format!("{:032x}", u128::from(process::id()) << 64 | 1);
    for (example, own) in
        [("www.example.com", HOST), ("127.0.0.1:9000", &*origin), ("${LEVADA_SECRET}", &*secret)]
    {
        let is_alone = example.starts_with('$') && !placed.contains("[peering]");
        ensure!(is_alone || placed.contains(example), "the planned configuration has no {example}");
        placed = placed.replace(example, own);
    }
    placed += &format!(
        "\n[runtime]\nmode = \"shared\"\nthreads = 1\n\n[admin]\nlisten = \"{admin}\"\n\n\
         [log]\naccess = \"{}\"\nformat = \"json\"\n",
        log.display()
    );
    Ok(placed)
}

/// The name that `levada plan` gives a node.
fn name(number: u16) -> String {
    format!("node-{number}")
}

/// The listeners of a node.
fn addresses(number: u16) -> Addresses {
    let [clients, peers, admin] =
        [8080, 7070, 9181].map(|port| SocketAddr::from((address(number), port)));
    Addresses { clients, peers, admin }
}

/// The address of a node, as `levada plan` gives it to peers.
fn address(number: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number as u8 + 1)
}

/// A node's address on the wire of the origin.
fn behind(number: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, number as u8 + 1)
}

const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 250);
const ORIGIN: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 250);
const ORIGIN_PORT: u16 = 9000;
/// Packets that may wait for the origin's link.
const QUEUE: usize = 1000;
const CPU: &str = "process_cpu_seconds_total";
const TRIES: u32 = 5;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use levada_plan::{Candidate, node_configuration};

    use super::*;

    #[test]
    fn planned_configurations_get_the_addresses_of_the_lab() {
        for nodes in [1, 3] {
            let candidate = Candidate {
                nodes,
                memory: 1 << 20,
                disk: 0,
                policy: "adaptive".to_owned(),
                eviction: "gdsf",
            };
            let text = node_configuration(&candidate, 1);
            let placed = placed(&text, addresses(1).admin, Path::new("/tmp/a.log")).unwrap();
            assert!(placed.contains(HOST) && placed.contains("10.1.0.250:9000"), "{placed}");
            assert!(!placed.contains('$') && placed.contains("memory = \"1MiB\""), "{placed}");
            let peer = |number| placed.contains(&format!("\"{}\"", addresses(number).peers));
            assert_eq!([1, 3].map(peer), [nodes == 3; 2], "{placed}");
        }
        let error = placed("", addresses(1).admin, Path::new("a")).unwrap_err().to_string();
        assert!(error.contains("www.example.com"), "{error}");
    }
}
