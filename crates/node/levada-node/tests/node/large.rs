//! Large files in pieces: the sources of pieces, versions that are never mixed, and origins and peers
//! that fail or send wrong answers.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use levada_config::{
    AccessLog, Delivery, DiskCache, LargeSettings, LogFormat, Mode, Patience, Plan, Settings,
};
use levada_node::Running;

use crate::support::{
    nodes::{Cluster, admin_json, as_peer, metric},
    origin::Asked,
    *,
};

pub(crate) const PIECE: usize = 16 << 10;

/// Timeouts longer than any delay of a busy machine, so that no piece is fetched twice.
pub(crate) fn in_pieces() -> LargeSettings {
    let (first, least) = (Duration::from_secs(60), Duration::from_secs(60));
    let patience = Patience { first, least, ..Patience::default() };
    let plan = Plan { chunk: PIECE as u64, window: 4, patience, ..LargeSettings::default().plan };
    LargeSettings { threshold: 2 * PIECE as u64, plan, replicas: None }
}

fn large(settings: &mut Settings) {
    settings.sites[0].large = Some(in_pieces());
}

/// Short timeouts, for tests of late pieces.
fn hasty(settings: &mut Settings) {
    let patience = Patience {
        first: Duration::from_millis(300),
        least: Duration::from_millis(300),
        ..Patience::default()
    };
    let mut large = in_pieces();
    large.plan.patience = patience;
    settings.sites[0].large = Some(large);
}

async fn world() -> (Origin, Running, SocketAddr) {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    large(&mut settings);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (origin, node, at)
}

/// A body in which bytes one piece apart differ.
pub(crate) fn body(length: usize, version: u8) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8 ^ (n / PIECE) as u8 ^ version).collect()
}

/// The range of a request, with an exclusive end.
pub(crate) fn range_of(asked: &Asked, length: u64) -> Option<std::ops::Range<u64>> {
    let range = asked.header("range")?;
    let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap().to_owned();
    let first: u64 = first.parse().unwrap();
    Some(first..last.parse::<u64>().map_or(length, |last| length.min(last + 1)))
}

/// The answer of an origin that supports ranges.
pub(crate) fn ranged(asked: &Asked, body: &[u8], etag: &str) -> Reply {
    let told = |reply: Reply| reply.with("etag", etag).with("accept-ranges", "bytes");
    if asked.header("if-none-match").is_some_and(|tag| tag == etag) {
        return told(Reply::cached("").status("304 Not Modified"));
    }
    let same = asked.header("if-range").is_none_or(|tag| tag == etag);
    let Some(range) = range_of(asked, body.len() as u64).filter(|_| same) else {
        return told(Reply::cached(body));
    };
    if range.is_empty() {
        let told = format!("bytes */{}", body.len());
        return Reply::ok("").status("416 Range Not Satisfiable").with("content-range", &told);
    }
    let value = format!("bytes {}-{}/{}", range.start, range.end - 1, body.len());
    told(Reply::cached(&body[range.start as usize..range.end as usize]))
        .status("206 Partial Content")
        .with("content-range", &value)
}

pub(crate) fn serve(origin: &Origin, length: usize) -> Vec<u8> {
    let whole = body(length, 0);
    let content = whole.clone();
    origin.script("/a", move |asked| ranged(asked, &content, "\"v1\""));
    whole
}

/// The ranges in the origin's requests.
pub(crate) fn asked_ranges(origin: &Origin) -> Vec<String> {
    let mut asked: Vec<String> =
        origin.asked("/a").iter().map(|a| a.header("range").unwrap_or_default()).collect();
    asked.sort();
    asked
}

pub(crate) fn piece_ranges(length: usize) -> Vec<String> {
    let range = |start: usize| format!("bytes={start}-{}", length.min(start + PIECE) - 1);
    (0..length).step_by(PIECE).map(range).collect()
}

#[tokio::test]
async fn large_file_is_fetched_in_pieces_and_each_piece_is_kept() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 10 * PIECE + 77);
    for time in 0..2 {
        let answer = get(at, "/a").await;
        assert_eq!((answer.status, answer.whole), (200, true), "{time}: {answer:?}");
        assert_eq!(answer.body, whole);
        assert_eq!(answer.field("content-length"), whole.len().to_string());
        assert_eq!(answer.field("etag"), "\"v1\"");
        assert!(answer.header("levada-large").is_none() && answer.header("levada-piece").is_none());
        assert!(answer.field("cache-status").contains("detail=pieces"), "{answer:?}");
        settled(&node).await;
    }
    let mut expected = piece_ranges(whole.len());
    expected.push(String::new());
    expected.sort();
    assert_eq!(asked_ranges(&origin), expected, "the head once, and each piece once");
    assert_eq!(metric(&node, "levada_large_pieces_total").await, 22.0);
    assert_eq!(metric(&node, "levada_large_transfers_total").await, 2.0);
}

#[tokio::test]
async fn small_object_costs_no_probe() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 2 * PIECE - 1);
    for _ in 0..2 {
        assert_eq!(get(at, "/a").await.body, whole);
    }
    assert_eq!(asked_ranges(&origin), [""]);
    assert_eq!(metric(&node, "levada_large_transfers_total").await, 0.0);
    settled(&node).await;
}

#[tokio::test]
async fn empty_file_is_an_object_like_any_other() {
    let (origin, node, at) = world().await;
    serve(&origin, 0);
    let answer = get(at, "/a").await;
    assert_eq!((answer.status, answer.whole, answer.body.len()), (200, true, 0));
    settled(&node).await;
}

#[tokio::test]
async fn pieces_are_spread_over_the_cluster_and_fetched_once() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, large).await;
    let whole = serve(&origin, 40 * PIECE + 5);
    for ingress in 0..4 {
        let answer = get(cluster.client(ingress), "/a").await;
        assert_eq!((answer.status, answer.whole), (200, true), "{answer:?}");
        assert!(answer.body == whole, "at node {ingress}");
    }
    cluster.settled().await;
    let mut expected = piece_ranges(whole.len());
    expected.push(String::new());
    expected.sort();
    assert_eq!(asked_ranges(&origin), expected, "the head once, and each piece once");
    for index in 0..4 {
        let bytes = metric(cluster.node(index), "levada_origin_response_bytes_total").await;
        assert!(bytes > 3.0 * PIECE as f64, "node {index} fetched {bytes}");
    }
}

