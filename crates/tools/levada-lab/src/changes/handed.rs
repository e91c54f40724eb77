//! A front-end that hands connections off to two back-ends, each on an emulated host of its own. Clients, origin and
//! the other nodes are on the clients' host.

use std::{
    cell::Cell,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use http_body_util::BodyExt as _;
use levada_client::command::{
    admin_client,
    node::{Addresses, configuration_head},
};
use levada_net::lab::LabCluster;
use levada_testbed::{
    cluster::{nodes::Nodes, spawn_on, until_handed_off},
    emulation::cluster::PREFIX,
};

use super::{
    client::{ClientKind, NodeClient},
    counts::Counts,
    nodes::ChangedDoor,
    settings::{LabAuthority, site_text},
};

/// The front-end and its back-ends. Their processes end when this is dropped.
pub(super) struct HandedNodes {
    /// The front-end as the load sees it.
    pub(super) door: Rc<ChangedDoor>,
    /// The back-ends, then the front-end.
    nodes: Nodes,
    /// Connections that former processes of the front-end handed off.
    before: Cell<u64>,
}

impl HandedNodes {
    /// Starts all, and waits until connections are handed off.
    ///
    /// # Errors
    /// If a node does not start, or no connection is handed off.
    pub(super) async fn start(
        hosts: &LabCluster,
        origin: SocketAddr,
        token: &str,
        authority: &LabAuthority,
    ) -> anyhow::Result<Self> {
        let client = NodeClient::new(service(), service(), &authority.certificate)?;
        let door = Rc::new(ChangedDoor { serves: Cell::new(true), client });
        let mut nodes = Nodes::new(PREFIX)?;
        std::fs::write(nodes.directory().join("handoff-secret"), token)?;
        let mut more = "after = \"stay\"\n\n[[site]]\nhosts = \"*\"\ncache = false\n\
                        policy = { name = \"lard/r\" }\nhealth_check = { interval = \"250ms\" }\n"
            .to_owned();
        let site = site_text("*", origin, 60);
        for at in 0..BACKS {
            let [own, taker] = back(at);
            let back = format!("listen = \"{taker}\"\nservices = \"{}\"\n{site}", service());
            add(&mut nodes, &format!("back{at}"), own, own.ip(), &back, token)?;
            more += &format!("[[site.server]]\nurl = \"http://{own}\"\nhandoff = \"{taker}\"\n");
        }
        add(&mut nodes, FRONT, service(), LabCluster::FRONT.into(), &more, token)?;
        let host = |at| hosts.backs.get(at).unwrap_or(&hosts.front);
        nodes.start(|at, node| spawn_on(Some(host(at)), || node.spawn())).await?;
        let handed = Self { door, nodes, before: Cell::default() };
        until_handed_off(BACKS.into(), "--no-handoff does without", async |number| {
            let (target, counts) = (format!("/object/{}", number % 100), Counts::default());
            let client = &handed.door.client;
            if let Ok((_, response)) =
                client.exchange(ClientKind::HandedNew, &target, &counts).await
            {
                drop(response.into_body().collect().await);
            }
            handed.count().await
        })
        .await?;
        Ok(handed)
    }

    /// The addresses for operators of all nodes, by their names: back-ends first.
    pub(super) fn admins(&self) -> Vec<(String, SocketAddr)> {
        self.nodes.all.iter().map(|node| (node.name.clone(), node.addresses.admin)).collect()
    }

    /// Keeps the count of a front-end that is about to be replaced.
    ///
    /// # Errors
    /// If it does not answer.
    pub(super) async fn keep_count(&self) -> anyhow::Result<()> {
        self.before.set(self.count().await?);
        Ok(())
    }

    /// Connections that were handed off and have ended, or have come back for another request.
    ///
    /// # Errors
    /// If the front-end does not answer.
    pub(super) async fn count(&self) -> anyhow::Result<u64> {
        let admin = self.nodes.all[usize::from(BACKS)].addresses.admin;
        let mut count = self.before.get();
        for result in ["ended", "given-back"] {
            let name = format!("levada_handoffs_total{{result=\"{result}\"}}");
            count += admin_client::metric(admin, &name, ANSWER_TIMEOUT).await? as u64;
        }
        Ok(count)
    }
}

/// Adds a node with this address of its own; `more` follows in its table `[handoff]`.
fn add(
    nodes: &mut Nodes,
    name: &str,
    clients: SocketAddr,
    own: IpAddr,
    more: &str,
    token: &str,
) -> anyhow::Result<()> {
    let admin = SocketAddr::new(own, ADMIN_PORT);
    let head = configuration_head(name, clients, admin);
    let head = head.replace("[admin]\n", &format!("[admin]\ntoken = \"{token}\"\n"));
    let handoff = format!(
        "\n[handoff]\ninterfaces = \"{}\"\nsecret_file = \"handoff-secret\"\n",
        LabCluster::DEVICE
    );
    let addresses = Addresses { clients, peers: clients, admin };
    nodes.all.push(nodes.node(name, addresses, &format!("{head}{handoff}{more}"))?);
    Ok(())
}

/// The address of the service.
fn service() -> SocketAddr {
    SocketAddr::from((LabCluster::SERVICE, 80))
}

/// Where a back-end serves what is not handed off, and where it takes what is.
fn back(at: u8) -> [SocketAddr; 2] {
    [8080, 7072].map(|port| SocketAddr::from((LabCluster::back(at), port)))
}

/// The name of the front-end.
pub(super) const FRONT: &str = "front";
/// Back-ends.
pub(super) const BACKS: u8 = 2;
const ADMIN_PORT: u16 = 9180;
/// The timeout for a page of a node, which has it at hand.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
