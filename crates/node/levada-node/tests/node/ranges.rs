//! Ranges of objects, and objects in blocks: the parts that are fetched and sent, and versions that are
//! never mixed.

use std::{net::SocketAddr, ops::Range};

use levada_node::Running;

use crate::support::{origin::Asked, *};

const BLOCK: usize = 64 << 10;

async fn world() -> (Origin, Running, SocketAddr) {
    alone(|settings| settings.cache.block = BLOCK as u64).await
}

/// A body in which bytes one block apart differ.
fn body(length: usize, version: u8) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8 ^ (n / BLOCK) as u8 ^ version).collect()
}

/// The answer of an origin that supports ranges.
fn ranged(asked: &Asked, body: &[u8], etag: &str) -> Reply {
    let whole = Reply::cached(body).with("etag", etag).with("content-type", "text/x");
    let if_range = asked.header("if-range").is_none_or(|tag| tag == etag);
    if asked.header("if-none-match").is_some_and(|tag| tag == etag) {
        return Reply::cached("").status("304 Not Modified").with("etag", etag);
    }
    let Some(range) = asked.header("range").filter(|_| if_range) else { return whole };
    let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let Ok(first) = first.parse::<usize>() else {
        let first = body.len() - last.parse::<usize>().unwrap();
        return part_reply(body, first..body.len(), etag);
    };
    let end = last.parse::<usize>().map_or(body.len(), |last| body.len().min(last + 1));
    if first >= end {
        let told = format!("bytes */{}", body.len());
        return Reply::ok("").status("416 Range Not Satisfiable").with("content-range", &told);
    }
    part_reply(body, first..end, etag)
}

fn part_reply(body: &[u8], part: Range<usize>, etag: &str) -> Reply {
    Reply::cached(&body[part.clone()])
        .status("206 Partial Content")
        .with("etag", etag)
        .with("content-type", "text/x")
        .with("content-range", &format!("bytes {}-{}/{}", part.start, part.end - 1, body.len()))
}

fn serve(origin: &Origin, length: usize) -> Vec<u8> {
    let whole = body(length, 0);
    let content = whole.clone();
    origin.script("/a", move |asked| ranged(asked, &content, "\"v1\""));
    whole
}

async fn part(at: SocketAddr, range: &str) -> Answer {
    get_with(at, "/a", &[("Range", range)]).await
}

/// The ranges in the origin's requests.
fn asked_ranges(origin: &Origin) -> Vec<String> {
    let mut asked: Vec<String> =
        origin.asked("/a").iter().map(|a| a.header("range").unwrap_or_default()).collect();
    asked.sort();
    asked
}

#[tokio::test]
async fn parts_of_a_stored_object_are_served_from_it() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 1000);
    get(at, "/a").await;
    settled(&node).await;
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=10-19", 10..20),
        ("bytes=990-", 990..1000),
        ("bytes=-5", 995..1000),
        ("bytes=900-5000", 900..1000),
    ] {
        let answer = part(at, range).await;
        assert_eq!((answer.status, answer.is_hit()), (206, true), "{range}: {answer:?}");
        let told = format!("bytes {}-{}/1000", expected.start, expected.end - 1);
        assert_eq!(answer.field("content-range"), told);
        assert_eq!(answer.field("content-length"), expected.len().to_string());
        assert_eq!(answer.body, whole[expected]);
    }
    for range in ["bytes=1000-", "bytes=-0", "bytes=2000-3000"] {
        let answer = part(at, range).await;
        assert_eq!(
            (answer.status, answer.field("content-range")),
            (416, "bytes */1000".to_owned())
        );
        assert!(answer.body.is_empty() && answer.header("etag").is_none());
    }
    for range in ["bytes=5-2", "lines=1-2", "bytes=a-", "bytes"] {
        let answer = part(at, range).await;
        assert_eq!((answer.status, answer.body.len()), (200, 1000), "{range}");
    }
    assert_eq!(origin.hits("/a"), 1);
    settled(&node).await;
}

