//! The nodes: processes of this same executable, each with a configuration file of its own.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::Context as _;
use levada_client::command::{
    admin_client,
    node::{Node, PORT_TRIES, free_addresses, port_was_taken},
};
use levada_config::PolicyChoice;
use tempfile::TempDir;

use super::{
    config,
    setup::{Setup, node_name},
};

/// All nodes. They end when this is dropped, and also when this process is killed.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    /// How often they were started again, because another program had taken a port.
    pub(super) restarts: usize,
    directory: TempDir,
    origin: SocketAddr,
    secret: String,
}

impl Cluster {
    /// Starts all nodes and waits until each of them is ready.
    ///
    /// # Errors
    /// If a node does not start, with the end of its log.
    pub(super) async fn start(setup: &Setup, origin: SocketAddr) -> anyhow::Result<Self> {
        let mut tries = 1;
        loop {
            let mut cluster = Self::prepare(setup, origin)?;
            match cluster.start_all().await {
                Ok(()) => {
                    cluster.restarts = tries - 1;
                    return Ok(cluster);
                }
                // Another process took one of the ports between its release and its use.
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
            let text = config::text((setup, &setup.policy), origin, &secret, index, &all);
            std::fs::write(&config, text)?;
            let log = directory.path().join(format!("{name}.log"));
            nodes.push(Node::new(name, *addresses, config, log));
        }
        Ok(Self { nodes, restarts: 0, directory, origin, secret })
    }

    /// Changes the policy of all nodes: writes new configurations, and lets the nodes read them.
    ///
    /// # Errors
    /// If a node that runs refuses.
    pub(super) async fn change_policy(
        &self,
        setup: &Setup,
        policy: PolicyChoice,
    ) -> anyhow::Result<()> {
        let all: Vec<_> = self.nodes.iter().map(|node| node.addresses).collect();
        for (index, node) in self.nodes.iter().enumerate() {
            let text = config::text((setup, &policy), self.origin, &self.secret, index, &all);
            std::fs::write(self.directory().join(format!("{}.toml", node.name)), text)?;
        }
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            let nothing = serde_json::Value::Null;
            admin_client::post(node.addresses.admin, "/reload", &nothing, None, RELOAD).await?;
        }
        Ok(())
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

    /// The directory of configurations and logs.
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

const RELOAD: Duration = Duration::from_secs(10);

fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 24];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
