//! Limits on requests in flight at an origin: one client's requests do not block another's.

use std::{net::SocketAddr, time::Duration};

use levada_config::MissLimits;
use tokio::task::JoinHandle;

use crate::support::*;

/// A node that sends up to `at_once` requests at the same time to an origin whose `/held` waits.
async fn world(at_once: usize, queue: usize) -> (Origin, Gate, levada_node::Running, SocketAddr) {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.sites[0].servers.misses = MissLimits { at_once, queue, wait: Duration::from_secs(60) };
    let node = start(settings).await;
    let (at, gate) = (node.addresses.clients[0], Gate::new());
    origin.on("/held", Reply::cached("held").after(&gate));
    (origin, gate, node, at)
}

/// A GET from an address of its own.
async fn get_from(client: u8, at: SocketAddr, target: &str) -> Answer {
    let mut wire = Wire::over(connect_from(client, at).await);
    wire.send(head_of("GET", target, &[])).await;
    wire.answer().await
}

/// Many requests of one client, each for another URL that waits at the origin.
fn flood(client: u8, at: SocketAddr, count: usize) -> Vec<JoinHandle<Answer>> {
    let ask =
        |number| async move { get_from(client, at, &format!("/held?{client}-{number}")).await };
    (0..count).map(|number| tokio::spawn(ask(number))).collect()
}

async fn statuses(flood: Vec<JoinHandle<Answer>>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in flood {
        statuses.push(within(request).await.unwrap().status);
    }
    statuses
}

#[tokio::test]
async fn client_with_many_random_urls_does_not_keep_another_away() {
    let (origin, gate, node, at) = world(8, 1000).await;
    let greedy = flood(2, at, 500);
    eventually("they wait", || node.counts().misses_waiting == 496).await;
    eventually("the others are there", || origin.heads() >= 4).await;
    assert_eq!(origin.heads(), 4, "half of the places");
    assert_eq!(get_from(3, at, "/a").await.text(), "/a");
    gate.open();
    assert!(statuses(greedy).await.iter().all(|status| *status == 200));
    settled(&node).await;
}

#[tokio::test]
async fn origin_never_sees_more_at_once_than_allowed() {
    let (origin, gate, node, at) = world(5, 1000).await;
    let floods: Vec<_> = (2..10).flat_map(|client| flood(client, at, 10)).collect();
    eventually("they wait", || node.counts().misses_waiting == 75).await;
    eventually("the others are there", || origin.heads() >= 5).await;
    assert_eq!((origin.heads(), node.counts().misses), (5, 5));
    gate.open();
    assert!(statuses(floods).await.iter().all(|status| *status == 200));
    settled(&node).await;
}

#[tokio::test]
async fn full_queue_is_a_503_for_who_fills_it() {
    let (_origin, gate, node, at) = world(1, 4).await;
    let mut held = flood(9, at, 1);
    eventually("the place is taken", || node.counts().misses == 1).await;
    let greedy = flood(2, at, 4);
    eventually("the queue is full", || node.counts().misses_waiting == 4).await;
    let refused = get_from(2, at, "/x").await;
    assert_eq!((refused.status, refused.field("retry-after")), (503, "1".to_owned()));
    let polite = tokio::spawn(get_from(3, at, "/y"));
    eventually("one gives way", || greedy.iter().any(JoinHandle::is_finished)).await;
    gate.open();
    assert_eq!(within(polite).await.unwrap().text(), "/y");
    held.extend(greedy);
    let statuses = statuses(held).await;
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 1, "{statuses:?}");
    settled(&node).await;
}

#[tokio::test]
async fn wait_that_is_over_is_a_503() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.sites[0].servers.misses =
        MissLimits { at_once: 1, queue: 5, wait: Duration::from_millis(100) };
    let node = start(settings).await;
    let (at, gate) = (node.addresses.clients[0], Gate::new());
    origin.on("/held", Reply::cached("held").after(&gate));
    let held = flood(2, at, 1);
    eventually("the place is taken", || node.counts().misses == 1).await;
    let late = get_from(3, at, "/x").await;
    assert_eq!((late.status, late.field("retry-after")), (503, "1".to_owned()));
    gate.open();
    assert_eq!(statuses(held).await, [200]);
    settled(&node).await;
}

#[tokio::test]
async fn stale_object_is_served_while_the_origin_is_full() {
    let (origin, gate, node, at) = world(1, 0).await;
    let old = Reply::cached("old").with("etag", "\"1\"").with("age", "100");
    origin.on("/old", old);
    assert_eq!(get(at, "/old").await.status, 200);
    settled(&node).await;
    let held = flood(2, at, 1);
    eventually("the place is taken", || node.counts().misses == 1).await;
    let stale = get(at, "/old").await;
    assert_eq!((stale.status, stale.text()), (200, "old".to_owned()));
    assert!(stale.field("cache-status").contains("fwd=stale; ttl=-"), "{stale:?}");
    gate.open();
    assert_eq!(statuses(held).await, [200]);
    settled(&node).await;
}