#[tokio::test]
async fn several_parts_come_as_multipart() {
    for length in [1000, 3 * BLOCK + 7] {
        let (origin, node, at) = world().await;
        let whole = serve(&origin, length);
        let last = length - 3;
        let answer = part(at, &format!("bytes=0-4, 100-199, {last}-")).await;
        assert_eq!(answer.status, 206);
        let content_type = answer.field("content-type");
        let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let mut expected = Vec::new();
        for range in [0..5, 100..200, last..length] {
            let told = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: text/x\r\nContent-Range: {told}\r\n\r\n"
            );
            expected.extend(head.into_bytes());
            expected.extend(&whole[range]);
        }
        expected.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
        assert!(answer.whole && answer.body == expected, "{}", answer.text());
        settled(&node).await;
    }
}

#[tokio::test]
async fn range_miss_fetches_the_blocks_that_it_touches() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 40 * BLOCK + 100);
    let wanted = 10 * BLOCK - 5..11 * BLOCK + 5;
    let range = format!("bytes={}-{}", wanted.start, wanted.end - 1);
    let answer = part(at, &range).await;
    assert_eq!((answer.status, answer.whole), (206, true));
    assert_eq!(answer.body, whole[wanted.clone()]);
    assert!(answer.field("cache-status").contains("fwd=uri-miss"), "{answer:?}");
    let block = |n: usize| format!("bytes={}-{}", n * BLOCK, (n + 1) * BLOCK - 1);
    let mut expected = vec![block(9), block(10), block(11)];
    expected.sort();
    assert_eq!(asked_ranges(&origin), expected);
    settled(&node).await;
    let again = part(at, &range).await;
    assert!(again.is_hit() && again.body == whole[wanted], "{:?}", again.fields);
    assert_eq!(origin.hits("/a"), 3);
    // The last block is short, and a range past the end does not exist.
    let end = part(at, "bytes=-50").await;
    assert_eq!(end.body, whole[whole.len() - 50..]);
    assert!(end.field("cache-status").contains("fwd=partial"), "{end:?}");
    assert_eq!(part(at, &format!("bytes={}-", whole.len())).await.status, 416);
    assert_eq!(origin.hits("/a"), 4);
    settled(&node).await;
}

#[tokio::test]
async fn whole_after_parts_fetches_what_is_missing() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 9 * BLOCK + 1);
    part(at, &format!("bytes={}-{}", 3 * BLOCK, 5 * BLOCK - 1)).await;
    settled(&node).await;
    let answer = get(at, "/a").await;
    assert!(answer.whole && answer.body == whole && answer.status == 200);
    assert_eq!(answer.field("content-length"), whole.len().to_string());
    settled(&node).await;
    let asked = asked_ranges(&origin);
    assert_eq!(asked.len(), 10, "{asked:?}");
    assert!(asked.iter().all(|range| !range.is_empty()), "never the whole: {asked:?}");
    assert!(get(at, "/a").await.is_hit());
    assert_eq!(origin.hits("/a"), 10);
    settled(&node).await;
}

#[tokio::test]
async fn suffix_of_an_unknown_object_is_found() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 20 * BLOCK);
    let answer = part(at, "bytes=-10").await;
    assert_eq!((answer.status, &answer.body[..]), (206, &whole[whole.len() - 10..]));
    assert_eq!(origin.hits("/a"), 1);
    settled(&node).await;
}

#[tokio::test]
async fn small_object_is_whole_after_a_range_miss() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 500);
    assert_eq!(part(at, "bytes=100-199").await.body, whole[100..200]);
    settled(&node).await;
    let answer = get(at, "/a").await;
    assert!(answer.is_hit() && answer.body == whole, "{answer:?}");
    assert_eq!((answer.status, answer.header("content-range")), (200, None));
    assert_eq!(origin.hits("/a"), 1);
    settled(&node).await;
}

