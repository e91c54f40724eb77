//! Servers at Unix sockets of the node's own machine.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use levada_config::{Origin as OriginSetting, Settings};
use levada_node::Running;

use crate::{
    support::{
        nodes::{metric, watched, *},
        *,
    },
    switch::{by, server, switch, switching},
};

/// A directory for sockets: their paths must be short.
fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("levada").tempdir_in("/tmp").unwrap()
}

/// A node whose only server is at this socket.
fn before(socket: &Path) -> Settings {
    let mut settings = single(&[]);
    settings.sites[0].servers.origins = vec![OriginSetting::Unix(socket.into())];
    settings
}

async fn node(settings: Settings) -> (Running, SocketAddr) {
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (node, at)
}

/// A web switch between a server at a Unix socket, `local`, and one at a TCP address, `remote`.
fn mixed(socket: &Path, remote: &Origin) -> Settings {
    let mut settings = switching("hrw", &[]);
    let local = levada_config::SwitchServer {
        origin: OriginSetting::Unix(socket.into()),
        ..server("local", remote.address)
    };
    switch(&mut settings).servers = vec![local, server("remote", remote.address)];
    settings
}

#[tokio::test]
async fn server_at_a_socket_is_asked_as_one_in_the_network_is() {
    let directory = directory();
    let socket = directory.path().join("app.sock");
    let origin = Origin::at_socket(&socket);
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    origin.on("/long", Reply::ok(body.clone()));
    let mut settings = before(&socket);
    settings.sites[0].handling.cache = false;
    let (node, at) = node(settings).await;
    let mut wire = Wire::to(at).await;
    for _ in 0..3 {
        wire.send(head_of("GET", "/long", &[])).await;
        let answer = wire.answer().await;
        assert!(answer.whole && answer.body == body);
    }
    wire.send(head_of("POST", "/new", &[("Content-Length", "5")]) + "hello").await;
    assert_eq!(wire.answer().await.status, 200);
    assert_eq!(origin.asked("/new")[0].body, b"hello");
    assert_eq!(origin.asked("/long")[0].header("host").as_deref(), Some(HOST));
    assert_eq!(origin.connections(), 1, "the connection is kept");
    assert_eq!(
        metric(&node, "levada_spliced_total").await,
        3.0,
        "the system moves the long bodies"
    );
    settled(&node).await;
}

#[tokio::test]
async fn what_keeps_a_node_from_a_socket_is_said_with_its_path() {
    let directory = directory();
    let missing = directory.path().join("missing.sock");
    let (_node, at) = node(before(&missing)).await;
    let answer = get(at, "/").await;
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("is the server running?"), "{}", answer.text());
    let status = answer.field("proxy-status");
    let named = format!("error=connection_refused; next-hop=\"unix:{}\"", missing.display());
    assert!(status.contains(&named), "{status}");

    // Left behind by a server that has ended.
    drop(Origin::at_socket(&missing));
    eventually_refused(at).await;
}

async fn eventually_refused(at: SocketAddr) {
    within(async {
        while !get(at, "/").await.text().contains("refuses connections") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn server_at_a_socket_is_watched() {
    let directory = directory();
    let socket: PathBuf = directory.path().join("app.sock");
    let remote = Origin::start().await;
    let local = Origin::at_socket(&socket);
    let mut settings = mixed(&socket, &remote);
    settings.sites[0].servers.health = watched();
    // Without a host name for the origin.
    settings.sites[0].hosts = vec!["*".to_owned()];
    settings.sites[0].servers.health.path = Some("/healthz".to_owned());
    let (node, at) = node(settings).await;
    let answered_by = async |name: &str| {
        within(async {
            let mut key = 0;
            loop {
                key += 1;
                let answer = get(at, &format!("/{key}")).await;
                assert_eq!(answer.status, 200, "{answer:?}");
                if by(&answer) == name {
                    break;
                }
            }
        })
        .await;
    };
    answered_by("local").await;
    within(async {
        while local.hits("/healthz") == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(local.asked("/healthz")[0].header("host").as_deref(), Some("localhost"));
    drop(local);
    std::fs::remove_file(&socket).unwrap();
    let down = async |expected: bool| {
        within(async {
            loop {
                let listed = admin_json(&node, "/servers").await.to_string();
                if listed.contains("\"down\"") == expected {
                    break;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    down(true).await;
    answered_by("remote").await;
    let _local = Origin::at_socket(&socket);
    down(false).await;
    answered_by("local").await;
    settled(&node).await;
}
