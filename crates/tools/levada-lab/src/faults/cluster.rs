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
    node::{Addresses, Node, PORT_TRIES, free_addresses, port_was_taken},
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{runtime::Handle, time::sleep};

use super::{
    clocks,
    door::Door,
    file_system,
    liar::LIAR_NAME,
    load::HOST_NAME,
    network::{FaultHosts, NODES},
};
use crate::emulation::cluster::directory;

/// The differences between clusters.
pub(super) struct ClusterSpec<'a> {
    /// Whether the caches are on file systems that are smaller than they.
    pub(super) small_disk: bool,
    /// Whether the access logs are never read.
    pub(super) unread_log: bool,
    /// Whether the clocks of the nodes can be set.
    pub(super) own_clocks: bool,
    pub(super) hosts: Option<&'a FaultHosts>,
    pub(super) origin: SocketAddr,
    pub(super) liar: SocketAddr,
    pub(super) token: &'a str,
}

/// The processes. They end when this is dropped, and also when this process is killed.
pub(super) struct Cluster<'a> {
    pub(super) doors: Rc<[Door]>,
    nodes: Vec<Node>,
    pub(super) hosts: Option<&'a FaultHosts>,
    directory: TempDir,
}

impl<'a> Cluster<'a> {
    /// Starts all nodes and waits until each is ready.
    ///
    /// # Errors
    /// If a node does not start, with its log.
    pub(super) async fn start(spec: &ClusterSpec<'a>) -> anyhow::Result<Self> {
        let mut tries = 1;
        loop {
            let mut cluster = Self::prepare(spec)?;
            match cluster.start_all().await {
                Ok(()) => return Ok(cluster),
                // Another process took one of the ports between its release and its use.
                Err(error) if tries < PORT_TRIES && port_was_taken(&error) => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn prepare(spec: &ClusterSpec<'a>) -> anyhow::Result<Self> {
        let directory = directory()?;
        let all = match spec.hosts {
            Some(_) => FaultHosts::addresses(),
            None => free_addresses(NODES).context("no free ports on 127.0.0.1")?,
        };
        let (mut nodes, mut doors) = (Vec::new(), Vec::new());
        for (at, addresses) in all.iter().enumerate() {
            let name = format!("node{at}");
            let config = directory.path().join(format!("{name}.toml"));
            let cache = cache(directory.path(), at);
            std::fs::create_dir_all(&cache)?;
            std::fs::write(&config, configuration(spec, at, &all, &cache))?;
            let log = directory.path().join(format!("{name}.log"));
            doors.push(Door::new(name.clone(), addresses));
            let mut node = Node::new(name, *addresses, config, log);
            if spec.unread_log {
                node = node.with_unread_output();
            }
            if spec.small_disk {
                let file_system = directory.path().join(format!("disk{at}"));
                node = node.wrapped_by(file_system::in_small_file_system(&file_system));
            }
            if spec.own_clocks {
                node = node.wrapped_by(clocks::with_own_clock(&clock(directory.path(), at))?);
            }
            nodes.push(node);
        }
        Ok(Self { doors: doors.into(), nodes, hosts: spec.hosts, directory })
    }

    async fn start_all(&mut self) -> anyhow::Result<()> {
        for at in 0..NODES {
            self.spawn(at)?;
        }
        for at in 0..NODES {
            self.ready(at).await?;
        }
        Ok(())
    }

    /// Starts the process of a node, on its host.
    fn spawn(&mut self, at: usize) -> anyhow::Result<()> {
        let (runtime, node) = (Handle::current(), &mut self.nodes[at]);
        let mut spawn = || {
            let _entered = runtime.enter();
            node.spawn()
        };
        match self.hosts {
            Some(hosts) => hosts.nodes[at].namespace().run(spawn)?,
            None => spawn(),
        }
    }

    /// Waits until a node is ready, and opens it to clients.
    async fn ready(&mut self, at: usize) -> anyhow::Result<()> {
        self.nodes[at].ready().await?;
        self.doors[at].open(self.nodes[at].pid());
        Ok(())
    }

    /// Starts a node that has ended.
    ///
    /// # Errors
    /// If it does not start, with its log.
    pub(super) async fn restart(&mut self, at: usize) -> anyhow::Result<()> {
        let mut tries = 1;
        loop {
            self.spawn(at)?;
            match self.ready(at).await {
                // A connection has the port as its own end.
                Err(error) if tries < PORT_TRIES && port_was_taken(&error) => tries += 1,
                result => return result,
            }
            sleep(PORT_BACKOFF).await;
        }
    }

    /// Kills a node.
    pub(super) async fn kill(&mut self, at: usize) {
        self.doors[at].strike();
        self.nodes[at].kill().await;
    }

    /// Ends a node as an operator does, who sends it no further requests.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub(super) async fn stop(&mut self, at: usize) -> anyhow::Result<()> {
        self.doors[at].close();
        self.tell(at, Signal::TERM)?;
        self.nodes[at].end().await.map(drop)
    }

    /// Suspends a node.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub(super) fn suspend(&self, at: usize) -> anyhow::Result<()> {
        self.doors[at].strike();
        self.tell(at, Signal::STOP)
    }

    /// Resumes a node, and opens it to clients.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub(super) fn resume(&self, at: usize) -> anyhow::Result<()> {
        self.tell(at, Signal::CONT)?;
        self.doors[at].strike();
        self.doors[at].open(self.nodes[at].pid());
        Ok(())
    }

