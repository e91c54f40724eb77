//! The nodes: processes of this same executable, whose configuration changes while they run.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use levada_client::command::{
    admin_client,
    node::{Addresses, Node, PORT_TRIES, free_addresses, port_was_taken},
};
use levada_net::lab::LabCluster;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::{
    client::NodeClient,
    handed::HandedNodes,
    held_sockets::hold,
    settings::{ClusterSettings, LabAuthority, NodePlace},
};
use crate::emulation::cluster::directory;

/// A node as the load sees it.
pub(super) struct ChangedDoor {
    /// Whether clients send it requests.
    pub(super) serves: Cell<bool>,
    pub(super) client: NodeClient,
}

/// The cluster. Its processes end when this is dropped.
pub(super) struct ChangedNodes {
    pub(super) settings: ClusterSettings,
    pub(super) doors: Rc<RefCell<Vec<Rc<ChangedDoor>>>>,
    pub(super) places: Vec<NodePlace>,
    /// The front-end and its back-ends, if connections are handed off.
    pub(super) handed: Option<HandedNodes>,
    authority: LabAuthority,
    nodes: Vec<Node>,
    directory: TempDir,
}

impl ChangedNodes {
    /// Starts four nodes, with places for one more, and on `hosts` a front-end with back-ends. With `holds_sockets`,
    /// the listening sockets of the four outlive their processes.
    ///
    /// # Errors
    /// If a node does not start, with its log.
    pub(super) async fn start(
        origin: SocketAddr,
        seed: u32,
        holds_sockets: bool,
        hosts: Option<&LabCluster>,
    ) -> anyhow::Result<Self> {
        let mut tries = 1;
        loop {
            let prepared = Self::prepare(origin, seed, holds_sockets);
            let started = async {
                let mut nodes = prepared?;
                nodes.start_all(hosts).await.map(|()| nodes)
            };
            match started.await {
                Ok(nodes) => return Ok(nodes),
                // Another process took one of the ports between its release and its use.
                Err(error) if tries < PORT_TRIES && port_was_taken(&error) => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn prepare(origin: SocketAddr, seed: u32, holds_sockets: bool) -> anyhow::Result<Self> {
        let (directory, authority) = (directory()?, LabAuthority::new()?);
        let token = format!("{:032x}", u64::from(std::process::id()) << 32 | u64::from(seed));
        let all = free_addresses(2 * (NODES + 1)).context("no free ports on 127.0.0.1")?;
        let (mut places, mut nodes, mut doors) = (Vec::new(), Vec::new(), Vec::new());
        for (at, pair) in all.chunks_exact(2).enumerate() {
            let (name, own) = (format!("node{at}"), directory.path().join(format!("node{at}")));
            std::fs::create_dir_all(own.join("cache"))?;
            authority.renew(&own)?;
            let (addresses, https) = (pair[0], pair[1].clients);
            let client = NodeClient::new(addresses.clients, https, &authority.certificate)?;
            doors.push(Rc::new(ChangedDoor { serves: Cell::new(false), client }));
            let (config, log) = (own.join("levada.toml"), own.join("log"));
            let node = Node::new(name.clone(), addresses, config, log);
            let Addresses { clients, peers, admin } = addresses;
            nodes.push(match holds_sockets && at < NODES {
                true => hold(node, &[clients, https, peers, admin])?,
                false => node,
            });
            let extra = pair[1].peers;
            places.push(NodePlace { name, addresses, https, extra, directory: own });
        }
        Ok(Self {
            settings: ClusterSettings::new(origin, token, NODES),
            doors: Rc::new(RefCell::new(doors)),
            places,
            handed: None,
            authority,
            nodes,
            directory,
        })
    }

    async fn start_all(&mut self, hosts: Option<&LabCluster>) -> anyhow::Result<()> {
        self.write()?;
        for at in 0..NODES {
            self.nodes[at].spawn()?;
        }
        for at in 0..NODES {
            self.nodes[at].ready().await?;
            self.door(at).serves.set(true);
        }
        if let Some(hosts) = hosts {
            let ClusterSettings { origin, token, .. } = &self.settings;
            let directory = self.directory.path();
            let handed = HandedNodes::start(hosts, *origin, directory, token, &self.authority);
            self.handed = Some(handed.await?);
        }
        Ok(())
    }

    /// The node as the load sees it.
    pub(super) fn door(&self, at: usize) -> Rc<ChangedDoor> {
        self.doors.borrow()[at].clone()
    }

    /// The nodes that clients use.
    pub(super) fn serving(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|at| self.door(*at).serves.get()).collect()
    }

    /// Starts a node, and opens it to clients when it is ready.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) async fn add(&mut self, at: usize) -> anyhow::Result<()> {
        self.nodes[at].spawn()?;
        self.nodes[at].ready().await?;
        self.door(at).serves.set(true);
        Ok(())
    }

    /// Ends a node that clients do not use any more. The requests that it has end well.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub(super) async fn remove(&mut self, at: usize) -> anyhow::Result<()> {
        let process = self.nodes[at].pid().and_then(|process| i32::try_from(process).ok());
        let process = process.and_then(Pid::from_raw).context("it has ended by itself")?;
        kill_process(process, Signal::TERM)?;
        let ended = tokio::time::timeout(END_TIMEOUT, self.nodes[at].end()).await;
        ended.context("it does not end")??;
        Ok(())
    }

    /// Writes the files of all nodes.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        for place in &self.places {
            let file = place.directory.join("levada.toml");
            std::fs::write(file, self.settings.file(place, &self.places))?;
        }
        Ok(())
    }

    /// Writes all files and lets the nodes read them; each must say that this has changed.
    ///
    /// # Errors
    /// If a node refuses.
    pub(super) async fn reload(&self, nodes: &[usize], change: &str) -> anyhow::Result<()> {
        self.write()?;
        for at in nodes {
            let told = self.order(self.places[*at].addresses.admin, "/reload").await?;
            let changed = told["changed"].to_string();
            if !changed.contains(change) {
                bail!("node{at} says that {changed} has changed, not {change}");
            }
        }
        Ok(())
    }

    /// Gives the node with this address for operators an order; returns its answer.
    ///
    /// # Errors
    /// If it refuses.
    pub(super) async fn order(&self, admin: SocketAddr, target: &str) -> anyhow::Result<Value> {
        let token = &self.settings.token;
        let answer =
            admin_client::post(admin, target, &json!({}), Some(token), ANSWER_TIMEOUT).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// The seconds for which the process runs that answers at the admin listener.
    ///
    /// # Errors
    /// If none answers.
    pub(super) async fn uptime(&self, admin: SocketAddr) -> anyhow::Result<f64> {
        let status: Value =
            serde_json::from_slice(&admin_client::get(admin, "/status", ANSWER_TIMEOUT).await?)?;
        status["uptime_seconds"].as_f64().context("/status has no uptime")
    }

    /// Renews the certificate of a node.
    ///
    /// # Errors
    /// If its files cannot be written.
    pub(super) fn renew(&self, at: usize) -> anyhow::Result<CertificateDer<'static>> {
        self.authority.renew(&self.places[at].directory)
    }
}

/// Nodes of the cluster.
pub(super) const NODES: usize = 4;
/// The timeout for a change of the settings, which a busy node checks before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout for a node to end: longer than it waits for its requests.
const END_TIMEOUT: Duration = Duration::from_secs(30);
