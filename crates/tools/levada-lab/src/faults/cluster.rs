//! The cluster: four nodes, each a process of this same executable with a cache on disk.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use anyhow::Context as _;
use levada_client::command::{
    admin_client,
    node::{Addresses, Node, free_addresses},
};
use levada_net::lab::{
    Host,
    file_system::{HeldBack, small},
};
use levada_testbed::{
    cluster::{
        nodes::{Nodes, with_free_ports},
        spawn_on, tell,
    },
    emulation::cluster::PREFIX,
};
use rustix::process::Signal;
use serde_json::json;

use super::{
    clocks,
    door::Door,
    liar::LIAR_NAME,
    load::HOST_NAME,
    network::{FaultHosts, NODES},
};

/// The differences between clusters.
pub(super) struct ClusterSpec<'a> {
    /// Whether the caches are on file systems that are smaller than they.
    pub(super) small_disk: bool,
    /// The control group by which reads of the caches can be held back.
    pub(super) held_back: Option<&'a HeldBack>,
    /// Whether the access logs are never read.
    pub(super) unread_log: bool,
    /// Whether the clocks of the nodes can be set.
    pub(super) own_clocks: bool,
    /// The places of misses, if not as many as usual.
    pub(super) places: Option<usize>,
    pub(super) hosts: Option<&'a FaultHosts>,
    pub(super) origin: SocketAddr,
    pub(super) liar: SocketAddr,
    pub(super) token: &'a str,
}

/// The processes. They end when this is dropped, and also when this process is killed.
pub(super) struct Cluster<'a> {
    pub(super) doors: Rc<[Door]>,
    nodes: Nodes,
    pub(super) hosts: Option<&'a FaultHosts>,
    token: &'a str,
    pub(super) held_back: Option<&'a HeldBack>,
}

impl<'a> Cluster<'a> {
    /// Starts all nodes and waits until each is ready.
    ///
    /// # Errors
    /// If a node does not start, with its log.
    pub(super) async fn start(spec: &ClusterSpec<'a>) -> anyhow::Result<Self> {
        let (cluster, _) = with_free_ports(async || {
            let mut cluster = Self::prepare(spec)?;
            let spawn = |at, node: &mut Node| spawn_on(host(spec.hosts, at), || node.spawn());
            cluster.nodes.start(spawn).await?;
            Ok(cluster)
        })
        .await?;
        (0..NODES).for_each(|at| cluster.open(at));
        Ok(cluster)
    }

    fn prepare(spec: &ClusterSpec<'a>) -> anyhow::Result<Self> {
        let mut nodes = Nodes::new(PREFIX)?;
        let all = match spec.hosts {
            Some(_) => FaultHosts::addresses(),
            None => free_addresses(NODES).context("no free ports on 127.0.0.1")?,
        };
        let mut doors = Vec::new();
        for (at, addresses) in all.iter().enumerate() {
            let name = format!("node{at}");
            let cache = cache(nodes.directory(), at);
            std::fs::create_dir_all(&cache)?;
            let mut node =
                nodes.node(&name, *addresses, &configuration(spec, at, &all, nodes.directory()))?;
            doors.push(Door::new(name, addresses));
            if spec.unread_log {
                node = node.with_unread_output();
            }
            if spec.small_disk {
                let file_system = nodes.directory().join(format!("disk{at}"));
                node = node.wrapped_by(small(&file_system, SMALL));
            }
            if let Some(group) = spec.held_back {
                let file_system = nodes.directory().join(format!("disk{at}"));
                node = node.wrapped_by(group.program(&file_system, ROOMY));
            }
            if spec.own_clocks {
                node = node.wrapped_by(clocks::with_own_clock(&clock(nodes.directory(), at))?);
            }
            nodes.all.push(node);
        }
        let ClusterSpec { hosts, token, held_back, .. } = *spec;
        let cluster = Self { doors: doors.into(), nodes, hosts, token, held_back };
        cluster.write_secrets(&[&cluster.secret()])?;
        Ok(cluster)
    }

    /// Opens a node to clients.
    fn open(&self, at: usize) {
        self.doors[at].open(self.nodes.all[at].pid());
    }

    /// Starts a node that has ended.
    ///
    /// # Errors
    /// If it does not start, with its log.
    pub(super) async fn restart(&mut self, at: usize) -> anyhow::Result<()> {
        let (host, node) = (host(self.hosts, at), &mut self.nodes.all[at]);
        // A connection may have the port as its own end.
        with_free_ports(async || {
            spawn_on(host, || node.spawn())?;
            node.ready().await
        })
        .await?;
        self.open(at);
        Ok(())
    }

    /// Kills a node.
    pub(super) async fn kill(&mut self, at: usize) {
        self.doors[at].strike();
        self.nodes.all[at].kill().await;
    }

