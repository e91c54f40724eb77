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
    node::{Addresses, free_addresses},
};
use levada_net::lab::LabCluster;
use levada_testbed::{
    cluster::{
        nodes::{Nodes, with_free_ports},
        tell,
    },
    emulation::cluster::PREFIX,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::{
    client::NodeClient,
    handed::HandedNodes,
    held_sockets::hold,
    settings::{ClusterSettings, LabAuthority, NodePlace},
};

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
    nodes: Nodes,
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
        let (mut nodes, _) = with_free_ports(async || {
            let mut nodes = Self::prepare(origin, seed, holds_sockets)?;
            // The fifth node is added later.
            let later = nodes.nodes.all.pop();
            nodes.nodes.start(|_, node| node.spawn()).await?;
            nodes.nodes.all.extend(later);
            Ok(nodes)
        })
        .await?;
        (0..NODES).for_each(|at| nodes.door(at).serves.set(true));
        if let Some(hosts) = hosts {
            let ClusterSettings { origin, token, .. } = &nodes.settings;
            let handed = HandedNodes::start(hosts, *origin, token, &nodes.authority);
            nodes.handed = Some(handed.await?);
        }
        Ok(nodes)
    }

    fn prepare(origin: SocketAddr, seed: u32, holds_sockets: bool) -> anyhow::Result<Self> {
        let (mut nodes, authority) = (Nodes::new(PREFIX)?, LabAuthority::new()?);
        let token = format!("{:032x}", u64::from(std::process::id()) << 32 | u64::from(seed));
        let settings = ClusterSettings::new(origin, token, NODES);
        let all = free_addresses(2 * (NODES + 1)).context("no free ports on 127.0.0.1")?;
        let (mut places, mut doors) = (Vec::new(), Vec::new());
        for (at, pair) in all.chunks_exact(2).enumerate() {
            let name = format!("node{at}");
            let directory = nodes.directory().join(&name);
            std::fs::create_dir_all(directory.join("cache"))?;
            authority.renew(&directory)?;
            let (addresses, https) = (pair[0], pair[1].clients);
            let client = NodeClient::new(addresses.clients, https, &authority.certificate)?;
            doors.push(Rc::new(ChangedDoor { serves: Cell::new(false), client }));
            places.push(NodePlace { name, addresses, https, extra: pair[1].peers, directory });
        }
        for (at, place) in places.iter().enumerate() {
            let node = nodes.node(&place.name, place.addresses, &settings.file(place, &places))?;
            let Addresses { clients, peers, admin } = place.addresses;
            nodes.all.push(match holds_sockets && at < NODES {
                true => hold(node, &[clients, place.https, peers, admin])?,
                false => node,
            });
        }
        let doors = Rc::new(RefCell::new(doors));
        Ok(Self { settings, doors, places, handed: None, authority, nodes })
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
        self.nodes.all[at].spawn()?;
        self.nodes.all[at].ready().await?;
        self.door(at).serves.set(true);
        Ok(())
    }

    /// Ends a node that clients do not use any more. The requests that it has end well.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub(super) async fn remove(&mut self, at: usize) -> anyhow::Result<()> {
        tell(&self.nodes.all[at], Signal::TERM)?;
        let ended = tokio::time::timeout(END_TIMEOUT, self.nodes.all[at].end()).await;
        ended.context("it does not end")??;
        Ok(())
    }

    /// Writes the files of all nodes.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        for place in &self.places {
            self.nodes.configure(&place.name, &self.settings.file(place, &self.places))?;
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
