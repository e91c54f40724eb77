//! Keys that the nodes of a cluster make from its secret: a client comes to another node than before.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_config::Settings;
use rustls::version::TLS13;

use crate::{
    client_sessions::{Client, FULL, RESUMED},
    support::{
        nodes::{metric, *},
        quic::{PacketPath, Trusting, Way, answer, request},
        *,
    },
};

/// Nodes of one cluster that serve HTTP/3, and a client's trust in them.
async fn nodes(origin: &Origin, count: usize) -> (Cluster, Trusting, secure::Authority) {
    let authority = secure::Authority::new();
    let certificate = authority.issue(&[HOST]);
    let cluster = Cluster::start(count, origin.address, |settings| {
        settings.listeners[0].tls = vec![certificate.clone()];
        settings.listeners[0].http3 = true;
        settings.limits.drain_timeout = Duration::from_millis(100);
    })
    .await;
    let trusting = Trusting::new(&authority.path());
    (cluster, trusting, authority)
}

#[tokio::test]
async fn session_over_tcp_is_resumed_at_another_node() {
    let origin = Origin::start().await;
    let (cluster, _, authority) = nodes(&origin, 2).await;
    let client = Client::new(&TLS13, &authority.path(), None);
    assert_eq!(client.ask(cluster.client(0)).await, FULL);
    assert_eq!(client.ask(cluster.client(1)).await, RESUMED);
}

#[tokio::test]
async fn session_over_quic_is_resumed_at_another_node_and_after_a_reload() {
    let origin = Origin::start().await;
    let (mut cluster, trusting, _authority) = nodes(&origin, 2).await;
    let visit = async |at| {
        let mut client = trusting.connect(at).await;
        assert_eq!(client.get("/a").await.status, 200);
        client.connection.close(0x100u32.into(), b"");
        client.endpoint.wait_idle().await;
        trusting.full_handshakes()
    };
    assert_eq!(visit(cluster.client(0)).await, 1);
    assert_eq!(visit(cluster.client(1)).await, 1, "resumed at another node");
    assert_eq!(cluster.reload(1, |_| {}).await.status, 200);
    assert_eq!(visit(cluster.client(1)).await, 1, "resumed after a reload");
    // Early data is for the node that keeps the session: elsewhere the client sends it again.
    let (client, accepted) = trusting.early(cluster.client(0)).await;
    assert!(!within(accepted).await);
    assert_eq!(trusting.full_handshakes(), 1);
    client.connection.close(0x100u32.into(), b"");
    client.endpoint.wait_idle().await;
    assert_eq!(visit(cluster.client(0)).await, 1);
    let (mut client, accepted) = trusting.early(cluster.client(0)).await;
    assert_eq!(client.get("/b").await.status, 200);
    assert!(within(accepted).await, "the node that made the ticket");
}

#[tokio::test]
async fn node_in_the_place_of_another_ends_connections_that_it_does_not_know() {
    let origin = Origin::start().await;
    let (mut cluster, trusting, _authority) = nodes(&origin, 2).await;
    let at = cluster.client(0);
    let open = Arc::new(AtomicBool::new(true));
    let passes = open.clone();
    let path = PacketPath::to(at, Box::new(move |_, _| passes.load(Relaxed))).await;
    let mut client = trusting.connect(path.address).await;
    assert_eq!(client.get("/a").await.status, 200);
    // The node is gone without a word, and another one of the cluster has its address.
    open.store(false, Relaxed);
    let gone = cluster.nodes[0].take().unwrap();
    gone.stop().await;
    cluster.nodes[1].take().unwrap().stop().await;
    // As long as it has its socket, it repeats that it has closed the connection.
    eventually("the socket is closed", || std::net::UdpSocket::bind(at).is_ok()).await;
    let mut settings: Settings = cluster.settings[1].clone();
    settings.listeners[0].address = at;
    let other = start(settings).await;
    open.store(true, Relaxed);
    let mut stream = client.send(request("GET", "/b")).await;
    within(stream.finish()).await.unwrap();
    let begun = std::time::Instant::now();
    let why = tokio::time::timeout(Duration::from_secs(5), client.connection.closed()).await;
    assert!(matches!(why, Ok(quinn::ConnectionError::Reset)), "{why:?}");
    println!("closed after {:?}", begun.elapsed());
    assert!(answer(&mut stream).await.is_err());
    let mut client = trusting.connect(path.address).await;
    assert_eq!(client.get("/b").await.status, 200);
    assert_eq!(metric(&other, "levada_quic_connections").await, 1.0);
}

#[tokio::test]
async fn node_without_a_cluster_ends_the_connections_of_before_its_restart() {
    let origin = Origin::start().await;
    let authority = secure::Authority::new();
    let mut settings = single(&[origin.address]);
    settings.listeners[0].tls = vec![authority.issue(&[HOST])];
    settings.listeners[0].http3 = true;
    settings.limits.drain_timeout = Duration::from_millis(100);
    let node = start(settings.clone()).await;
    let at = node.addresses.clients[0];
    let open = Arc::new(AtomicBool::new(true));
    let passes = open.clone();
    let path = PacketPath::to(at, Box::new(move |_, _| passes.load(Relaxed))).await;
    let mut client = Trusting::new(&authority.path()).connect(path.address).await;
    assert_eq!(client.get("/a").await.status, 200);
    open.store(false, Relaxed);
    node.stop().await;
    eventually("the socket is closed", || std::net::UdpSocket::bind(at).is_ok()).await;
    settings.listeners[0].address = at;
    let _again = start(settings).await;
    open.store(true, Relaxed);
    let mut stream = client.send(request("GET", "/b")).await;
    within(stream.finish()).await.unwrap();
    let why = within(client.connection.closed()).await;
    assert!(matches!(why, quinn::ConnectionError::Reset), "{why:?}");
}

#[tokio::test]
async fn address_that_a_client_has_proved_to_one_node_is_proved_to_the_others() {
    let origin = Origin::start().await;
    let (cluster, trusting, _authority) = nodes(&origin, 2).await;
    // Senders that never see what the first node answers, so that it asks for proofs.
    let spoofed = PacketPath::to(cluster.client(0), Box::new(|way, _| way == Way::ToNode)).await;
    let mut begun = Vec::new();
    while metric(cluster.node(0), "levada_quic_retries_total").await == 0.0 {
        for _ in 0..20 {
            begun.push(trusting.begin(spoofed.address));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // After the Retry packet, the client's packets reach the second node.
    let node = Arc::new(Mutex::new(cluster.client(0)));
    let (turned, second) = (node.clone(), cluster.client(1));
    let turn = move |way, _| {
        if way == Way::ToClient {
            *turned.lock().unwrap() = second;
        }
        true
    };
    let path = PacketPath::with(node, Box::new(turn)).await;
    let mut client = trusting.connect(path.address).await;
    assert_eq!(client.get("/a").await.status, 200);
    assert_eq!(metric(cluster.node(1), "levada_quic_connections").await, 1.0);
    drop(begun);
}
