//! Draining: the clients that are moved, how, and the ones that are not.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use levada_config::Settings;
use levada_node::Running;
use tokio::task::JoinSet;

use crate::{http2, support::*};

/// More than the kernel's buffers between a socket and one with a small receive buffer.
const BODY: usize = 16 << 20;

fn body() -> Vec<u8> {
    (0..BODY).map(|at| (at % 251) as u8).collect()
}

async fn world(tweak: impl FnOnce(&mut Settings)) -> (Origin, Running, SocketAddr) {
    let origin = Origin::start().await;
    origin.on("/body", Reply::cached(body()).with("etag", "\"v1\""));
    let mut settings = single(&[origin.address]);
    settings.limits.drain_rate = 1_000_000;
    tweak(&mut settings);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (origin, node, at)
}

/// A download that has started.
async fn download(mut wire: Wire, head: String) -> Wire {
    wire.send(head).await;
    assert_eq!(wire.head().await.status, 200);
    wire
}

async fn order(node: &Running, target: &str) -> Answer {
    let json = [("Content-Type", "application/json"), ("Content-Length", "2")];
    let head = head_of("POST", target, &json);
    Wire::saying(node.addresses.admin.unwrap(), head + "{}").await.answer().await
}

#[tokio::test]
async fn long_downloads_end_in_order_and_short_ones_are_finished() {
    let (origin, node, at) = world(|_| {}).await;
    let gate = Gate::new();
    let pieces =
        [Piece::Bytes(b"half".to_vec()), Piece::Gate(gate.clone()), Piece::Bytes(b"rest".to_vec())];
    origin.on("/short", Reply::ok("").with("content-length", "8").pieces(pieces.into()));
    let mut short = download(Wire::to(at).await, head_of("GET", "/short", &[])).await;
    let mut long = download(Wire::narrow(at).await, head_of("GET", "/body", &[])).await;
    let told = order(&node, "/drain").await;
    assert_eq!(told.status, 200, "{}", told.text());
    let got = long.rest().await;
    assert!(got.len() < BODY && got == body()[..got.len()], "{}", got.len());
    gate.open();
    assert_eq!(short.rest().await, b"halfrest", "and then its connection is closed");
    assert_eq!(nodes::metric(&node, "levada_downloads_moved_total").await, 1.0);
    // The client resumes, at any node.
    let range = format!("bytes={}-", got.len());
    let head = [("Range", &*range), ("If-Range", "\"v1\"")];
    let rest = get_with(at, "/body", &head).await;
    assert_eq!((rest.status, rest.whole, rest.body.len()), (206, true, BODY - got.len()));
    settled(&node).await;
}

#[tokio::test]
async fn clients_over_tls_are_told_that_it_is_no_accident() {
    let authority = secure::Authority::new();
    let certificate = authority.issue(&["a.test"]);
    let (_origin, node, at) = world(|s| s.listeners[0].tls = vec![certificate]).await;
    let stream = secure::connect(at, "a.test", &authority.path(), &["http/1.1"], None).await;
    let narrow = stream.as_ref().map(|stream| socket2::SockRef::from(stream.get_ref().0));
    narrow.unwrap().set_recv_buffer_size(4096).unwrap();
    let wire = download(Wire::over(stream.unwrap()), head_of("GET", "/body", &[])).await;
    order(&node, "/drain").await;
    let (read, end) = wire.read_out().await;
    // Without TLS's close_notify this would be an unexpected end.
    assert!(read < BODY && end.is_ok(), "{read} {end:?}");
    settled(&node).await;
}

#[tokio::test]
async fn streams_end_and_their_connection_takes_no_more() {
    let (_origin, node, at) = world(|s| s.listeners[0].h2c = true).await;
    let mut sender = http2::h2c(at).await;
    let response = within(sender.send_request(http2::ask("/body"))).await.unwrap();
    order(&node, "/drain").await;
    let got = within(http_body_util::BodyExt::collect(response.into_body())).await;
    assert!(got.is_err(), "an end in the middle is no end");
    within(async {
        while sender.ready().await.is_ok() {
            tokio::task::yield_now().await
        }
    })
    .await;
    // A client that connects now is served, and then its connection ends.
    let mut sender = http2::h2c(at).await;
    assert_eq!(http2::fetch(&mut sender, http2::ask("/a")).await.0, 200);
    within(async {
        while sender.ready().await.is_ok() {
            tokio::task::yield_now().await
        }
    })
    .await;
    settled(&node).await;
}