#[tokio::test]
async fn ranges_are_mapped_onto_pieces() {
    let (origin, node, at) = world().await;
    let length = 10 * PIECE + 77;
    let whole = serve(&origin, length);
    for (range, expected) in [
        (format!("bytes={}-{}", PIECE - 3, PIECE + 2), PIECE - 3..PIECE + 3),
        (format!("bytes={}-", length - 5), length - 5..length),
        ("bytes=-10".to_owned(), length - 10..length),
        (format!("bytes=0-{}", length * 2), 0..length),
    ] {
        let answer = get_with(at, "/a", &[("Range", &range)]).await;
        assert_eq!((answer.status, answer.whole), (206, true), "{range}: {answer:?}");
        let told = format!("bytes {}-{}/{length}", expected.start, expected.end - 1);
        assert_eq!(answer.field("content-range"), told);
        assert!(answer.body == whole[expected], "{range}");
    }
    let beyond = get_with(at, "/a", &[("Range", &format!("bytes={length}-"))]).await;
    let told = format!("bytes */{length}");
    assert_eq!((beyond.status, beyond.field("content-range")), (416, told));
    let fields = [("Range", "bytes=0-9"), ("If-Range", "\"v0\"")];
    assert_eq!(get_with(at, "/a", &fields).await.status, 200, "another version: the whole");
    let fields = [("Range", "bytes=0-9"), ("If-Range", "\"v1\"")];
    assert_eq!(get_with(at, "/a", &fields).await.body, whole[..10]);
    let fields = [("If-None-Match", "\"v1\"")];
    assert_eq!(get_with(at, "/a", &fields).await.status, 304);
    settled(&node).await;
    // No piece was requested without need or twice.
    let asked = asked_ranges(&origin);
    let mut once = asked.clone();
    once.dedup();
    assert_eq!(asked, once);
}

#[tokio::test]
async fn several_ranges_go_the_way_of_other_objects() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 5 * PIECE);
    let answer = get_with(at, "/a", &[("Range", "bytes=0-4, 50000-50009")]).await;
    assert_eq!((answer.status, answer.whole), (206, true), "{answer:?}");
    assert!(answer.field("content-type").starts_with("multipart/byteranges"));
    let holds = |part: &[u8]| answer.body.windows(part.len()).any(|window| window == part);
    assert!(holds(&whole[..5]) && holds(&whole[50_000..50_010]));
    settled(&node).await;
}

#[tokio::test]
async fn file_beyond_four_gibibytes_is_served_at_either_side_of_the_boundary() {
    let (origin, node, at) = world().await;
    let length = (5 << 30) + 123u64;
    let byte = |at: u64| (at % 251) as u8 ^ (at >> 14) as u8;
    origin.script("/a", move |asked| {
        let told = |reply: Reply| reply.with("etag", "\"v\"").with("accept-ranges", "bytes");
        match range_of(asked, length) {
            // A length above every limit: the connection is cut.
            None => told(Reply::cached("")).with("content-length", &length.to_string()).closing(),
            Some(range) => told(Reply::cached(range.clone().map(byte).collect::<Vec<_>>()))
                .status("206 Partial Content")
                .with(
                    "content-range",
                    &format!("bytes {}-{}/{length}", range.start, range.end - 1),
                ),
        }
    });
    for start in [(4u64 << 30) - 20_000, (4 << 30) - 1, 4 << 30, length - 40_000] {
        let range = format!("bytes={start}-{}", start + 39_999);
        let answer = get_with(at, "/a", &[("Range", &range)]).await;
        let end = length.min(start + 40_000);
        assert_eq!((answer.status, answer.whole), (206, true), "{range}: {answer:?}");
        assert_eq!(answer.field("content-range"), format!("bytes {start}-{}/{length}", end - 1));
        assert!(answer.body == (start..end).map(byte).collect::<Vec<_>>(), "{range}");
    }
    let head = Wire::saying(at, head_of("GET", "/a", &[])).await.head().await;
    assert_eq!(head.field("content-length"), length.to_string());
    settled(&node).await;
}

