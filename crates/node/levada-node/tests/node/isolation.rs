//! One client with too much of everything, and another that asks for something small.

use std::{net::SocketAddr, time::Duration};

use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::{
    http2,
    support::{nodes::Cluster, *},
};

/// A GET from 127.0.0.`client`; `None` when its connection was closed without an answer.
async fn get_from(client: u8, at: SocketAddr, target: &str) -> Option<u16> {
    let mut wire = Wire::over(connect_from(client, at).await);
    wire.send(head_of("GET", target, &[])).await;
    Some(wire.answer().await.status).filter(|status| *status != 0)
}

#[tokio::test]
async fn stalled_streams_of_one_client_leave_hits_to_others() {
    let (origin, node, at) = alone(|settings| {
        settings.listeners[0].h2c = true;
        settings.limits.capacity = 64;
    })
    .await;
    origin.on("/hit", Reply::cached(vec![b'x'; 100_000]));
    assert_eq!(get_from(2, at, "/hit").await, Some(200));
    let (mut senders, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (mut sender, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(0)
                .handshake::<_, http2::Body>(TokioIo::new(connect_from(2, at).await))
                .await
                .unwrap();
        tokio::spawn(connection);
        for _ in 0..64 {
            streams.push(within(sender.send_request(http2::ask("/hit"))).await.unwrap());
        }
        senders.push(sender);
    }
    let served = streams.iter().filter(|response| response.status() == 200).count();
    assert_eq!(served, 32, "half of the capacity");
    assert_eq!(node.counts().in_service, 32);
    for _ in 0..10 {
        assert_eq!(get_from(3, at, "/hit").await, Some(200));
    }
    drop((streams, senders));
    settled(&node).await;
}

#[tokio::test]
async fn open_connections_of_one_client_leave_some_to_others() {
    let (origin, node, at) = alone(|settings| settings.limits.connections = 20).await;
    origin.on("/hit", Reply::cached("x"));
    let mut open = Vec::new();
    for _ in 0..40 {
        open.push(connect_from(2, at).await);
    }
    assert_eq!(get_from(3, at, "/hit").await, Some(200));
    assert_eq!(get_from(2, at, "/hit").await, None, "closed at once");
    drop(open);
    while get_from(2, at, "/hit").await != Some(200) {}
    settled(&node).await;
}

#[tokio::test]
async fn silent_connections_to_the_peer_port_hold_no_peers_place() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |settings| {
        settings.limits.connections = 40;
        settings.limits.head_timeout = Duration::from_secs(600);
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(connect_from(2, cluster.peer(1)).await);
    }
    // From the same address, and from another one.
    let mut wire = cluster.peer_wire(1).await;
    wire.send(head_of("GET", "/a", &[])).await;
    assert_eq!(wire.answer().await.status, 200);
    let stream = connect_from(2, cluster.peer(1)).await;
    let mut wire = cluster.prove(1, stream).await;
    wire.send(head_of("GET", "/b", &[])).await;
    assert_eq!(wire.answer().await.status, 200);
    drop((silent, wire));
    cluster.settled().await;
}