#[tokio::test]
async fn place_is_held_until_the_body_has_come() {
    let (origin, gate, node, at) = world(1, 5).await;
    let body =
        vec![Piece::Bytes(b"ab".to_vec()), Piece::Gate(gate.clone()), Piece::Bytes(b"c".to_vec())];
    origin.on("/slow", Reply::ok("").with("content-length", "3").pieces(body));
    let mut slow = Wire::saying(at, head_of("GET", "/slow", &[])).await;
    assert_eq!(slow.head().await.status, 200);
    let next = tokio::spawn(get_from(2, at, "/next"));
    eventually("it waits", || node.counts().misses_waiting == 1).await;
    assert_eq!(origin.heads(), 1);
    gate.open();
    assert_eq!(within(next).await.unwrap().text(), "/next");
    assert_eq!(slow.take(3).await, b"abc");
    settled(&node).await;
}

#[tokio::test]
async fn slow_readers_do_not_keep_others_from_the_origin() {
    let (origin, _gate, node, at) = world(2, 100).await;
    let body = Reply::ok(vec![b'x'; 60 << 20]).with("cache-control", "no-store");
    origin.on("/long", body);
    let mut readers = Vec::new();
    for client in [2, 3] {
        let mut wire = Wire::over(connect_from(client, at).await);
        wire.send(head_of("GET", "/long", &[])).await;
        assert_eq!(wire.head().await.status, 200);
        readers.push(wire);
    }
    assert_eq!(node.counts().misses, 2);
    assert_eq!(get_from(4, at, "/a").await.text(), "/a");
    // A reader that goes on gets the whole body.
    assert_eq!(readers.pop().unwrap().take(60 << 20).await.len(), 60 << 20);
    drop(readers);
    settled(&node).await;
}

#[tokio::test]
async fn greedy_clients_leave_a_place_at_the_origin() {
    let (origin, gate, node, at) = world(16, 1000).await;
    let greedy: Vec<_> = (2..=5).map(|client| flood(client, at, 100)).collect();
    eventually("they wait", || node.counts().misses_waiting >= 380).await;
    assert_eq!(get_from(6, at, "/a").await.text(), "/a");
    assert!(origin.heads() <= 16);
    gate.open();
    for flood in greedy {
        assert!(statuses(flood).await.iter().all(|status| *status == 200));
    }
    settled(&node).await;
}

#[tokio::test]
async fn known_clients_get_through_requests_that_are_never_answered() {
    let (origin, gate, node, at) = world(4, 4).await;
    for known in [3, 4] {
        assert_eq!(get_from(known, at, &format!("/{known}")).await.status, 200);
    }
    let mut crowd: Vec<_> = (100..110).flat_map(|client| flood(client, at, 1)).collect();
    let post = |client: u8| async move {
        let mut wire = Wire::over(connect_from(client, at).await);
        wire.send(head_of("POST", "/held", &[("Content-Length", "1")]) + "x").await;
        wire.answer().await
    };
    crowd.extend((110..120).map(post).map(tokio::spawn));
    eventually("the queue is full", || node.counts().misses_waiting == 4).await;
    eventually("all are here", || crowd.iter().filter(|one| one.is_finished()).count() == 12).await;
    assert_eq!(get_from(5, at, "/5").await.status, 503, "it is not known");
    let ask = |number: u8| get_from(3 + number % 2, at, ["/a", "/b", "/c", "/d"][number as usize]);
    let honest: Vec<_> = (0..4).map(ask).map(tokio::spawn).collect();
    assert_eq!(statuses(honest).await, [200; 4]);
    assert_eq!(node.counts().misses, 2, "half of the places are left to late requests");
    assert_eq!(origin.heads(), 10);
    gate.open();
    let statuses = statuses(crowd).await;
    let count = |status| statuses.iter().filter(|one| **one == status).count();
    assert_eq!([200, 503, 504].map(count), [2, 16, 2], "{statuses:?}");
    settled(&node).await;
}

/// Clients with addresses of their own that say this, and no more.
async fn crowd(at: SocketAddr, words: &str) -> Vec<Wire> {
    let mut crowd = Vec::new();
    for client in 100..120 {
        let mut wire = Wire::over(connect_from(client, at).await);
        wire.send(words).await;
        crowd.push(wire);
    }
    crowd
}

#[tokio::test]
async fn slow_uploads_and_handshakes_hold_no_places_of_others() {
    let (origin, gate, node, at) = world(2, 1000).await;
    let post = |length| head_of("POST", "/a", &[("Content-Length", length)]) + "x";
    // A short body is waited for before its request has a place.
    let mut short = crowd(at, &post("100")).await;
    eventually("all are here", || node.counts().in_service == 20).await;
    assert_eq!((origin.heads(), node.counts().misses, node.counts().misses_waiting), (0, 0, 0));
    assert_eq!(get_from(3, at, "/1").await.text(), "/1");
    short[7].send("x".repeat(99)).await;
    assert_eq!(short[7].answer().await.status, 200);
    drop(short);
    settled(&node).await;
    // Longer ones have places of their own, and so have handshakes.
    let handshake = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for words in [post("100000"), head_of("GET", "/held", &handshake)] {
        let crowd = crowd(at, &words).await;
        eventually("all wait", || node.counts().misses_waiting == 18).await;
        assert_eq!(node.counts().misses, 2);
        assert_eq!(get_from(3, at, "/2").await.text(), "/2");
        drop(crowd);
        settled(&node).await;
    }
    drop(gate);
}