#[tokio::test]
async fn crowd_at_a_node_has_each_piece_fetched_once() {
    let (origin, node, at) = world().await;
    let (whole, gate) = (body(4 * PIECE, 0), Gate::new());
    stalling(&origin, &whole, 0, &gate);
    let mut clients = tokio::task::JoinSet::new();
    clients.spawn(async move { get(at, "/a").await });
    let shared = async |count: usize| {
        within(async {
            while large_pieces(&node, "shared").await < count as f64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    };
    // The first client waits for the first piece, and delays the others.
    within(async {
        while large_pieces(&node, "here").await < 3.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for others in 1..6 {
        clients.spawn(async move { get(at, "/a").await });
        shared(3 * others).await;
    }
    gate.open();
    for answer in clients.join_all().await {
        assert!(answer.whole && answer.body == whole, "{}", answer.status);
    }
    assert_eq!(large_pieces(&node, "here").await, 4.0);
    let pieces = asked_ranges(&origin).iter().filter(|range| !range.is_empty()).count();
    assert_eq!(pieces, 4, "{:?}", asked_ranges(&origin));
    settled(&node).await;
}

#[tokio::test]
async fn crowd_has_each_piece_of_a_file_that_is_never_fresh_fetched_once() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, large).await;
    let whole = body(12 * PIECE, 0);
    let content = whole.clone();
    origin.script("/a", move |asked| {
        ranged(asked, &content, "\"v1\"").with("cache-control", "no-cache")
    });
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..24 {
        let at = cluster.client(client % 4);
        clients.spawn(async move { get(at, "/a").await });
    }
    for answer in clients.join_all().await {
        assert!(answer.whole && answer.body == whole, "{}", answer.status);
    }
    cluster.settled().await;
    let pieces: Vec<_> =
        asked_ranges(&origin).into_iter().filter(|range| !range.is_empty()).collect();
    let mut expected = piece_ranges(whole.len());
    expected.sort();
    assert_eq!(pieces, expected);
    let asked = origin.asked("/a");
    let is_whole =
        |asked: &&Asked| ["range", "if-none-match"].iter().all(|name| asked.header(name).is_none());
    assert_eq!(
        asked.iter().filter(is_whole).count(),
        1,
        "its head is confirmed, and the file is in pieces"
    );
}

/// The number of pieces from a kind of source.
async fn large_pieces(node: &Running, source: &str) -> f64 {
    let page = nodes::admin(node, "/metrics").await.text();
    let series = format!("levada_large_pieces_total{{source=\"{source}\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&series));
    value.map_or(0.0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn status_shows_a_transfer_as_long_as_it_runs() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, large).await;
    let (whole, gate) = (body(6 * PIECE, 0), Gate::new());
    stalling(&origin, &whole, 4, &gate);
    let at = cluster.client(0);
    let client = tokio::spawn(async move { get(at, "/a").await });
    let transfers = async || admin_json(cluster.node(0), "/status").await["transfers"].clone();
    let pieces = |one: &serde_json::Value| {
        let sources = one["sources"].as_array().into_iter().flatten();
        sources.map(|source| source["pieces"].as_u64().unwrap()).sum::<u64>()
    };
    let mut shown = transfers().await;
    within(async {
        // All pieces but the fifth.
        while pieces(&shown[0]) < 5 || shown[0]["done"] != 4 * PIECE {
            tokio::time::sleep(Duration::from_millis(5)).await;
            shown = transfers().await;
        }
    })
    .await;
    assert_eq!(shown.as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(
        (&shown[0]["url"], &shown[0]["bytes"]),
        (&format!("http://{HOST}/a").into(), &(6 * PIECE).into())
    );
    let nodes = shown[0]["sources"].as_array().unwrap().iter().map(|source| &source["node"]);
    assert!(nodes.clone().all(|name| name == "n0" || name == "n1"), "{shown}");
    gate.open();
    assert!(client.await.unwrap().body == whole);
    cluster.settled().await;
    assert_eq!(transfers().await, serde_json::json!([]));
}

#[tokio::test]
async fn client_that_leaves_takes_its_requests_along() {
    let (origin, node, at) = world().await;
    serve(&origin, 100 * PIECE);
    let mut wire = Wire::narrow(at).await;
    wire.send(head_of("GET", "/a", &[])).await;
    assert_eq!(wire.head().await.status, 200);
    assert!(origin.asked("/a").len() < 60, "no more than the window and the sockets hold");
    drop(wire);
    settled(&node).await;
}

#[tokio::test]
async fn client_can_neither_ask_for_a_piece_nor_put_one_in_its_place() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, large).await;
    let whole = serve(&origin, 4 * PIECE);
    assert!(get(cluster.client(0), "/a").await.body == whole);
    // The name of the first piece, for any version.
    let target = format!("/a~levada~0-{}~0000000000000000", PIECE - 1);
    for index in 0..2 {
        let fields = [("Levada-Piece", "wanted"), ("Levada-Large", "head")];
        let answer = get_with(cluster.client(index), &target, &fields).await;
        assert_eq!(answer.text(), target, "it is the origin's own URL");
    }
    let seen = &origin.asked(&target)[0];
    assert!(seen.header("range").is_none() && seen.header("levada-piece").is_none(), "{seen:?}");
    assert!(get(cluster.client(1), "/a").await.body == whole);
    // A client on the peer listener gets no further.
    let fields = [("Levada-Piece", "wanted")];
    assert_eq!(get_with(cluster.peer(0), &target, &fields).await.status, 403);
    cluster.settled().await;
}

#[tokio::test]
async fn peer_that_names_no_piece_is_told_so() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, large).await;
    let fields = [("Levada-Piece", "wanted")];
    for target in ["/a", "/a~levada~0-9", "/a~levada~9-0~0000000000000000"] {
        let answer = cluster.get_as_peer(0, target, &fields).await;
        assert_eq!((answer.status, answer.text().contains("no piece")), (400, true), "{target}");
    }
    cluster.settled().await;
}

/// A node is asked for pieces of others, by nodes that find these slow.
#[tokio::test]
async fn node_relays_a_piece_that_another_holds_and_asks_the_origin_when_that_one_is_dead() {
    let origin = Origin::start().await;
    let mut cluster = Cluster::start(4, origin.address, |settings| {
        large(settings);
        settings.sites[0].large.as_mut().unwrap().replicas = Some(1);
    })
    .await;
    let whole = serve(&origin, 12 * PIECE);
    let version = version(whole.len());
    let piece = |number: usize| {
        let first = number * PIECE;
        (first..first + PIECE, format!("/a~levada~{first}-{}~{version}", first + PIECE - 1))
    };
    let mut pieces = Vec::new();
    for dead in [false, true] {
        if dead {
            cluster.kill(2);
        }
        for number in 0..12 {
            // The node has heard of the others just now.
            assert!(get(cluster.client(0), "/a").await.body == whole, "{number}");
            let (range, target) = piece(number);
            let fields = [("Levada-Piece", "0;relay")];
            let answer = cluster.get_as_peer(0, &target, &fields).await;
            assert!(answer.status == 200 && answer.body == whole[range], "{number}: {answer:?}");
        }
        cluster.settled().await;
        pieces.push(asked_ranges(&origin).iter().filter(|range| !range.is_empty()).count());
    }
    assert_eq!(pieces[0], 12, "each piece once");
    assert!((13..24).contains(&pieces[1]), "{} with those of the dead node again", pieces[1]);
}

/// The version in the names of the pieces of a file that [`serve`] serves.
fn version(length: usize) -> String {
    let headers: http::HeaderMap =
        [(http::header::ETAG, http::HeaderValue::from_static("\"v1\""))].into_iter().collect();
    let validators = levada_cache::Validators::of(&headers, std::time::SystemTime::now());
    let version = levada_body::version_of(&headers, &validators, length as u64);
    format!("{:016x}", version.expect("it has a strong validator"))
}