#[tokio::test]
async fn who_comes_while_it_drains_is_served_and_not_kept() {
    let (_origin, node, at) = world(|_| {}).await;
    let mut idle = Wire::saying(at, head_of("GET", "/a", &[])).await;
    assert_eq!(idle.answer().await.status, 200);
    assert_eq!(nodes::admin(&node, "/readyz").await.status, 200);
    order(&node, "/drain").await;
    assert!(idle.rest().await.is_empty(), "it is closed");
    assert_eq!(nodes::admin(&node, "/readyz").await.status, 503);
    let answer = get(at, "/body").await;
    assert_eq!((answer.whole, answer.field("connection")), (true, "close".to_owned()));

    let status = order(&node, "/drain?undo").await;
    assert!(status.text().contains("\"draining\": false"), "{}", status.text());
    assert_eq!(nodes::admin(&node, "/readyz").await.status, 200);
    let mut kept = Wire::saying(at, head_of("GET", "/a", &[])).await;
    for _ in 0..2 {
        assert_eq!(kept.answer().await.header("connection"), None);
        kept.send(head_of("GET", "/a", &[])).await;
    }
    drop(kept);
    settled(&node).await;
}

#[tokio::test]
async fn after_an_undo_downloads_run_to_their_end() {
    let (_origin, node, at) = world(|_| {}).await;
    let mut first = download(Wire::narrow(at).await, head_of("GET", "/body", &[])).await;
    assert_eq!(order(&node, "/drain?rate=0").await.status, 400);
    order(&node, "/drain?rate=1").await;
    assert!(first.rest().await.len() < BODY);
    let mut while_draining = download(Wire::narrow(at).await, head_of("GET", "/body", &[])).await;
    order(&node, "/drain?undo").await;
    let mut after = download(Wire::narrow(at).await, head_of("GET", "/body", &[])).await;
    for wire in [&mut while_draining, &mut after] {
        assert_eq!(wire.take(BODY).await.len(), BODY);
    }
    drop((while_draining, after));
    settled(&node).await;
}

#[tokio::test]
async fn what_no_other_node_could_go_on_with_is_finished() {
    let (origin, node, at) = world(|_| {}).await;
    origin.on("/made", Reply::ok(body()).with("cache-control", "no-store"));
    let mut made = download(Wire::narrow(at).await, head_of("GET", "/made", &[])).await;
    let mut moved = download(Wire::narrow(at).await, head_of("GET", "/body", &[])).await;
    order(&node, "/drain").await;
    assert!(moved.rest().await.len() < BODY);
    assert_eq!(made.rest().await.len(), BODY);
    settled(&node).await;
}

/// A request that a client repeats over one connection, as long as that is kept, and its status.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    method: &'static str,
    host: &'static str,
    /// A `#` stands for the number of the request.
    target: &'static str,
    field: (&'static str, &'static str),
    status: u16,
}

const PLAIN: (&str, &str) = ("x-kind", "plain");

#[rustfmt::skip]
const KINDS: [Kind; 9] = [
    Kind { name: "hit", method: "GET", host: HOST, target: "/hit", field: PLAIN, status: 200 },
    Kind { name: "miss", method: "GET", host: HOST, target: "/miss?#", field: PLAIN, status: 200 },
    Kind { name: "relay", method: "GET", host: HOST, target: "/own", field: PLAIN, status: 200 },
    Kind { name: "304", method: "GET", host: HOST, target: "/hit", field: ("if-none-match", "\"v1\""), status: 304 },
    Kind { name: "404", method: "GET", host: HOST, target: "/none?#", field: PLAIN, status: 404 },
    Kind { name: "502", method: "GET", host: "dead.test", target: "/a", field: PLAIN, status: 502 },
    Kind { name: "file", method: "GET", host: "files.test", target: "/file.txt", field: PLAIN, status: 200 },
    Kind { name: "range", method: "GET", host: HOST, target: "/hit", field: ("range", "bytes=1-2"), status: 206 },
    Kind { name: "head", method: "HEAD", host: HOST, target: "/hit", field: PLAIN, status: 200 },
];