#[tokio::test]
async fn if_range_of_another_version_gets_the_whole() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 2 * BLOCK);
    for tag in ["\"v0\"", "W/\"v1\"", "Mon, 01 Jan 2024 00:00:00 GMT"] {
        let fields = [("Range", "bytes=5-9"), ("If-Range", tag)];
        let answer = get_with(at, "/a", &fields).await;
        assert!(answer.status == 200 && answer.body == whole, "{tag}: {}", answer.status);
        settled(&node).await;
    }
    let same = get_with(at, "/a", &[("Range", "bytes=5-9"), ("If-Range", "\"v1\"")]).await;
    assert_eq!((same.status, &same.body[..]), (206, &whole[5..10]));
    settled(&node).await;
}

#[tokio::test]
async fn condition_comes_before_the_range_and_head_has_none() {
    for length in [300, 3 * BLOCK] {
        let (origin, node, at) = world().await;
        serve(&origin, length);
        get(at, "/a").await;
        settled(&node).await;
        let fields = [("Range", "bytes=5-9"), ("If-None-Match", "\"v1\"")];
        assert_eq!(get_with(at, "/a", &fields).await.status, 304);
        let head = head_of("HEAD", "/a", &[("Range", "bytes=5-9")]);
        let answer = Wire::saying(at, head).await.answer_to("HEAD").await;
        assert_eq!((answer.status, answer.field("content-length")), (200, length.to_string()));
        assert_eq!(origin.hits("/a"), 1);
        settled(&node).await;
    }
}

#[tokio::test]
async fn part_is_served_while_the_whole_is_being_fetched() {
    let (origin, node, at) = world().await;
    let whole = body(6 * BLOCK, 0);
    let gate = Gate::new();
    let (early, late) = whole.split_at(3 * BLOCK + 10);
    let pieces =
        vec![Piece::Bytes(early.to_vec()), Piece::Gate(gate.clone()), Piece::Bytes(late.to_vec())];
    let reply = Reply::cached("").with("content-length", &whole.len().to_string()).pieces(pieces);
    origin.on("/a", reply);
    let mut first = Wire::saying(at, head_of("GET", "/a", &[])).await;
    assert_eq!(first.head().await.status, 200);
    let answer = part(at, &format!("bytes=100-{}", 2 * BLOCK)).await;
    assert_eq!((answer.status, &answer.body[..]), (206, &whole[100..=2 * BLOCK]));
    let mut waiting = Wire::saying(at, head_of("GET", "/a", &[("Range", "bytes=-20")])).await;
    gate.open();
    let last = waiting.answer().await;
    assert_eq!((last.status, &last.body[..]), (206, &whole[whole.len() - 20..]));
    assert_eq!(first.take(whole.len()).await, whole);
    assert_eq!(origin.hits("/a"), 1);
    settled(&node).await;
}

#[tokio::test]
async fn long_fetch_survives_the_client_that_caused_it() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 30 * BLOCK);
    let mut wire = Wire::saying(at, head_of("GET", "/a", &[])).await;
    wire.head().await;
    drop(wire);
    settled(&node).await;
    let answer = get(at, "/a").await;
    assert!(answer.is_hit() && answer.body == whole, "{:?}", answer.fields);
    assert_eq!(origin.hits("/a"), 1);
    settled(&node).await;
}

#[tokio::test]
async fn quick_reader_is_not_held_up_by_a_slow_one() {
    for ranges in [true, false] {
        let (origin, node, at) = world().await;
        let whole = body(200 * BLOCK, 0);
        let (content, gate) = (whole.clone(), Gate::new());
        let opened = gate.clone();
        origin.script("/a", move |asked| match ranges {
            true => ranged(asked, &content, "\"v1\"").after(&opened),
            false => Reply::ok(&content[..]).with("cache-control", "max-age=9").after(&opened),
        });
        let mut slow = Wire::narrow(at).await;
        slow.send(head_of("GET", "/a", &[])).await;
        let mut quick = Wire::saying(at, head_of("GET", "/a", &[])).await;
        eventually("both wait", || node.counts().in_flight == 2).await;
        gate.open();
        let answer = quick.answer().await;
        assert!(answer.whole && answer.body == whole);
        assert!(node.counts().filling_bytes <= 8 * BLOCK as u64);
        // The slow client reads the blocks that are stored meanwhile.
        let answer = slow.answer().await;
        assert!(answer.whole && answer.body == whole);
        settled(&node).await;
    }
}