#[tokio::test]
async fn change_before_the_first_byte_begins_anew() {
    let (origin, node, at) = world().await;
    let old = serve(&origin, 6 * PIECE);
    assert!(get_with(at, "/a", &[("Range", "bytes=0-9")]).await.body == old[..10]);
    let new = body(5 * PIECE, 9);
    let content = new.clone();
    origin.script("/a", move |asked| ranged(asked, &content, "\"v2\""));
    // The head is still fresh, and the requested piece is not stored.
    let answer = get_with(at, "/a", &[("Range", &format!("bytes={}-", 2 * PIECE))]).await;
    assert_eq!((answer.status, answer.field("etag")), (206, "\"v2\"".to_owned()), "{answer:?}");
    assert!(answer.body == new[2 * PIECE..]);
    assert!(get(at, "/a").await.body == new);
    settled(&node).await;
}

#[tokio::test]
async fn change_in_the_middle_cuts_the_connection_and_the_next_transfer_is_whole() {
    let (origin, node, at) = world().await;
    let (old, new) = (body(8 * PIECE, 0), body(8 * PIECE, 9));
    let (before, after) = (old.clone(), new.clone());
    let asked_for = AtomicUsize::new(0);
    origin.script("/a", move |asked| match asked_for.fetch_add(1, Relaxed) {
        // The head and three pieces.
        0..=3 => ranged(asked, &before, "\"v1\""),
        _ => ranged(asked, &after, "\"v2\""),
    });
    let answer = get(at, "/a").await;
    assert!(!answer.whole && answer.body.len() <= 7 * PIECE, "{}", answer.body.len());
    assert!(old.starts_with(&answer.body), "nothing of the new version");
    settled(&node).await;
    let answer = get(at, "/a").await;
    assert!(answer.whole && answer.body == new);
    settled(&node).await;
}

