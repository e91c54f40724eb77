//! A front-end that hands connections off to two back-ends, each on an emulated host of its own. Clients, origin and
//! the other nodes are on the clients' host.

use std::{cell::Cell, net::SocketAddr, path::Path, rc::Rc, time::Duration};

use anyhow::ensure;
use levada_client::command::{
    admin_client,
    node::{Addresses, Node, configuration_head},
};
use levada_net::lab::{Host, LabCluster};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

use super::{
    client::{ClientKind, NodeClient},
    counts::Counts,
    nodes::ChangedDoor,
    settings::{LabAuthority, site_text},
};
use crate::cluster::{READY_INTERVAL, START_TIMEOUT};

/// The front-end and its back-ends. Their processes end when this is dropped.
pub(super) struct HandedNodes {
    /// The front-end as the load sees it.
    pub(super) door: Rc<ChangedDoor>,
    /// The back-ends, then the front-end.
    nodes: Vec<Node>,
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
        directory: &Path,
        token: &str,
        authority: &LabAuthority,
    ) -> anyhow::Result<Self> {
        std::fs::write(directory.join("handoff-secret"), token)?;
        let client = NodeClient::new(service(), service(), &authority.certificate)?;
        let door = Rc::new(ChangedDoor { serves: Cell::new(true), client });
        let mut handed = Self { door, nodes: Vec::new(), before: Cell::default() };
        let site = site_text("*", origin, 60);
        for (at, host) in (0..).zip(&hosts.backs) {
            let [own, taker] = back(at);
            let more = format!("listen = \"{taker}\"\nservices = \"{}\"\n{site}", service());
            handed.spawn(host, &format!("back{at}"), own, &more, directory, token)?;
        }
        for node in &mut handed.nodes {
            node.ready().await?;
        }
        let mut more = "after = \"stay\"\n\n[[site]]\nhosts = \"*\"\ncache = false\n\
                        policy = { name = \"lard/r\" }\nhealth_check = { interval = \"250ms\" }\n"
            .to_owned();
        for at in 0..BACKS {
            let [own, taker] = back(at);
            more += &format!("[[site.server]]\nurl = \"http://{own}\"\nhandoff = \"{taker}\"\n");
        }
        handed.spawn(&hosts.front, FRONT, service(), &more, directory, token)?;
        handed.front_mut().ready().await?;
        handed.until_handed_off().await?;
        Ok(handed)
    }

    /// Starts a node on its host; `more` follows in its table `[handoff]`.
    fn spawn(
        &mut self,
        host: &Host,
        name: &str,
        clients: SocketAddr,
        more: &str,
        directory: &Path,
        token: &str,
    ) -> anyhow::Result<()> {
        let own = if name == FRONT { LabCluster::FRONT.into() } else { clients.ip() };
        let admin = SocketAddr::new(own, ADMIN_PORT);
        let head = configuration_head(name, clients, admin);
        let head = head.replace("[admin]\n", &format!("[admin]\ntoken = \"{token}\"\n"));
        let handoff = format!(
            "\n[handoff]\ninterfaces = \"{}\"\nsecret_file = \"handoff-secret\"\n",
            LabCluster::DEVICE
        );
        let file = directory.join(format!("{name}.toml"));
        std::fs::write(&file, format!("{head}{handoff}{more}"))?;
        let addresses = Addresses { clients, peers: clients, admin };
        let log = directory.join(format!("{name}.log"));
        let mut node = Node::new(name.to_owned(), addresses, file, log);
        let runtime = Handle::current();
        host.namespace().run(|| {
            let _entered = runtime.enter();
            node.spawn()
        })??;
        self.nodes.push(node);
        Ok(())
    }

    /// Requests objects until both back-ends may have got connections: the front-end tries each once a second.
    async fn until_handed_off(&self) -> anyhow::Result<()> {
        let (begun, counts) = (Instant::now(), Counts::new());
        for number in 0.. {
            let target = format!("/object/{}", number % 100);
            let answered = self.door.client.exchange(ClientKind::HandedNew, &target, &counts).await;
            if let Ok((_, response)) = answered {
                drop(http_body_util::BodyExt::collect(response.into_body()).await);
            }
            if self.count().await? >= 2 * u64::from(BACKS) {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < START_TIMEOUT,
                "no connection is handed off here: --no-handoff does without"
            );
            sleep(READY_INTERVAL).await;
        }
        Ok(())
    }

    /// The addresses for operators of all nodes, by their names: back-ends first.
    pub(super) fn admins(&self) -> Vec<(String, SocketAddr)> {
        self.nodes.iter().map(|node| (node.name.clone(), node.addresses.admin)).collect()
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
        let admin = self.nodes[self.nodes.len() - 1].addresses.admin;
        let metrics = admin_client::get(admin, "/metrics", ANSWER_TIMEOUT).await?;
        let metrics = String::from_utf8_lossy(&metrics);
        let of = |result: &str| {
            let name = format!("levada_handoffs_total{{result=\"{result}\"}}");
            metrics.lines().find_map(|line| line.strip_prefix(&*name)?.trim().parse::<u64>().ok())
        };
        let over: u64 = ["ended", "given-back"].into_iter().filter_map(of).sum();
        Ok(self.before.get() + over)
    }

    fn front_mut(&mut self) -> &mut Node {
        let front = self.nodes.len() - 1;
        &mut self.nodes[front]
    }
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
