//! All changes, in the order of the table. docs/lab/changes.md describes them.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, ensure};
use futures_util::future::LocalBoxFuture;
use http::StatusCode;
use levada_testbed::cluster::client::handshake;
use tokio::{net::TcpStream, time::sleep};

use super::{
    client::get,
    handed::FRONT,
    nodes::{ChangedNodes, NODES},
    settings::HOST_NAME,
};

/// A change.
pub(super) struct Change {
    pub(super) name: &'static str,
    /// Makes it for the n-th time, and verifies that it has taken effect.
    pub(super) make: Make,
    /// How often it can be made.
    pub(super) most: Option<u32>,
    /// Whether the listening sockets outlive the processes of the nodes.
    pub(super) holds_sockets: bool,
}

type Make = for<'a> fn(&'a mut ChangedNodes, u32) -> LocalBoxFuture<'a, anyhow::Result<()>>;

/// A change as a function that can be listed.
macro_rules! change {
    ($make:ident) => {
        |nodes, turn| Box::pin($make(nodes, turn))
    };
}

impl Change {
    const fn new(name: &'static str, make: Make) -> Self {
        Self { name, make, most: None, holds_sockets: false }
    }
}

/// All changes.
pub(super) const CHANGES: &[Change] = &[
    Change::new("none", change!(none)),
    Change::new("certificate", change!(certificate)),
    Change::new("listener", change!(listener)),
    Change::new("limits", change!(limits)),
    Change::new("site", change!(site)),
    Change::new("policy", change!(policy)),
    Change { most: Some(1), ..Change::new("peer-added", change!(peer_added)) },
    Change { most: Some(1), ..Change::new("peer-removed", change!(peer_removed)) },
    Change::new("upgrade", change!(upgrade)),
    Change { holds_sockets: true, ..Change::new("restart", change!(restart)) },
];

/// Nothing, for comparison.
async fn none(_nodes: &mut ChangedNodes, _turn: u32) -> anyhow::Result<()> {
    sleep(CHANGE_INTERVAL).await;
    Ok(())
}

/// New certificates with new keys in the files of all nodes.
async fn certificate(nodes: &mut ChangedNodes, _turn: u32) -> anyhow::Result<()> {
    for at in nodes.serving() {
        let renewed = nodes.renew(at)?;
        nodes.reload(&[at], "").await?;
        let shown = nodes.door(at).client.certificate().await?;
        ensure!(shown == renewed, "node{at} shows its former certificate");
    }
    sleep(CHANGE_INTERVAL).await;
    Ok(())
}

/// One more listener at each node, which goes again.
async fn listener(nodes: &mut ChangedNodes, _turn: u32) -> anyhow::Result<()> {
    let all = nodes.serving();
    nodes.settings.extra = true;
    nodes.reload(&all, "[[listen]]").await?;
    let mut kept = Vec::new();
    for at in &all {
        let address = nodes.places[*at].extra;
        let stream = TcpStream::connect(address).await.context("the new listener")?;
        let mut connection = handshake(stream).await?;
        let response = connection.send_request(get("/object/0", false)).await?;
        ensure!(response.status() == StatusCode::OK, "the new listener: {}", response.status());
        drop(http_body_util::BodyExt::collect(response.into_body()).await?);
        kept.push((address, connection));
    }
    sleep(CHANGE_INTERVAL / 2).await;
    nodes.settings.extra = false;
    nodes.reload(&all, "[[listen]]").await?;
    for (address, mut connection) in kept {
        let response = connection.send_request(get("/object/0", false)).await;
        let response = response.context("an old connection of a listener that is gone")?;
        ensure!(response.status() == StatusCode::OK, "an old connection: {}", response.status());
        drop(http_body_util::BodyExt::collect(response.into_body()).await?);
        let mut looks = 0;
        while TcpStream::connect(address).await.is_ok() {
            ensure!(looks < MOST_CHECKS, "{address} still accepts connections");
            looks += 1;
            sleep(CHECK_INTERVAL).await;
        }
    }
    sleep(CHANGE_INTERVAL / 2).await;
    Ok(())
}

/// Other limits, and back.
async fn limits(nodes: &mut ChangedNodes, turn: u32) -> anyhow::Result<()> {
    nodes.settings.limits = [(2048, 8000, 0.1), (3072, 10_000, 0.2)][turn as usize % 2];
    nodes.reload(&nodes.serving(), "[limits]").await?;
    sleep(CHANGE_INTERVAL).await;
    Ok(())
}