#[tokio::test]
async fn without_a_strong_validator_length_and_date_tell_versions_apart() {
    let (origin, node, at) = world().await;
    let date = "Fri, 01 Mar 2024 10:00:00 GMT";
    let whole = body(5 * PIECE, 0);
    let content = whole.clone();
    origin.script("/a", move |asked| {
        let range = range_of(asked, content.len() as u64);
        let Some(range) = range else {
            return Reply::cached(content.clone())
                .with("last-modified", date)
                .with("etag", "W/\"w\"");
        };
        let told = format!("bytes {}-{}/{}", range.start, range.end - 1, content.len());
        Reply::cached(&content[range.start as usize..range.end as usize])
            .status("206 Partial Content")
            .with("last-modified", date)
            .with("etag", "W/\"w\"")
            .with("content-range", &told)
    });
    for _ in 0..2 {
        let answer = get(at, "/a").await;
        assert!(answer.whole && answer.body == whole, "{}", answer.field("cache-status"));
        assert!(answer.field("cache-status").contains("detail=pieces-weak"), "{answer:?}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn file_that_cannot_be_told_from_another_is_fetched_whole() {
    let (origin, node, at) = world().await;
    let whole = body(5 * PIECE, 0);
    origin.on("/a", Reply::cached(whole.clone()));
    assert!(get(at, "/a").await.body == whole);
    assert_eq!(asked_ranges(&origin), [""]);
    settled(&node).await;
}

#[tokio::test]
async fn origin_that_sends_no_parts_is_asked_for_the_whole() {
    for offers in [true, false] {
        let (origin, node, at) = world().await;
        let whole = body(9 * PIECE, 0);
        let mut reply = Reply::cached(whole.clone()).with("etag", "\"v1\"");
        if offers {
            reply = reply.with("accept-ranges", "bytes");
        }
        origin.on("/a", reply);
        for time in 0..2 {
            let answer = get(at, "/a").await;
            assert!(answer.whole && answer.body == whole, "{time} {offers}: {answer:?}");
        }
        settled(&node).await;
        let asked = asked_ranges(&origin).len();
        assert!(asked <= 8, "{asked}: it is remembered");
    }
}

#[tokio::test]
async fn unknown_length_is_fetched_whole() {
    let (origin, node, at) = world().await;
    let whole = body(9 * PIECE, 0);
    let pieces = whole.chunks(5000).map(|piece| Piece::Bytes(piece.to_vec())).collect();
    origin
        .on("/a", Reply::chunked(pieces).with("etag", "\"v\"").with("cache-control", "max-age=60"));
    let answer = get(at, "/a").await;
    assert!(answer.whole && answer.body == whole);
    settled(&node).await;
}

/// Answers every request for a part of a file wrongly. Returns the client's answers.
async fn with_wrong_parts(
    wrong: impl Fn(std::ops::Range<u64>, &[u8]) -> Reply + Send + Sync + 'static,
) -> Answer {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    large(&mut settings);
    settings.sites[0].large.as_mut().unwrap().plan.tries = 2;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let whole = body(9 * PIECE, 0);
    origin.script("/a", move |asked| match range_of(asked, whole.len() as u64) {
        None => ranged(asked, &whole, "\"v1\""),
        Some(range) => wrong(range, &whole).with("etag", "\"v1\"").with("accept-ranges", "bytes"),
    });
    let answer = get(at, "/a").await;
    settled(&node).await;
    answer
}

#[tokio::test]
async fn parts_that_are_not_what_was_asked_for_are_not_used() {
    let whole = body(9 * PIECE, 0);
    let part = |range: &std::ops::Range<u64>, body: &[u8], told: String| {
        Reply::cached(&body[range.start as usize..range.end as usize])
            .status("206 Partial Content")
            .with("content-range", &told)
    };
    // Another range, none, one of unknown length, and one of several parts.
    let shifted = with_wrong_parts(move |range, body| {
        let told = format!("bytes {}-{}/{}", range.start + 1, range.end, body.len());
        part(&range, body, told)
    });
    let bare = with_wrong_parts(move |range, body| {
        Reply::cached(&body[range.start as usize..range.end as usize]).status("206 Partial Content")
    });
    let starred = with_wrong_parts(move |range, body| {
        part(&range, body, format!("bytes {}-{}/*", range.start, range.end - 1))
    });
    let garbled = with_wrong_parts(move |range, body| part(&range, body, "bytes 5-2/1".to_owned()));
    for answer in [shifted.await, bare.await, starred.await, garbled.await] {
        // Never a wrong byte; the whole file is fetched instead.
        assert!(whole.starts_with(&answer.body), "{}", answer.status);
        assert!((answer.whole && answer.body == whole) || answer.status >= 500, "{answer:?}");
    }
}

#[tokio::test]
async fn parts_that_are_longer_or_shorter_than_they_say_are_not_used() {
    let whole = body(9 * PIECE, 0);
    let told = |range: &std::ops::Range<u64>, reply: Reply| {
        let told = format!("bytes {}-{}/{}", range.start, range.end - 1, 9 * PIECE);
        reply.status("206 Partial Content").with("content-range", &told)
    };
    let bytes = |range: &std::ops::Range<u64>, body: &[u8]| {
        body[range.start as usize..range.end as usize].to_vec()
    };
    let short =
        with_wrong_parts(move |range, body| told(&range, Reply::cached(&bytes(&range, body)[5..])));
    let long = with_wrong_parts(move |range, body| {
        told(&range, Reply::cached([&bytes(&range, body)[..], b"more"].concat()))
    });
    // Without a length, so that the error shows only at the end.
    let chunked = |pieces: Vec<u8>| Reply::chunked(vec![Piece::Bytes(pieces)]);
    let short_in_chunks = with_wrong_parts(move |range, body| {
        told(&range, chunked(bytes(&range, body)[5..].to_vec()))
    });
    let long_in_chunks = with_wrong_parts(move |range, body| {
        told(&range, chunked([&bytes(&range, body)[..], b"more"].concat()))
    });
    let cut = with_wrong_parts(move |range, body| {
        let length = (range.end - range.start).to_string();
        told(&range, Reply::ok(&bytes(&range, body)[5..]).with("content-length", &length).closing())
    });
    let all = [short.await, long.await, short_in_chunks.await, long_in_chunks.await, cut.await];
    for (nth, answer) in all.into_iter().enumerate() {
        let wrong = answer.whole && answer.status == 200 && answer.body != whole;
        let begins = answer.status >= 500 || whole.starts_with(&answer.body);
        assert!(!wrong && begins, "{nth}: {} {}", answer.status, answer.body.len());
    }
}

#[tokio::test]
async fn file_that_shrinks_or_grows_in_the_middle_cuts_the_connection() {
    for length in [5 * PIECE, 12 * PIECE] {
        let (origin, node, at) = world().await;
        // The incorrect origin keeps its tag.
        let (old, new) = (body(8 * PIECE, 0), body(length, 9));
        let (before, after, asked_for) = (old.clone(), new.clone(), AtomicUsize::new(0));
        origin.script("/a", move |asked| match asked_for.fetch_add(1, Relaxed) {
            // The head and three pieces.
            0..=3 => ranged(asked, &before, "\"v1\""),
            _ => ranged(asked, &after, "\"v1\""),
        });
        let answer = get(at, "/a").await;
        assert!(!answer.whole && answer.body.len() <= 7 * PIECE, "{}", answer.body.len());
        assert!(old.starts_with(&answer.body), "nothing of the new file");
        settled(&node).await;
        let answer = get(at, "/a").await;
        assert!(answer.whole && answer.body == new, "{}", answer.body.len());
        settled(&node).await;
    }
}

#[tokio::test]
async fn file_that_shrinks_or_grows_is_another() {
    for length in [5 * PIECE, 12 * PIECE] {
        let (origin, node, at) = world().await;
        let old = serve(&origin, 9 * PIECE);
        assert!(get_with(at, "/a", &[("Range", "bytes=0-99")]).await.body == old[..100]);
        // The incorrect origin keeps its tag.
        let new = body(length, 7);
        let content = new.clone();
        origin.script("/a", move |asked| ranged(asked, &content, "\"v1\""));
        let answer = get(at, "/a").await;
        let cut = !answer.whole && old.starts_with(&answer.body);
        assert!(cut || answer.body == new, "{}: {}", answer.status, answer.body.len());
        settled(&node).await;
    }
}

/// An origin whose answer to the first request for a piece stops in the middle and never ends.
fn stalling(origin: &Origin, whole: &[u8], piece: usize, gate: &Gate) {
    let (content, gate, stalled) = (whole.to_vec(), gate.clone(), AtomicUsize::new(0));
    origin.script("/a", move |asked| {
        let reply = ranged(asked, &content, "\"v1\"");
        let first = range_of(asked, content.len() as u64).map(|range| range.start as usize);
        if first != Some(piece * PIECE) || stalled.fetch_add(1, Relaxed) > 0 {
            return reply;
        }
        let range = piece * PIECE..content.len().min((piece + 1) * PIECE);
        let (half, rest) = content[range.clone()].split_at(range.len() / 2);
        let pieces = [Piece::Bytes(half.to_vec()), Piece::Gate(gate.clone())];
        let pieces = pieces.into_iter().chain([Piece::Bytes(rest.to_vec())]).collect();
        reply.with("content-length", &range.len().to_string()).pieces(pieces)
    });
}

#[tokio::test]
async fn piece_that_stalls_is_asked_for_again_under_another_name() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    hasty(&mut settings);
    let node = start(settings).await;
    let (whole, gate) = (body(12 * PIECE, 0), Gate::new());
    stalling(&origin, &whole, 5, &gate);
    let answer = get(node.addresses.clients[0], "/a").await;
    assert!(answer.whole && answer.body == whole, "{}", answer.status);
    let stalled = format!("bytes={}-{}", 5 * PIECE, 6 * PIECE - 1);
    let times = asked_ranges(&origin).iter().filter(|range| **range == stalled).count();
    assert!(times >= 2, "{times}");
    assert!(metric(&node, "levada_large_retries_total").await >= 1.0);
    gate.open();
    settled(&node).await;
}

#[tokio::test]
async fn node_that_is_always_late_is_left_out() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, hasty).await;
    let whole = body(40 * PIECE, 0);
    let (content, gate) = (whole.clone(), Gate::new());
    let late = gate.clone();
    origin.script("/a", move |asked| {
        let reply = ranged(asked, &content, "\"v1\"");
        let last = asked.header("via").unwrap_or_default();
        match last.ends_with(" n2") && asked.header("range").is_some() {
            true => reply.after(&late),
            false => reply,
        }
    });
    let answer = get(cluster.client(0), "/a").await;
    assert!(answer.whole && answer.body == whole, "{}", answer.status);
    let late =
        origin.asked("/a").iter().filter(|a| a.header("via").unwrap().ends_with(" n2")).count();
    assert!((1..=8).contains(&late), "{late}: two windows at most");
    gate.open();
    cluster.settled().await;
}

