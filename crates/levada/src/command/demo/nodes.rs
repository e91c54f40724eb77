//! The nodes: processes of this same executable, each with a configuration file of its own.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use levada_client::command::{
    admin_client,
    node::{Addresses, free_addresses},
};
use levada_config::PolicyChoice;
use levada_testbed::cluster::nodes::{Nodes, with_free_ports};

use super::{
    config,
    setup::{Setup, node_name},
};

/// The nodes of the demo.
pub(super) struct Cluster {
    pub(super) nodes: Nodes,
    /// How often they were started again, because another program had taken a port.
    pub(super) restarts: usize,
    origin: SocketAddr,
    secret: String,
}

impl Cluster {
    /// Starts all nodes and waits until each of them is ready.
    ///
    /// # Errors
    /// If a node does not start, with the end of its log.
    pub(super) async fn start(setup: &Setup, origin: SocketAddr) -> anyhow::Result<Self> {
        let secret = secret()?;
        let (nodes, restarts) = with_free_ports(async || {
            let mut nodes = Nodes::new("levada-demo-")?;
            let all = free_addresses(setup.nodes).context("no free ports on 127.0.0.1")?;
            for (index, own) in all.iter().enumerate() {
                let text = config::text((setup, &setup.policy), origin, &secret, index, &all);
                nodes.all.push(nodes.node(&node_name(index), *own, &text)?);
            }
            nodes.start(|_, node| node.spawn()).await?;
            Ok(nodes)
        })
        .await?;
        Ok(Self { nodes, restarts, origin, secret })
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
        let all: Vec<Addresses> = self.nodes.all.iter().map(|node| node.addresses).collect();
        for (index, node) in self.nodes.all.iter().enumerate() {
            let text = config::text((setup, &policy), self.origin, &self.secret, index, &all);
            self.nodes.configure(&node.name, &text)?;
        }
        for node in self.nodes.all.iter().filter(|node| node.pid().is_some()) {
            let nothing = serde_json::Value::Null;
            admin_client::post(node.addresses.admin, "/reload", &nothing, None, RELOAD).await?;
        }
        Ok(())
    }
}

const RELOAD: Duration = Duration::from_secs(10);

fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 24];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