/// Another lifetime at the site, and a second site that comes and goes.
async fn site(nodes: &mut ChangedNodes, turn: u32) -> anyhow::Result<()> {
    let host = format!("second{turn}.{HOST_NAME}");
    nodes.settings.ttl = 60 + turn % 2;
    nodes.settings.second = Some(host.clone());
    let all = nodes.serving();
    nodes.reload(&all, &host).await?;
    for at in all {
        let stream = TcpStream::connect(nodes.places[at].addresses.clients).await?;
        let mut connection = handshake(stream).await?;
        let mut asked = get("/object/0", true);
        asked.headers_mut().insert(http::header::HOST, host.parse()?);
        let status = connection.send_request(asked).await?.status();
        ensure!(status == StatusCode::OK, "node{at} answers for the new site with {status}");
    }
    sleep(CHANGE_INTERVAL).await;
    Ok(())
}

/// Another policy, and back.
async fn policy(nodes: &mut ChangedNodes, turn: u32) -> anyhow::Result<()> {
    nodes.settings.policy = ["hrw", "adaptive"][turn as usize % 2];
    nodes.reload(&nodes.serving(), HOST_NAME).await?;
    sleep(CHANGE_INTERVAL).await;
    Ok(())
}

/// A fifth node starts, and the others get to know it.
async fn peer_added(nodes: &mut ChangedNodes, _turn: u32) -> anyhow::Result<()> {
    let all = nodes.serving();
    nodes.settings.peers.push(NODES);
    nodes.write()?;
    nodes.add(NODES).await?;
    nodes.reload(&all, &format!("peer node{NODES} added")).await
}

/// A node leaves: clients get to know it first, as from a load balancer, then its peers, and then it ends.
async fn peer_removed(nodes: &mut ChangedNodes, _turn: u32) -> anyhow::Result<()> {
    let gone = NODES - 1;
    nodes.settings.peers.retain(|at| *at != gone);
    nodes.door(gone).serves.set(false);
    let others = nodes.serving();
    nodes.reload(&others, &format!("peer node{gone} removed")).await?;
    sleep(CHANGE_INTERVAL).await;
    nodes.remove(gone).await
}

/// A new process in the place of each node's, one node after another; back-ends and front-end last.
async fn upgrade(nodes: &mut ChangedNodes, _turn: u32) -> anyhow::Result<()> {
    for at in nodes.serving() {
        upgrade_one(nodes, &format!("node{at}"), nodes.places[at].addresses.admin).await?;
    }
    if let Some(handed) = &nodes.handed {
        for (name, admin) in handed.admins() {
            if name == FRONT {
                handed.keep_count().await?;
            }
            upgrade_one(nodes, &name, admin).await?;
        }
    }
    sleep(CHANGE_INTERVAL).await;
    Ok(())
}

async fn upgrade_one(nodes: &ChangedNodes, name: &str, admin: SocketAddr) -> anyhow::Result<()> {
    let before = nodes.uptime(admin).await?;
    let told = nodes.order(admin, "/upgrade").await?;
    let (old, new) = (told["old"].as_u64(), told["new"].as_u64());
    ensure!(new.is_some() && new != old, "{name} was not upgraded: {told}");
    let now = nodes.uptime(admin).await?;
    ensure!(now < before, "the process that answers at {name} runs for {now} s");
    Ok(())
}

/// Each node stops in order and starts again, one after another. Their listening sockets stay, as with systemd.
async fn restart(nodes: &mut ChangedNodes, _turn: u32) -> anyhow::Result<()> {
    for at in nodes.serving() {
        let admin = nodes.places[at].addresses.admin;
        let before = nodes.uptime(admin).await?;
        nodes.remove(at).await?;
        nodes.add(at).await?;
        let now = nodes.uptime(admin).await?;
        ensure!(now < before, "the process that answers at node{at} runs for {now} s");
        sleep(CHANGE_INTERVAL).await;
    }
    Ok(())
}

/// The time between changes: long enough for hundreds of requests.
const CHANGE_INTERVAL: Duration = Duration::from_millis(500);
/// The interval of checks whether an address accepts connections, and the most checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
const MOST_CHECKS: u32 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_has_its_row_in_the_documentation() {
        let page = include_str!("../../../../../docs/lab/changes.md");
        for change in CHANGES {
            assert!(page.contains(&format!("\n| `{}` | ", change.name)), "{}", change.name);
        }
    }
}