#[tokio::test]
async fn piece_that_failed_is_asked_of_the_next_node_under_the_same_name_unless_as_published() {
    for published in [false, true] {
        let origin = Origin::start().await;
        let mut cluster = Cluster::start(4, origin.address, |settings| {
            large(settings);
            let large = settings.sites[0].large.as_mut().unwrap();
            (large.replicas, large.plan.published) = (Some(1), published);
        })
        .await;
        let whole = body(40 * PIECE, 0);
        let content = whole.clone();
        // Requests of n2 are never answered.
        origin.script("/a", move |asked| {
            let last = asked.header("via").unwrap_or_default();
            match last.ends_with(" n2") && asked.header("range").is_some() {
                true => Reply::hang_up(),
                false => ranged(asked, &content, "\"v1\""),
            }
        });
        assert!(get(cluster.client(0), "/a").await.body == whole);
        cluster.settled().await;
        // The nodes that follow n2 in the hash order have its pieces already.
        cluster.kill(2);
        let pieces = || asked_ranges(&origin).iter().filter(|range| !range.is_empty()).count();
        let before = pieces();
        assert!(get(cluster.client(1), "/a").await.body == whole);
        assert_eq!(pieces() == before, !published, "{before} {}", pieces());
        cluster.settled().await;
    }
}

#[tokio::test]
async fn node_that_dies_costs_no_more_than_its_pieces() {
    let origin = Origin::start().await;
    let mut cluster = Cluster::start(4, origin.address, large).await;
    let whole = serve(&origin, 200 * PIECE);
    let mut wire = Wire::narrow(cluster.client(0)).await;
    wire.send(head_of("GET", "/a", &[])).await;
    let mut answer = wire.head().await;
    cluster.kill(2);
    wire.body(&mut answer, "GET").await;
    assert!(answer.whole && answer.body == whole, "{}", answer.body.len());
    cluster.settled().await;
}

#[tokio::test]
async fn slow_piece_is_hedged_and_the_first_answer_wins() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    let mut large = in_pieces();
    large.plan.mode = Mode::Hedge;
    large.plan.patience = Patience::default();
    settings.sites[0].large = Some(large);
    let node = start(settings).await;
    let (whole, gate) = (body(40 * PIECE, 0), Gate::new());
    stalling(&origin, &whole, 30, &gate);
    let answer = get(node.addresses.clients[0], "/a").await;
    assert!(answer.whole && answer.body == whole, "{}", answer.status);
    assert!(metric(&node, "levada_large_hedges_total").await >= 1.0);
    gate.open();
    settled(&node).await;
}

#[tokio::test]
async fn with_deadlines_the_file_is_the_same() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |settings| {
        let mut large = in_pieces();
        large.plan.mode = Mode::Deadline;
        settings.sites[0].large = Some(large);
    })
    .await;
    let whole = serve(&origin, 30 * PIECE);
    assert!(get(cluster.client(1), "/a").await.body == whole);
    cluster.settled().await;
}

#[tokio::test]
async fn peer_that_answers_garbage_is_passed_by() {
    let origin = Origin::start().await;
    // In place of a node: a server that answers every request with the request's target.
    let garbage = Origin::start().await;
    let third = as_peer("n2", garbage.address).await;
    let cluster = Cluster::start(3, origin.address, |settings| {
        large(settings);
        settings.peering.as_mut().unwrap().peers[2].address = third.clone();
    })
    .await;
    let whole = serve(&origin, 30 * PIECE);
    for time in 0..2 {
        let answer = get(cluster.client(0), "/a").await;
        // The head may be such an answer as well: the policy chose the node for it.
        if answer.body.len() < 100 {
            assert_eq!(answer.text(), "/a", "{time}");
            continue;
        }
        assert!(answer.whole && answer.body == whole, "{time}: {}", answer.body.len());
    }
    assert!(garbage.total() > 0);
    cluster.settled().await;
}

/// In place of a node: a server that knows the form of an answer for a piece.
#[tokio::test]
async fn peer_whose_pieces_are_none_is_passed_by() {
    let garbage = |length: usize| Reply::cached(vec![b'x'; length]);
    let length = PIECE.to_string();
    let lies = [
        garbage(PIECE - 1),
        garbage(PIECE + 1),
        garbage(PIECE - 1).with("content-length", &length).closing(),
        Reply::chunked(vec![Piece::Bytes(vec![b'x'; PIECE])]),
        garbage(PIECE).status("206 Partial Content"),
        garbage(PIECE).with("levada-piece", "0000000000000000"),
        Reply::raw("\0\x16\x03\x01 another protocol\r\n\r\n"),
        Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"),
    ];
    for (nth, lie) in lies.into_iter().enumerate() {
        let (origin, liar) = (Origin::start().await, Origin::start().await);
        let third = as_peer("n2", liar.address).await;
        let cluster = Cluster::start(3, origin.address, |settings| {
            large(settings);
            settings.peering.as_mut().unwrap().peers[2].address = third.clone();
        })
        .await;
        let whole = serve(&origin, 12 * PIECE);
        liar.otherwise(move |asked| match asked.target.rsplit_once('~') {
            Some((_, version)) => lie.clone().with("levada-piece", version),
            // Other nodes answer for the head.
            None => Reply::hang_up(),
        });
        let answer = get(cluster.client(0), "/a").await;
        assert!(answer.whole && answer.body == whole, "{nth}: {}", answer.body.len());
        assert!(liar.total() > 1, "{nth}: it was asked for pieces");
        cluster.settled().await;
    }
}

