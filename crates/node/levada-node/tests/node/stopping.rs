//! Nodes that stop, in order or at once.

use std::time::{Duration, Instant};

use crate::support::*;

#[tokio::test]
async fn running_downloads_finish_and_new_connections_are_refused() {
    let origin = Origin::start().await;
    let node = start(single(&[origin.address])).await;
    let at = node.addresses.clients[0];
    let gate = Gate::new();
    for (path, caching) in [("/stored", "max-age=60"), ("/passed", "no-store")] {
        let pieces = vec![
            Piece::Bytes(b"half".to_vec()),
            Piece::Gate(gate.clone()),
            Piece::Bytes(b"rest".to_vec()),
        ];
        let reply = Reply::ok("").with("content-length", "8").pieces(pieces);
        origin.on(path, reply.with("cache-control", caching));
    }
    let mut wires = Vec::new();
    for path in ["/stored", "/passed"] {
        let mut wire = Wire::saying(at, head_of("GET", path, &[])).await;
        assert_eq!(wire.head().await.status, 200);
        wires.push(wire);
    }
    let stopped = tokio::spawn(node.stop());
    within(async {
        while tokio::net::TcpStream::connect(at).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!stopped.is_finished());
    gate.open();
    for wire in &mut wires {
        assert_eq!(wire.rest().await, b"halfrest");
    }
    within(stopped).await.unwrap();
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_a_stop() {
    let authority = secure::Authority::new();
    let certificate = authority.issue(&["a.test"]);
    let origin = Origin::start().await;
    for (tls, h2c) in [(false, false), (false, true), (true, false)] {
        let mut settings = single(&[origin.address]);
        settings.listeners[0].h2c = h2c;
        settings.listeners[0].tls = if tls { vec![certificate.clone()] } else { Vec::new() };
        let node = start(settings).await;
        let at = node.addresses.clients[0];
        // One connection without a byte, one with half a request, one that waits for its next request.
        let _silent = Wire::to(at).await;
        let _half = Wire::saying(at, "GET /a HT").await;
        let mut idle = Wire::to(at).await;
        if !tls {
            idle.send(head_of("GET", "/a", &[])).await;
            assert_eq!(idle.answer().await.status, 200);
        }
        let _admin = Wire::to(node.addresses.admin.unwrap()).await;
        settled(&node).await;
        let began = Instant::now();
        node.stop().await;
        assert!(began.elapsed() < Duration::from_secs(4), "{tls} {h2c}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn connection_whose_first_request_is_on_its_way_is_answered() {
    let origin = Origin::start().await;
    // The request has a second to come, in which this machine may do something else.
    for attempt in 0.. {
        let node = start(single(&[origin.address])).await;
        let at = node.addresses.clients[0];
        let mut wire = Wire::to(at).await;
        let stopped = tokio::spawn(node.stop());
        within(async { while tokio::net::TcpStream::connect(at).await.is_ok() {} }).await;
        wire.send(head_of("GET", "/a", &[])).await;
        let answer = wire.answer().await;
        within(stopped).await.unwrap();
        if answer.status == 200 {
            assert_eq!(answer.field("connection"), "close");
            break;
        }
        assert!(attempt < 5, "it is closed without an answer");
    }
}

#[tokio::test]
async fn drain_timeout_cuts_what_is_left() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.limits.drain_timeout = Duration::from_millis(300);
    let node = start(settings).await;
    origin.on("/a", Reply::ok("late").after(&Gate::new()));
    let mut wire = Wire::saying(node.addresses.clients[0], head_of("GET", "/a", &[])).await;
    eventually("it is asked", || origin.hits("/a") == 1).await;
    within(node.stop()).await;
    assert_eq!(wire.answer().await.status, 0);
}

#[tokio::test]
async fn dropped_node_is_gone_at_once() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.sites[0].servers.health = nodes::watched();
    settings.sites[0].servers.health.path = Some("/up".to_owned());
    let node = start(settings.clone()).await;
    let at = node.addresses.clients[0];
    origin.on("/a", Reply::ok("late").after(&Gate::new()));
    let mut busy = Wire::saying(at, head_of("GET", "/a", &[])).await;
    let mut idle = Wire::saying(at, head_of("GET", "/b", &[])).await;
    assert_eq!(idle.answer().await.status, 200);
    eventually("it is asked", || origin.hits("/a") == 1).await;
    drop(node);
    assert_eq!(busy.answer().await.status, 0);
    assert!(idle.rest().await.is_empty());
    within(async {
        while tokio::net::TcpStream::connect(at).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // No task goes on: the origin is not probed any more.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let probes = origin.hits("/up");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(origin.hits("/up"), probes);
    // And its address is free.
    settings.listeners[0].address = at;
    let again = start(settings).await;
    assert_eq!(get(at, "/b").await.status, 200);
    settled(&again).await;
}
