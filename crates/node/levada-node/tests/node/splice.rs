//! Bodies that the kernel moves from a server's connection to a client's: a client sees no difference.

use std::{net::SocketAddr, time::Duration};

use levada_config::Settings;
use levada_node::Running;

use crate::support::{nodes::metric, *};

const LENGTH: usize = 3_000_000;

fn body(seed: usize) -> Vec<u8> {
    (0..LENGTH).map(|n| ((n * 31 + n / 251) ^ seed) as u8).collect()
}

async fn world(tweak: impl FnOnce(&mut Settings)) -> (Origin, Running, SocketAddr) {
    alone(|settings| {
        settings.sites[0].handling.cache = false;
        tweak(settings);
    })
    .await
}

async fn spliced(node: &Running) -> f64 {
    metric(node, "levada_spliced_total").await
}

#[tokio::test]
async fn long_bodies_are_moved_by_the_system_and_both_connections_stay() {
    let (origin, node, at) = world(|_| {}).await;
    let mut wire = Wire::to(at).await;
    for n in 0..3 {
        origin.on(&format!("/{n}"), Reply::ok(body(n)));
        origin.on("/short", Reply::ok("short"));
        wire.send(head_of("GET", &format!("/{n}"), &[])).await;
        let answer = wire.answer().await;
        assert!(answer.whole && answer.body == body(n), "{n}");
        wire.send(head_of("GET", "/short", &[])).await;
        assert_eq!(wire.answer().await.text(), "short");
    }
    assert_eq!((spliced(&node).await, origin.connections()), (3.0, 1));
    let sent = metric(&node, "levada_http_response_bytes_total").await;
    assert_eq!(sent, 3.0 * (LENGTH + 5) as f64);
    settled(&node).await;
}

#[tokio::test]
async fn what_cannot_be_moved_is_copied() {
    let (origin, node, at) = world(|_| {}).await;
    let whole = || Piece::Bytes(body(1));
    origin.on("/chunked", Reply::chunked(vec![whole()]));
    let raw = [&b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"[..], &body(1)].concat();
    origin.on("/to-close", Reply::raw(raw).closing());
    for path in ["/chunked", "/to-close"] {
        assert!(get(at, path).await.body == body(1), "{path}");
    }
    origin.on("/long", Reply::ok(body(1)));
    let mut wire = Wire::saying(at, head_of("HEAD", "/long", &[])).await;
    assert_eq!(wire.answer_to("HEAD").await.field("content-length"), LENGTH.to_string());
    assert_eq!(spliced(&node).await, 0.0);
    let (origin, node, at) = world(|s| s.splice = false).await;
    origin.on("/long", Reply::ok(body(2)));
    assert!(get(at, "/long").await.body == body(2));
    assert_eq!(spliced(&node).await, 0.0, "not wanted");
}

#[tokio::test]
async fn connection_that_closes_ends_with_its_moved_body() {
    let (origin, node, at) = world(|_| {}).await;
    origin.on("/a", Reply::ok(body(1)));
    for head in [
        head_of("GET", "/a", &[("Connection", "close")]),
        head_of("GET", "/a", &[]).replace("HTTP/1.1", "HTTP/1.0"),
    ] {
        let mut wire = Wire::saying(at, head).await;
        let answer = wire.answer().await;
        assert!(answer.whole && answer.body == body(1));
        assert_eq!(wire.rest().await, b"", "the connection has ended");
    }
    assert_eq!(spliced(&node).await, 2.0);
    settled(&node).await;
}

#[tokio::test]
async fn pipelined_requests_get_their_own_bodies() {
    let (origin, node, at) = world(|_| {}).await;
    let mut heads = String::new();
    for n in 0..3 {
        origin.on(&format!("/{n}"), Reply::ok(body(n)));
        heads += &head_of("GET", &format!("/{n}"), &[]);
    }
    let mut wire = Wire::saying(at, heads).await;
    for n in 0..3 {
        assert!(wire.answer().await.body == body(n), "{n}");
    }
    assert_eq!(spliced(&node).await, 3.0);
    settled(&node).await;
}

#[tokio::test]
async fn a_server_that_breaks_off_breaks_the_answer_off() {
    let (origin, node, at) = world(|_| {}).await;
    for length in [LENGTH + 1, 2 * LENGTH] {
        let reply = Reply::ok("").with("content-length", &length.to_string());
        origin.on("/a", reply.pieces(vec![Piece::Bytes(body(1))]).closing());
        let answer = get(at, "/a").await;
        assert_eq!((answer.status, answer.whole), (200, false));
        assert!(answer.body == body(1), "what came before it is passed on");
        settled(&node).await;
    }
}

#[tokio::test]
async fn what_has_come_is_passed_on_before_more_comes_and_a_silent_server_is_given_up() {
    let (origin, node, at) =
        world(|s| s.limits.response_body_timeout = Duration::from_millis(300)).await;
    let gate = Gate::new();
    let half = LENGTH / 2;
    let pieces = |gate: &Gate| {
        let [first, rest] = [&body(1)[..half], &body(1)[half..]].map(|part| part.to_vec());
        vec![Piece::Bytes(first), Piece::Gate(gate.clone()), Piece::Bytes(rest)]
    };
    let reply = || Reply::ok("").with("content-length", &LENGTH.to_string());
    origin.on("/opens", reply().pieces(pieces(&gate)));
    let mut wire = Wire::saying(at, head_of("GET", "/opens", &[])).await;
    assert_eq!(wire.head().await.status, 200);
    assert!(wire.take(half).await == body(1)[..half]);
    gate.open();
    assert!(wire.take(LENGTH - half).await == body(1)[half..]);
    origin.on("/stays-shut", reply().pieces(pieces(&Gate::new())));
    let answer = get(at, "/stays-shut").await;
    assert_eq!((answer.whole, answer.body.len()), (false, half));
    settled(&node).await;
}

#[tokio::test]
async fn a_client_that_takes_its_time_is_not_the_servers_fault() {
    let patience = Duration::from_secs(1);
    let (origin, node, at) = world(|s| s.limits.response_body_timeout = patience).await;
    // More than all buffers on the way hold.
    let long: Vec<u8> = (0..8).flat_map(body).collect();
    origin.on("/a", Reply::ok(long.clone()));
    let mut wire = Wire::narrow(at).await;
    wire.send(head_of("GET", "/a", &[])).await;
    assert_eq!(wire.head().await.status, 200);
    // The node must not count this time.
    tokio::time::sleep(2 * patience).await;
    assert!(wire.take(long.len()).await == long);
    settled(&node).await;
}

#[tokio::test]
async fn a_client_that_vanishes_leaves_nothing_behind() {
    let (origin, node, at) = world(|_| {}).await;
    let long: Vec<u8> = (0..8).flat_map(body).collect();
    origin.on("/a", Reply::ok(long));
    for _ in 0..10 {
        let mut wire = Wire::narrow(at).await;
        wire.send(head_of("GET", "/a", &[])).await;
        wire.take(10_000).await;
    }
    settled(&node).await;
    assert_eq!(spliced(&node).await, 10.0);
    origin.on("/b", Reply::ok(body(3)));
    assert!(get(at, "/b").await.body == body(3));
}