#[tokio::test]
async fn origin_that_is_gone_in_the_middle_cuts_the_connection() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    hasty(&mut settings);
    settings.sites[0].large.as_mut().unwrap().plan.tries = 2;
    let node = start(settings).await;
    let whole = body(10 * PIECE, 0);
    let content = whole.clone();
    origin.script("/a", move |asked| match range_of(asked, content.len() as u64) {
        Some(range) if range.start >= 5 * PIECE as u64 => Reply::hang_up(),
        _ => ranged(asked, &content, "\"v1\""),
    });
    let answer = get(node.addresses.clients[0], "/a").await;
    assert!(!answer.whole && whole.starts_with(&answer.body), "{}", answer.body.len());
    settled(&node).await;
}

#[tokio::test]
async fn transfer_without_room_for_a_window_goes_another_way() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    large(&mut settings);
    settings.cache.memory = 3 * PIECE as u64;
    let node = start(settings).await;
    let whole = serve(&origin, 20 * PIECE);
    let answer = get(node.addresses.clients[0], "/a").await;
    assert!(answer.whole && answer.body == whole, "{}", answer.status);
    assert_eq!(metric(&node, "levada_large_transfers_total").await, 0.0);
    settled(&node).await;
}

/// A node with memory for one window of one piece, and a transfer that has it until the gate opens.
async fn one_window(
    change: impl FnOnce(&mut Settings),
) -> (Origin, Running, Vec<u8>, Gate, tokio::task::JoinHandle<Answer>) {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    large(&mut settings);
    settings.cache.memory = 4 * PIECE as u64;
    change(&mut settings);
    let node = start(settings).await;
    let (whole, gate) = (body(6 * PIECE, 0), Gate::new());
    stalling(&origin, &whole, 3, &gate);
    let at = node.addresses.clients[0];
    let first = tokio::spawn(async move { get(at, "/a").await });
    let stalled = format!("bytes={}-{}", 3 * PIECE, 4 * PIECE - 1);
    eventually("the fourth piece is asked for", || asked_ranges(&origin).contains(&stalled)).await;
    (origin, node, whole, gate, first)
}

#[tokio::test]
async fn transfer_waits_for_the_window_of_another_one_that_ends() {
    let (origin, node, whole, gate, first) = one_window(|_| ()).await;
    let at = node.addresses.clients[0];
    let second = tokio::spawn(async move { get(at, "/a").await });
    until_waiting(&node, 1.0).await;
    gate.open();
    for answer in [first.await.unwrap(), second.await.unwrap()] {
        assert!(answer.whole && answer.body == whole, "{}", answer.status);
    }
    assert_eq!(metric(&node, "levada_large_transfers_total").await, 2.0);
    assert_eq!(window_waits(&node, "window").await, 1.0);
    let whole_file = |asked: &Asked| asked.header("range").is_none();
    assert_eq!(origin.asked("/a").iter().filter(|asked| whole_file(asked)).count(), 1, "the head");
    settled(&node).await;
}

#[tokio::test]
async fn transfer_that_waits_too_long_or_behind_too_many_goes_another_way() {
    for (queue, outcome) in [(1, "queue_timeout"), (0, "queue_full")] {
        let (_origin, node, whole, gate, first) = one_window(|settings| {
            settings.limits.queue = queue;
            settings.limits.queue_timeout = Duration::from_millis(50);
        })
        .await;
        let answer = get(node.addresses.clients[0], "/a").await;
        assert!(answer.whole && answer.body == whole, "{}", answer.status);
        assert_eq!(window_waits(&node, outcome).await, 1.0);
        gate.open();
        assert!(first.await.unwrap().body == whole);
        settled(&node).await;
    }
}

/// Waits until so many transfers wait for a window.
async fn until_waiting(node: &Running, count: f64) {
    within(async {
        while metric(node, "levada_large_transfers_waiting").await != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// How many transfers found no memory for a window, and ended so.
async fn window_waits(node: &Running, outcome: &str) -> f64 {
    let page = nodes::admin(node, "/metrics").await.text();
    let series = format!("levada_large_window_waits_total{{outcome=\"{outcome}\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&series));
    value.map_or(0.0, |value| value.parse().unwrap())
}

/// `sha-256` of a body, as `Repr-Digest` has it and in hexadecimal.
fn sha256(body: &[u8]) -> (String, String) {
    let digest = ring::digest::digest(&ring::digest::SHA256, body);
    let bits: String = digest.as_ref().iter().map(|byte| format!("{byte:08b}")).collect();
    let alphabet: Vec<char> =
        ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect();
    let sextet = |bits: &[u8]| {
        let text = format!("{:0<6}", std::str::from_utf8(bits).unwrap());
        alphabet[usize::from_str_radix(&text, 2).unwrap()]
    };
    let base64: String = bits.as_bytes().chunks(6).map(sextet).collect();
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("sha-256=:{base64}=:"), format!("sha-256={hex}"))
}

#[tokio::test]
async fn digest_of_the_origin_is_passed_on_and_holds_or_the_connection_is_cut() {
    for right in [true, false] {
        let (origin, node, at) = world().await;
        let whole = body(7 * PIECE + 1, 0);
        let digest = sha256(if right { &whole } else { &whole[1..] }).0;
        let (content, told) = (whole.clone(), digest.clone());
        origin.script("/a", move |asked| {
            ranged(asked, &content, "\"v1\"").with("repr-digest", &told)
        });
        let answer = get(at, "/a").await;
        assert_eq!(answer.field("repr-digest"), digest);
        assert_eq!((answer.status, answer.whole), (200, right));
        assert!(whole.starts_with(&answer.body));
        let part = get_with(at, "/a", &[("Range", "bytes=5-9")]).await;
        assert_eq!(part.body, whole[5..10], "a part cannot be checked");
        settled(&node).await;
    }
}

#[tokio::test]
async fn digest_of_the_client_gets_past_what_is_stored_of_another_version() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(3, origin.address, large).await;
    let (old, new) = (serve(&origin, 9 * PIECE), body(9 * PIECE, 5));
    assert!(get(cluster.client(0), "/a").await.body == old);
    let content = new.clone();
    // Even the tag does not show that the version is another.
    origin.script("/a", move |asked| ranged(asked, &content, "\"v1\""));
    let digest = sha256(&new).1;
    let fields = [("Levada-Digest", &*digest)];
    for index in 0..3 {
        let answer = get_with(cluster.client(index), "/a", &fields).await;
        assert!(answer.whole && answer.body == new, "{index}: {}", answer.status);
    }
    assert!(get(cluster.client(0), "/a").await.body == old, "for others it is still fresh");
    let digest = sha256(b"another").1;
    let answer = get_with(cluster.client(0), "/a", &[("Levada-Digest", &*digest)]).await;
    assert!(!answer.whole, "what has another digest is no answer");
    let answer = get_with(cluster.client(0), "/a", &[("Levada-Digest", "sha-256=xyz")]).await;
    assert_eq!(answer.status, 400);
    cluster.settled().await;
}

#[tokio::test]
async fn purge_of_the_file_drops_its_pieces() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(3, origin.address, |settings| {
        large(settings);
        settings.purge.access.token = Some("sixteen bytes or more".to_owned());
    })
    .await;
    let old = serve(&origin, 9 * PIECE);
    assert!(get(cluster.client(0), "/a").await.body == old);
    let new = body(9 * PIECE, 5);
    let content = new.clone();
    origin.script("/a", move |asked| ranged(asked, &content, "\"v1\""));
    assert!(get(cluster.client(0), "/a").await.body == old);
    let fields = [("Authorization", "Bearer sixteen bytes or more")];
    let purged =
        Wire::saying(cluster.client(1), head_of("PURGE", "/a", &fields)).await.answer().await;
    assert_eq!(purged.status, 200, "{}", purged.text());
    assert!(get(cluster.client(0), "/a").await.body == new);
    cluster.settled().await;
}

#[tokio::test]
async fn each_piece_has_as_many_replicas_as_the_site_wants() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(4, origin.address, |settings| {
        large(settings);
        settings.sites[0].large.as_mut().unwrap().replicas = Some(2);
    })
    .await;
    let whole = serve(&origin, 10 * PIECE);
    for _ in 0..12 {
        assert!(get(cluster.client(0), "/a").await.body == whole);
    }
    let asked = asked_ranges(&origin);
    let times: Vec<usize> = piece_ranges(whole.len())
        .iter()
        .map(|range| asked.iter().filter(|asked| *asked == range).count())
        .collect();
    assert!(times.iter().all(|times| (1..=2).contains(times)), "{times:?}");
    assert!(times.contains(&2), "{times:?}");
    cluster.settled().await;
}