    /// Ends a node as an operator does, who sends it no further requests.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub(super) async fn stop(&mut self, at: usize) -> anyhow::Result<()> {
        self.doors[at].close();
        tell(&self.nodes.all[at], Signal::TERM)?;
        self.nodes.all[at].end().await.map(drop)
    }

    /// Suspends a node.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub(super) fn suspend(&self, at: usize) -> anyhow::Result<()> {
        self.doors[at].strike();
        tell(&self.nodes.all[at], Signal::STOP)
    }

    /// Resumes a node, and opens it to clients.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub(super) fn resume(&self, at: usize) -> anyhow::Result<()> {
        tell(&self.nodes.all[at], Signal::CONT)?;
        self.doors[at].strike();
        self.open(at);
        Ok(())
    }

    /// Sets the clock of a node, which need not run, to this many seconds from the machine's.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn set_clock(&self, at: usize, seconds: i64) -> io::Result<()> {
        clocks::write(&clock(self.nodes.directory(), at), seconds)
    }

    /// The secret of the cluster at its start.
    pub(super) fn secret(&self) -> String {
        self.token.to_owned()
    }

    fn write_secrets(&self, secrets: &[&str]) -> io::Result<()> {
        std::fs::write(self.nodes.directory().join(SECRET), secrets.join("\n"))
    }

    /// Has all nodes read these secrets.
    ///
    /// # Errors
    /// If a node refuses.
    pub(super) async fn set_secrets(&self, secrets: &[&str]) -> anyhow::Result<()> {
        self.write_secrets(secrets)?;
        for door in self.doors.iter() {
            let token = Some(self.token);
            admin_client::post(door.admin, "/reload", &json!({}), token, ANSWER_TIMEOUT).await?;
        }
        Ok(())
    }

    /// The processor time that all nodes have used since their last start.
    pub(super) fn cpu(&self) -> Duration {
        self.doors.iter().filter_map(|door| processor_time(door.process()?)).sum()
    }

    /// The nodes that have ended by themselves, or do not answer.
    pub(super) async fn lost(&mut self) -> Vec<String> {
        let mut lost = Vec::new();
        for node in &mut self.nodes.all {
            if let Err(error) = node.ready().await {
                lost.push(format!("{error:#}"));
            }
        }
        lost
    }

    /// The sum of a metric of all nodes that answer, over all of its labels.
    pub(super) async fn metric(&self, name: &str) -> f64 {
        let mut sum = 0.0;
        for door in self.doors.iter() {
            sum += admin_client::metric(door.admin, name, ANSWER_TIMEOUT).await.unwrap_or_default();
        }
        sum
    }

    /// The directory of a node's cache, as this process sees it.
    pub(super) fn cache(&self, at: usize) -> PathBuf {
        let cache = cache(self.nodes.directory(), at);
        match self.nodes.all[at].pid() {
            // A node may have file systems of its own.
            Some(process) => {
                let rest = cache.strip_prefix("/").unwrap_or(&cache);
                PathBuf::from(format!("/proc/{process}/root")).join(rest)
            }
            None => cache,
        }
    }
}

/// The host of a node, if it has one.
fn host(hosts: Option<&FaultHosts>, at: usize) -> Option<&Host> {
    hosts.map(|hosts| &hosts.nodes[at])
}

/// The file that says how far the clock of a node is from the machine's.
fn clock(directory: &Path, at: usize) -> PathBuf {
    directory.join(format!("clock{at}"))
}

/// A node's cache, in a directory that can be a file system.
fn cache(directory: &Path, at: usize) -> PathBuf {
    directory.join(format!("disk{at}/cache"))
}

/// The address of a node's metrics: one more of this machine.
pub(super) fn metrics_at(admin: SocketAddr) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), admin.port()))
}

/// The processor time of a process (proc_pid_stat(5)); `None` when it is gone.
fn processor_time(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Some(Duration::from_millis(ticks.sum::<u64>() * TICK))
}

/// A node's configuration, as an operator would write it.
fn configuration(spec: &ClusterSpec<'_>, at: usize, all: &[Addresses], directory: &Path) -> String {
    let cache = cache(directory, at);
    let own = &all[at];
    let mut text = format!(
        r#"name = "node{at}"

[runtime]
mode = "shared"
threads = 1

[[listen]]
address = "{clients}"
h2c = true

# The load comes from one address and states whose request each is.
[[trusted]]
addresses = "{trusted}"

[admin]
listen = "{admin}"
{metrics}token = "{token}"

[log]
access = "stdout"

[peering]
listen = "{peers}"
secret_file = "{secret}"

[peering.health_check]
interval = "250ms"
timeout = "1s"

[limits]
memory = "{memory}MiB"

[cache]
memory = "{tier}"

[cache.disk]
path = "{cache}"
size = "128MiB"

[[site]]
hosts = "{HOST_NAME}"
origin = "http://{origin}"
{misses}

[[site]]
hosts = "{LIAR_NAME}"
origin = "http://{liar}"
"#,
        clients = own.clients,
        trusted = spec.origin.ip(),
        admin = own.admin,
        peers = own.peers,
        cache = cache.display(),
        origin = spec.origin,
        liar = spec.liar,
        token = spec.token,
        secret = directory.join(SECRET).display(),
        metrics = match spec.hosts {
            Some(_) => String::new(),
            None => format!("metrics = \"{}\"\n", metrics_at(own.admin)),
        },
        misses = spec.places.map_or_else(String::new, |places| {
            format!("misses = {{ at_once = {places}, queue = {} }}", 2 * places)
        }),
        memory = MEMORY >> 20,
        // Hits are to come from the disk.
        tier = if spec.held_back.is_some() { "2MiB" } else { "8MiB" },
    );
    for (at, node) in all.iter().enumerate() {
        text += &format!("\n[[peer]]\nname = \"node{at}\"\naddress = \"{}\"\n", node.peers);
    }
    text
}

/// The machine's own address for clients and origins, without emulated hosts.
pub(super) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The file with the secrets of the cluster.
const SECRET: &str = "secret";
/// Milliseconds of a tick in which Linux counts processor time.
const TICK: u64 = 10;
/// `limits.memory` of the nodes.
pub(super) const MEMORY: u64 = 160 << 20;
/// The file system of a cache that is too small for it: a quarter of it.
pub(super) const SMALL: &str = "32m";
/// A file system with room for a cache and for itself.
pub(super) const ROOMY: &str = "192M";
/// The timeout for a page of a node: a node that a fault keeps busy is left out.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