/// The outcomes of the requests of all clients.
#[derive(Default)]
struct Tally {
    over: AtomicBool,
    answered: AtomicUsize,
    /// Answers that said that they are the last of their connection.
    last: AtomicUsize,
}

/// Repeats requests over kept connections. Each one is answered, or the answer before it said that it is the
/// last one.
async fn keep_asking(at: SocketAddr, kind: Kind, tally: Arc<Tally>) {
    let (mut wire, mut kept) = (Wire::to(at).await, 0);
    while !tally.over.load(Relaxed) {
        let number = tally.answered.fetch_add(1, Relaxed).to_string();
        let target = kind.target.replace('#', &number);
        let fields = [("Host", kind.host), kind.field];
        wire.send(head_of(kind.method, &target, &fields)).await;
        let answer = wire.answer_to(kind.method).await;
        let context = format!("{} after {kept} on its connection: {answer:?}", kind.name);
        assert!(answer.status == kind.status && answer.whole, "{context}");
        kept += 1;
        if answer.field("connection") == "close" {
            assert!(wire.rest().await.is_empty());
            tally.last.fetch_add(1, Relaxed);
            (wire, kept) = (Wire::to(at).await, 0);
        }
    }
}

/// The same over HTTP/2, where GOAWAY says it.
async fn keep_asking_h2(at: SocketAddr, tally: Arc<Tally>) {
    let mut sender = http2::h2c(at).await;
    while !tally.over.load(Relaxed) {
        if within(sender.ready()).await.is_err() {
            tally.last.fetch_add(1, Relaxed);
            sender = http2::h2c(at).await;
        }
        // A client may send again what the node has said it has not processed.
        if let Ok(response) = within(sender.send_request(http2::ask("/hit"))).await {
            assert_eq!(response.status(), 200);
            let body = within(http_body_util::BodyExt::collect(response.into_body())).await;
            assert_eq!(body.unwrap().to_bytes(), "hit");
            tally.answered.fetch_add(1, Relaxed);
        }
    }
}

/// Drains a node and undoes it, under requests of every kind. `LEVADA_TEST_MATRIX=full` sends 10,000.
#[tokio::test]
async fn kept_connections_lose_no_request_to_a_drain() {
    let full = std::env::var("LEVADA_TEST_MATRIX").is_ok_and(|value| value == "full");
    let requests = if full { 10_000 } else { 1_500 };
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("file.txt"), "file").unwrap();
    let (origin, node, at) = world(|settings| {
        let root = files.path().display();
        settings.sites.extend(nodes::sites(&format!(
            "[[site]]\nhosts = 'files.test'\nfiles = '{root}'\n\
             [[site]]\nhosts = 'dead.test'\norigin = 'http://127.0.0.1:1'\n"
        )));
        settings.sites[2].servers.health = nodes::unwatched();
        settings.listeners[0].h2c = true;
    })
    .await;
    origin.on("/hit", Reply::cached("hit").with("etag", "\"v1\""));
    origin.on("/own", Reply::ok("own").with("cache-control", "no-store"));
    origin.on("/none", Reply::ok("none").status("404 Not Found"));
    assert_eq!(get(at, "/hit").await.status, 200);
    let (tally, mut clients) = (Arc::new(Tally::default()), JoinSet::new());
    for kind in KINDS {
        clients.spawn(keep_asking(at, kind, tally.clone()));
    }
    clients.spawn(keep_asking_h2(at, tally.clone()));
    let mut drains = 0;
    while tally.answered.load(Relaxed) < requests {
        let (target, before) =
            (["/drain", "/drain?undo"][drains % 2], tally.answered.load(Relaxed));
        assert_eq!(order(&node, target).await.status, 200);
        drains += 1;
        eventually("the clients go on", || {
            tally.answered.load(Relaxed) >= before + 50 || clients.len() < KINDS.len() + 1
        })
        .await;
        if let Some(ended) = clients.try_join_next() {
            ended.unwrap();
        }
    }
    tally.over.store(true, Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let last = tally.last.load(Relaxed);
    assert!(last > drains, "{last} connections were ended in {drains} drains");
    order(&node, "/drain?undo").await;
    settled(&node).await;
}
