//! Large files from an origin with less bandwidth than its clients want: pieces wait for their turn.

use std::time::Duration;

use levada_config::{LargeSettings, Patience, Settings};
use levada_node::Running;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{
    large::{PIECE, body, in_pieces, piece_ranges, range_of, ranged},
    support::{
        nodes::{Cluster, metric},
        origin::Asked,
        *,
    },
};

/// Timeouts that are much shorter than the wait for a turn.
fn narrow(window: usize) -> impl Fn(&mut Settings) {
    move |settings: &mut Settings| {
        let [second, two] = [1, 2].map(Duration::from_secs);
        let mut large: LargeSettings = in_pieces();
        large.plan.patience = Patience { first: two, least: two, ..Patience::default() };
        large.plan.window = window;
        settings.sites[0].large = Some(large);
        settings.limits.response_timeout = second;
    }
}

/// The reply of an origin: the head of a file at once, and the bytes of a piece as `steps` say.
fn reply(asked: &Asked, whole: &[u8], steps: impl Fn(Vec<u8>) -> Vec<Piece>) -> Reply {
    let reply = ranged(asked, whole, "\"v1\"");
    let with_length = |length: usize| reply.with("content-length", &length.to_string());
    match range_of(asked, whole.len() as u64) {
        // The node that asks closes the connection.
        None => with_length(whole.len()).pieces(vec![Piece::Gate(Gate::new())]),
        Some(range) => {
            let bytes = whole[range.start as usize..range.end as usize].to_vec();
            with_length(bytes.len()).pieces(steps(bytes))
        }
    }
}

/// Serves a file over a link.
fn serve_slowly(origin: &Origin, path: &str, whole: &[u8], link: &SlowLink) {
    let (whole, link) = (whole.to_vec(), link.clone());
    origin.script(path, move |asked| {
        reply(asked, &whole, |bytes| vec![Piece::Slowly(link.clone(), bytes)])
    });
}

/// Serves a file whose pieces wait behind gates: the last of them for all further pieces.
fn serve_gated(origin: &Origin, path: &str, whole: &[u8], gates: Vec<Gate>) {
    let whole = whole.to_vec();
    origin.script(path, move |asked| {
        let piece = range_of(asked, whole.len() as u64).map_or(0, |range| range.start);
        let gate = &gates[(piece as usize / PIECE).min(gates.len() - 1)];
        reply(asked, &whole, |bytes| vec![Piece::Gate(gate.clone()), Piece::Bytes(bytes)])
    });
}

fn waiting(node: &Running) -> usize {
    node.counts().misses_waiting
}

