//! The starter of clusters: nodes as processes of this same executable, with their files in one directory.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use levada_client::command::node::{Addresses, Node, PORT_TRIES, port_was_taken};
use tempfile::TempDir;
use tokio::time::sleep;

/// Nodes with a directory for their files. Their processes end when this is dropped, and also when this process is
/// killed.
pub struct Nodes {
    /// The nodes, in the order of [`start`](Self::start).
    pub all: Vec<Node>,
    directory: TempDir,
}

impl Nodes {
    /// No node yet; the name of the directory begins with `prefix`.
    ///
    /// # Errors
    /// If there can be no directory.
    pub fn new(prefix: &str) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir();
        let directory =
            directory.context("cannot make a temporary directory (TMPDIR chooses where)")?;
        Ok(Self { all: Vec::new(), directory })
    }

    /// The directory of configurations and logs.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the configuration of a node, for its start or a reload.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn configure(&self, name: &str, configuration: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.directory().join(format!("{name}.toml")), configuration)?)
    }

    /// A node with this configuration, which has its addresses as well. It is not yet one of these nodes.
    ///
    /// # Errors
    /// If its configuration cannot be written.
    pub fn node(
        &self,
        name: &str,
        addresses: Addresses,
        configuration: &str,
    ) -> anyhow::Result<Node> {
        self.configure(name, configuration)?;
        let [config, log] =
            ["toml", "log"].map(|end| self.directory().join(format!("{name}.{end}")));
        Ok(Node::new(name.to_owned(), addresses, config, log))
    }

    /// Starts all nodes, each as `spawn` says, and waits until each of them is ready.
    ///
    /// # Errors
    /// If one does not start, with the end of its log.
    pub async fn start(
        &mut self,
        mut spawn: impl FnMut(usize, &mut Node) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for (at, node) in self.all.iter_mut().enumerate() {
            spawn(at, node)?;
        }
        for node in &mut self.all {
            node.ready().await?;
        }
        Ok(())
    }

    /// Kills all nodes and waits for their ends.
    pub async fn stop(mut self) {
        for node in &mut self.all {
            node.kill().await;
        }
    }
}

/// Starts a cluster, and again when another process took one of its ports between their release and their use.
/// Returns how often that was.
///
/// # Errors
/// If it does not start.
pub async fn with_free_ports<C>(
    mut start: impl AsyncFnMut() -> anyhow::Result<C>,
) -> anyhow::Result<(C, usize)> {
    let mut restarts = 0;
    loop {
        match start().await {
            Err(error) if restarts + 1 < PORT_TRIES && port_was_taken(&error) => {
                restarts += 1;
                sleep(PORT_BACKOFF).await;
            }
            started => return Ok((started?, restarts)),
        }
    }
}

/// The wait before a cluster is started again.
const PORT_BACKOFF: Duration = Duration::from_millis(200);