    fn tell(&self, at: usize, signal: Signal) -> anyhow::Result<()> {
        let node = &self.nodes[at];
        let pid = node.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.with_context(|| format!("{} has ended by itself", node.name))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Sets the clock of a node, which need not run, to this many seconds from the machine's.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn set_clock(&self, at: usize, seconds: i64) -> io::Result<()> {
        clocks::write(&clock(self.directory.path(), at), seconds)
    }

    /// The nodes that have ended by themselves, or do not answer.
    pub(super) async fn lost(&mut self) -> Vec<String> {
        let mut lost = Vec::new();
        for node in &mut self.nodes {
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
            let page =
                admin_client::get(door.admin, "/metrics", ANSWER_TIMEOUT).await.unwrap_or_default();
            let page = String::from_utf8_lossy(&page);
            let lines = page.lines().filter(|line| line.starts_with(name));
            sum +=
                lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>();
        }
        sum
    }

    /// The directory of a node's cache, as this process sees it.
    pub(super) fn cache(&self, at: usize) -> PathBuf {
        let cache = cache(self.directory.path(), at);
        match self.nodes[at].pid() {
            // A node may have file systems of its own.
            Some(process) => {
                let rest = cache.strip_prefix("/").unwrap_or(&cache);
                PathBuf::from(format!("/proc/{process}/root")).join(rest)
            }
            None => cache,
        }
    }
}

/// The file that says how far the clock of a node is from the machine's.
fn clock(directory: &Path, at: usize) -> PathBuf {
    directory.join(format!("clock{at}"))
}

/// A node's cache, in a directory that can be a file system.
fn cache(directory: &Path, at: usize) -> PathBuf {
    directory.join(format!("disk{at}/cache"))
}

/// A node's configuration, as an operator would write it.
fn configuration(spec: &ClusterSpec<'_>, at: usize, all: &[Addresses], cache: &Path) -> String {
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
token = "{token}"

[log]
access = "stdout"

[peering]
listen = "{peers}"
secret = "{token}"

[peering.health_check]
interval = "250ms"
timeout = "1s"

[limits]
memory = "{memory}MiB"

[cache]
memory = "8MiB"

[cache.disk]
path = "{cache}"
size = "128MiB"

[[site]]
hosts = "{HOST_NAME}"
origin = "http://{origin}"

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
        memory = MEMORY >> 20,
    );
    for (at, node) in all.iter().enumerate() {
        text += &format!("\n[[peer]]\nname = \"node{at}\"\naddress = \"{}\"\n", node.peers);
    }
    text
}

/// The machine's own address for clients and origins, without emulated hosts.
pub(super) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// `limits.memory` of the nodes.
pub(super) const MEMORY: u64 = 160 << 20;
/// The wait before a node is started at other ports.
const PORT_BACKOFF: Duration = Duration::from_millis(200);
/// The timeout for a page of a node: a node that a fault keeps busy is left out.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