#[tokio::test]
async fn pieces_of_many_files_wait_longer_than_a_response_may_take_and_are_fetched_once() {
    let (origin, link) = (Origin::start().await, SlowLink::new(8 << 10));
    let cluster = Cluster::start(3, origin.address, narrow(32)).await;
    let length = 32 * PIECE;
    let mut clients = tokio::task::JoinSet::new();
    for file in 0..12 {
        let (path, whole) = (format!("/{file}"), body(length, file));
        serve_slowly(&origin, &path, &whole, &link);
        let at = cluster.client(usize::from(file) % 3);
        clients.spawn(async move {
            let mut wire = Wire::saying(at, head_of("GET", &path, &[])).await;
            let head = wire.head().await;
            assert_eq!(head.status, 200, "{path}: {head:?}");
            assert!(wire.take(length).await == whole, "{path}");
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    cluster.settled().await;
    for file in 0..12 {
        let asked = origin.asked(&format!("/{file}"));
        let mut asked: Vec<_> = asked.iter().filter_map(|one| one.header("range")).collect();
        asked.sort();
        let mut due = piece_ranges(length);
        due.sort();
        assert_eq!(asked, due, "each piece of /{file} once");
    }
    for node in 0..3 {
        let again = metric(cluster.node(node), "levada_large_retries_total").await;
        assert_eq!(again, 0.0, "node {node} asked again");
    }
}

#[tokio::test]
async fn peer_is_told_that_its_piece_waits_and_a_client_is_not() {
    let (origin, link) = (Origin::start().await, SlowLink::new(1 << 10));
    let cluster = Cluster::start(1, origin.address, narrow(64)).await;
    let (at, node) = (cluster.client(0), cluster.node(0));
    for (path, length) in [("/a", 64 * PIECE), ("/b", 3 * PIECE), ("/c", 3 * PIECE)] {
        serve_slowly(&origin, path, &body(length, 0), &link);
    }
    let _greedy = Wire::saying(at, head_of("GET", "/a", &[])).await;
    eventually("pieces wait", || waiting(node) > 0).await;
    let mut client = Wire::saying(at, head_of("GET", "/b", &[])).await;
    let mut peer = cluster.peer_wire(0).await;
    let url = format!("/c~levada~0-{}~{:016x}", PIECE - 1, 1);
    peer.send(head_of("GET", &url, &[("Levada-Piece", "0")])).await;
    let told = peer.head().await;
    assert_eq!((told.status, told.header("content-length")), (102, None));
    let head = client.head().await;
    assert_eq!((head.status, head.field("content-length")), (200, (3 * PIECE).to_string()));
}

#[tokio::test]
async fn origin_that_sends_nothing_fails_requests_in_time() {
    for nodes in [1, 3] {
        let (origin, gate) = (Origin::start().await, Gate::new());
        let cluster = Cluster::start(nodes, origin.address, |settings| {
            narrow(40)(settings);
            let large = settings.sites[0].large.as_mut().unwrap();
            large.plan.tries = 2;
        })
        .await;
        let whole = body(40 * PIECE, 0);
        origin.script("/a", move |asked| {
            let reply = reply(asked, &whole, |bytes| vec![Piece::Bytes(bytes)]);
            if asked.header("range").is_some() { reply.after(&gate) } else { reply }
        });
        let answer = within(get(cluster.client(0), "/a")).await;
        assert!([502, 504].contains(&answer.status), "{nodes} nodes: {answer:?}");
        if nodes == 1 {
            assert_eq!(answer.status, 504);
        }
        cluster.settled().await;
    }
}

#[tokio::test]
async fn first_pieces_of_a_new_client_go_before_the_last_of_another() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    let mut large = in_pieces();
    large.plan.window = 24;
    settings.sites[0].large = Some(large);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let [open, one, all] = [(); 3].map(|()| Gate::new());
    open.open();
    let whole = body(24 * PIECE, 0);
    serve_gated(&origin, "/a", &whole, vec![open, one.clone(), all.clone()]);
    serve_gated(&origin, "/b", &whole, vec![all.clone()]);
    let first = tokio::spawn(async move { get(at, "/a").await });
    eventually("pieces wait", || origin.hits("/a") > 16 && waiting(&node) > 0).await;
    let second = tokio::spawn(async move { get(at, "/b").await });
    let asked = || origin.hits("/a").saturating_sub(1) + origin.hits("/b").saturating_sub(1);
    eventually("all pieces wait or are asked for", || asked() + waiting(&node) == 48).await;
    let begun = origin.hits("/a");
    // The end of one response lets in the next.
    one.open();
    eventually("the second is served", || origin.hits("/b") > 1).await;
    assert_eq!(origin.hits("/a"), begun);
    all.open();
    assert!(first.await.unwrap().body == whole);
    assert!(second.await.unwrap().body == whole);
    settled(&node).await;
}

#[tokio::test]
async fn client_that_leaves_takes_its_pieces_out_of_all_queues() {
    let (origin, link) = (Origin::start().await, SlowLink::new(1 << 10));
    let cluster = Cluster::start(2, origin.address, narrow(100)).await;
    serve_slowly(&origin, "/a", &body(200 * PIECE, 0), &link);
    let mut client = TcpStream::connect(cluster.client(0)).await.unwrap();
    client.write_all(head_of("GET", "/a", &[]).as_bytes()).await.unwrap();
    let nodes = [cluster.node(0), cluster.node(1)];
    eventually("pieces wait at both", || nodes.iter().all(|node| waiting(node) > 10)).await;
    assert!(within(client.peek(&mut [0])).await.is_ok(), "the response has begun");
    // With unread bytes, its connection ends with a reset.
    drop(client);
    eventually("nothing waits", || nodes.iter().all(|node| waiting(node) == 0)).await;
    assert!(origin.hits("/a") < 90, "{}", origin.hits("/a"));
    cluster.settled().await;
}