#[tokio::test]
async fn long_bodies_in_memory_are_sent_whole_and_in_parts() {
    // One object of many segments, and one of many blocks.
    for (block, length) in [(2 << 20, 1_500_000), (256 << 10, 3_000_000)] {
        let origin = Origin::start().await;
        let mut settings = single(&[origin.address]);
        settings.cache.block = block as u64;
        let node = start(settings).await;
        let at = node.addresses.clients[0];
        let whole = body(length, 7);
        origin.on("/a", Reply::cached(whole.clone()).with("etag", "\"e\""));
        get(at, "/a").await;
        settled(&node).await;
        let (mut slow, mut pipelined) = (Wire::narrow(at).await, Wire::to(at).await);
        slow.send(head_of("GET", "/a", &[])).await;
        assert!(slow.head().await.is_hit());
        let begun = slow.take(70_000).await;
        // Ranges within and across segments, and whole objects, one after another.
        let many = head_of("GET", "/a", &[("range", "bytes=65000-200000,5-9,-70000")]);
        let one = head_of("GET", "/a", &[("range", "bytes=65535-65536")]);
        let all = head_of("GET", "/a", &[]);
        pipelined.send([all.clone(), many, one, all].concat()).await;
        assert!(pipelined.answer().await.body == whole);
        let parts = pipelined.answer().await;
        assert_eq!(parts.status, 206);
        for part in [&whole[65_000..=200_000], &whole[5..=9], &whole[length - 70_000..]] {
            assert!(parts.body.windows(part.len()).any(|window| window == part));
        }
        assert_eq!(pipelined.answer().await.body, whole[65_535..=65_536]);
        assert!(pipelined.answer().await.body == whole);
        assert_eq!(origin.asked("/a").len(), 1, "{length} bytes were stored");
        // Evicted blocks would have to be fetched, from an origin that does not support ranges.
        if length < block {
            Wire::saying(at, head_of("DELETE", "/a", &[])).await.answer().await;
        }
        let rest = slow.take(length - begun.len()).await;
        assert!([begun, rest].concat() == whole);
        settled(&node).await;
    }
}

#[tokio::test]
async fn changed_representation_is_fetched_anew() {
    let (origin, node, at) = world().await;
    serve(&origin, 8 * BLOCK);
    part(at, "bytes=0-9").await;
    settled(&node).await;
    let second = body(8 * BLOCK, 77);
    let content = second.clone();
    origin.script("/a", move |asked| ranged(asked, &content, "\"v2\""));
    let wanted = 4 * BLOCK - 9..4 * BLOCK + 9;
    let range = format!("bytes={}-{}", wanted.start, wanted.end - 1);
    let answer = part(at, &range).await;
    assert_eq!((answer.status, answer.field("etag")), (206, "\"v2\"".to_owned()));
    assert_eq!(answer.body, second[wanted]);
    // The stored blocks of the first version are gone as well.
    let start = part(at, "bytes=0-9").await;
    assert_eq!((start.field("etag"), &start.body[..]), ("\"v2\"".to_owned(), &second[..10]));
    settled(&node).await;
}

#[tokio::test]
async fn change_in_the_middle_of_a_response_cuts_it() {
    let (origin, node, at) = world().await;
    let first = serve(&origin, 12 * BLOCK);
    part(at, "bytes=0-9").await;
    settled(&node).await;
    let second = body(12 * BLOCK, 77);
    origin.script("/a", move |asked| ranged(asked, &second, "\"v2\""));
    let answer = get(at, "/a").await;
    assert_eq!((answer.status, answer.whole), (200, false), "{}", answer.body.len());
    assert!(first.starts_with(&answer.body), "one version only");
    settled(&node).await;
}