#[tokio::test]
async fn pieces_travel_over_http2_and_behind_redirects_as_well() {
    let origin = Origin::start().await;
    let whole = serve(&origin, 20 * PIECE);
    let h2 = Cluster::start(3, origin.address, |settings| {
        large(settings);
        settings.peering.as_mut().unwrap().h2 = true;
    })
    .await;
    assert!(get(h2.client(1), "/a").await.body == whole);
    h2.settled().await;
    let redirecting = Cluster::start(3, origin.address, |settings| {
        large(settings);
        settings.sites[0].delivery = Delivery::Redirect;
    })
    .await;
    for index in 0..3 {
        let answer = get(redirecting.client(index), "/a").await;
        let Some(location) = answer.header("location") else {
            assert!(answer.body == whole, "at the node itself");
            continue;
        };
        let (address, target) = location.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let answer = get(address.parse().unwrap(), &format!("/{target}")).await;
        assert!(answer.body == whole, "{}", answer.status);
    }
    redirecting.settled().await;
}

#[tokio::test]
async fn what_was_done_is_told() {
    let origin = Origin::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let cluster = Cluster::start(2, origin.address, |settings| {
        large(settings);
        if settings.name == "n0" {
            let format = LogFormat::json();
            settings.access_log = Some(AccessLog::to_file(path.clone(), format));
        }
    })
    .await;
    let whole = serve(&origin, 6 * PIECE);
    assert!(get(cluster.client(0), "/a").await.body == whole);
    cluster.settled().await;
    let line = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("a line", || !line().is_empty()).await;
    let lines = line();
    let told: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(lines.lines().count(), 1, "one line for the client's transfer: {lines}");
    assert_eq!((&told["pieces"], &told["piece_retries"]), (&6.into(), &0.into()), "{told}");
    assert_eq!(told["upstream_cache_status"], "pieces");
    let node = cluster.node(0);
    assert_eq!(metric(node, "levada_large_pieces_total").await, 6.0);
    assert_eq!(metric(node, "levada_large_piece_bytes_total").await, whole.len() as f64);
    assert!(metric(node, "levada_large_source_seconds").await > 0.0);
    let explained = admin_json(node, &format!("/explain?url=http://{HOST}/a")).await;
    let pieces = &explained["pieces"];
    assert_eq!((&pieces["count"], &pieces["size"]), (&6.into(), &PIECE.into()), "{explained}");
    assert_eq!(pieces["first"].as_array().unwrap().len(), 6);
    // The explanation is correct: each piece is at the node that it names.
    let named = |name: &str| {
        let of = pieces["first"].as_array().unwrap().iter();
        of.filter(|piece| piece["node"] == name).count() as f64
    };
    for (index, name) in ["n0", "n1"].into_iter().enumerate() {
        let fetched = metric(cluster.node(index), "levada_origin_response_bytes_total").await;
        assert_eq!(fetched, named(name) * PIECE as f64, "{name}: {pieces}");
    }
}

/// The node itself reads pieces: placeholders for zero copy are for sockets only.
#[tokio::test]
async fn pieces_on_disk_are_read_as_what_they_are() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let mut settings = single(&[origin.address]);
    let mut pieces = in_pieces();
    pieces.plan.chunk = 256 << 10;
    settings.sites[0].large = Some(pieces);
    settings.cache.memory = 4 << 20;
    settings.cache.disk = Some(DiskCache { path: dir.path().to_owned(), size: 1 << 30 });
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let whole = serve(&origin, 12 << 20);
    for time in 0..3 {
        assert!(get(at, "/a").await.body == whole, "time {time}");
        while metric(&node, "levada_cache_disk_queue_bytes").await > 0.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert!(metric(&node, "levada_cache_disk_hits_total").await > 0.0);
}
