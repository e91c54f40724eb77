//! The nodes: processes of this same executable, each with a configuration file of its own.

use std::{
    fs::File,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tokio::process::{Child, ChildStdin, Command};

use super::{
    config,
    setup::{Setup, node_name},
};
use crate::command::ask;

/// All nodes. They end when this is dropped, and also when this process is killed: each of them
/// watches the pipe that is its standard input.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    directory: TempDir,
}

/// One node and where it is reached.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) addresses: Addresses,
    config: PathBuf,
    log: PathBuf,
    process: Option<Process>,
}

/// The addresses of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) clients: SocketAddr,
    pub(crate) peers: SocketAddr,
    pub(crate) admin: SocketAddr,
}

struct Process {
    child: Child,
    /// Closed by the system when this process ends, however it ends.
    _leash: Option<ChildStdin>,
}

impl Cluster {
    /// Starts all nodes and waits until each of them is ready.
    ///
    /// # Errors
    /// When a node does not start, with what it said.
    pub(super) async fn start(setup: &Setup, origin: SocketAddr) -> anyhow::Result<Self> {
        let mut tries = 1;
        loop {
            let mut cluster = Self::prepare(setup, origin)?;
            match cluster.start_all().await {
                Ok(()) => return Ok(cluster),
                // Somebody took one of the ports between its release and its use.
                Err(error) if tries < PORT_TRIES && port_was_taken(&error) => tries += 1,
                Err(error) => return Err(error),
            }
            cluster.stop().await;
        }
    }

    fn prepare(setup: &Setup, origin: SocketAddr) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("levada-demo-")
            .tempdir()
            .context("cannot make a temporary directory (TMPDIR chooses where)")?;
        let all = free_addresses(setup.nodes).context("no free ports on 127.0.0.1")?;
        let secret = secret()?;
        let mut nodes = Vec::new();
        for (index, addresses) in all.iter().enumerate() {
            let name = node_name(index);
            let config = directory.path().join(format!("{name}.toml"));
            std::fs::write(&config, config::text(setup, origin, &secret, index, &all))?;
            let log = directory.path().join(format!("{name}.log"));
            nodes.push(Node::new(name, *addresses, config, log));
        }
        Ok(Self { nodes, directory })
    }

    async fn start_all(&mut self) -> anyhow::Result<()> {
        for node in &mut self.nodes {
            node.spawn()?;
        }
        for node in &mut self.nodes {
            node.ready().await?;
        }
        Ok(())
    }

    /// Where configurations and logs are.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends all nodes and waits for them.
    pub(super) async fn stop(mut self) {
        for node in &mut self.nodes {
            node.kill().await;
        }
    }
}

impl Node {
    /// A node with its configuration and where it logs; it does not run yet.
    pub(crate) fn new(name: String, addresses: Addresses, config: PathBuf, log: PathBuf) -> Self {
        Self { name, addresses, config, log, process: None }
    }

    /// The number of its process, while there is one.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref()?.child.id()
    }

    /// Starts the process. It may not be ready yet.
    ///
    /// # Errors
    /// When this executable cannot be run.
    pub(crate) fn spawn(&mut self) -> anyhow::Result<()> {
        let executable = std::env::current_exe().context("cannot find this executable")?;
        let mut child = Command::new(executable)
            .args(["--log-level", "warn", "run", "--stop-with-stdin", "-c"])
            .arg(&self.config)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(&self.log)?)
            // Ctrl-c is for the demo, which then ends its nodes.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start node {}", self.name))?;
        let leash = child.stdin.take();
        self.process = Some(Process { child, _leash: leash });
        Ok(())
    }

    /// Waits until it serves.
    ///
    /// # Errors
    /// When it ends instead, or takes too long; with the end of its log.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            if ask::get(self.addresses.admin, "/readyz", ANSWER).await.is_ok() {
                return Ok(());
            }
            let ended = match &mut self.process {
                Some(process) => process.child.try_wait()?,
                None => bail!("node {} is not running", self.name),
            };
            if let Some(status) = ended {
                bail!("node {} ended with {status}: {}", self.name, self.last_words());
            }
            if begun.elapsed() > START {
                bail!("node {} did not start within {START:?}: {}", self.name, self.last_words());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the process, as `kill -9` does, and waits for its end.
    pub(crate) async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // An error says that it has ended already.
            let _ = process.child.kill().await;
        }
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

/// Three free ports for each node. All are held before any is released, so that none comes twice.
pub(crate) fn free_addresses(nodes: usize) -> std::io::Result<Vec<Addresses>> {
    let mut held = Vec::new();
    let mut take = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr();
        held.push(listener);
        address
    };
    (0..nodes).map(|_| Ok(Addresses { clients: take()?, peers: take()?, admin: take()? })).collect()
}

fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 24];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn port_was_taken(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}").to_lowercase();
    text.contains("address already in use") || text.contains("address in use")
}

pub(crate) const PORT_TRIES: usize = 5;
const ANSWER: Duration = Duration::from_millis(500);
const START: Duration = Duration::from_secs(20);