#[tokio::test]
async fn failing_origin_costs_the_parts_that_are_missing_only() {
    let (origin, node, at) = world().await;
    let whole = serve(&origin, 8 * BLOCK);
    part(at, "bytes=0-9").await;
    settled(&node).await;
    origin.on("/a", Reply::ok("no").status("500 Internal Server Error"));
    let missing = part(at, &format!("bytes={}-", 7 * BLOCK)).await;
    assert_eq!(missing.status, 502);
    let stored = part(at, "bytes=5-9").await;
    assert_eq!((stored.status, &stored.body[..]), (206, &whole[5..10]));
    assert!(stored.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn origin_without_ranges_is_passed_through_and_remembered() {
    let (origin, node, at) = world().await;
    let whole = body(3 * BLOCK, 0);
    let content = whole.clone();
    origin.script("/a", move |_| Reply::ok(&content[..]).with("cache-control", "no-store"));
    for n in 1..4 {
        let answer = part(at, "bytes=10-19").await;
        assert!(answer.status == 200 && answer.body == whole, "a server may ignore ranges");
        assert_eq!(origin.hits("/a"), n);
    }
    assert_eq!(asked_ranges(&origin)[..2], ["bytes=0-65535", "bytes=10-19"].map(str::to_owned)[..]);
    settled(&node).await;
}

#[tokio::test]
async fn origin_without_ranges_is_served_in_parts_once_stored() {
    let (origin, node, at) = world().await;
    let whole = body(3 * BLOCK, 0);
    let content = whole.clone();
    origin.script("/a", move |_| Reply::cached(&content[..]).with("etag", "\"v1\""));
    for _ in 0..3 {
        let answer = part(at, &format!("bytes=10-{}", 2 * BLOCK)).await;
        assert_eq!((answer.status, &answer.body[..]), (206, &whole[10..=2 * BLOCK]));
        settled(&node).await;
    }
    assert_eq!(origin.hits("/a"), 1);
}

#[tokio::test]
async fn parts_without_a_strong_validator_are_passed_one_by_one() {
    for etag in ["W/\"v1\"", ""] {
        let (origin, node, at) = world().await;
        let whole = body(5 * BLOCK, 0);
        let content = whole.clone();
        origin.script("/a", move |asked| ranged(asked, &content, etag));
        for _ in 0..3 {
            let answer = part(at, &format!("bytes=10-{}", 2 * BLOCK)).await;
            assert_eq!((answer.status, &answer.body[..]), (206, &whole[10..=2 * BLOCK]));
        }
        // One request for a block, then the client's own ranges.
        assert_eq!(origin.hits("/a"), 4);
        settled(&node).await;
    }
}

#[tokio::test]
async fn body_that_breaks_off_is_resumed_under_a_strong_validator_and_cut_without() {
    for strong in [true, false] {
        let (origin, node, at) = world().await;
        let whole = body(10 * BLOCK, 0);
        let content = whole.clone();
        origin.script("/a", move |asked| {
            if asked.header("range").is_some() {
                return ranged(asked, &content, "\"v1\"");
            }
            let pieces = vec![Piece::Bytes(content[..4 * BLOCK + 5].to_vec()), Piece::Cut];
            let reply = Reply::cached("").with("content-length", &content.len().to_string());
            let reply = if strong { reply.with("etag", "\"v1\"") } else { reply };
            reply.pieces(pieces)
        });
        let answer = get(at, "/a").await;
        assert_eq!((answer.status, answer.whole), (200, strong));
        assert!(whole.starts_with(&answer.body));
        assert!(strong || answer.body.len() <= 4 * BLOCK + 5);
        settled(&node).await;
    }
}

#[tokio::test]
async fn stale_parts_are_validated_not_fetched() {
    let (origin, node, at) = world().await;
    let whole = body(4 * BLOCK, 0);
    let content = whole.clone();
    origin.script("/a", move |asked| ranged(asked, &content, "\"v1\""));
    part(at, "bytes=0-9").await;
    settled(&node).await;
    let fields = [("Range", "bytes=5-9"), ("Cache-Control", "no-cache")];
    let answer = get_with(at, "/a", &fields).await;
    assert_eq!((answer.status, &answer.body[..]), (206, &whole[5..10]));
    assert!(answer.field("cache-status").contains("fwd-status=304"), "{answer:?}");
    assert_eq!(origin.hits("/a"), 2);
    settled(&node).await;
}
