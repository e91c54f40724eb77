//! Parts that are stored as the origin sent them: ranges that gain nothing from the block grid.

use std::net::SocketAddr;

use levada_node::Running;
use serde_json::json;

use crate::{
    http2,
    purge::{purge, url},
    support::{nodes::Cluster, origin::Asked, *},
};

const BLOCK: usize = 64 << 10;

/// A body in which bytes one block apart differ.
fn body(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8 ^ (n / BLOCK) as u8).collect()
}

/// The answer of an origin that supports ranges.
fn ranged(asked: &Asked, body: &[u8], etag: &str) -> Reply {
    let whole = Reply::cached(body).with("etag", etag);
    let Some(range) = asked.header("range") else { return whole };
    let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let length = body.len();
    let (first, end) = match (first, last) {
        ("", count) => (length.saturating_sub(count.parse().unwrap()), length),
        (first, "") => (first.parse().unwrap(), length),
        (first, last) => (first.parse().unwrap(), length.min(last.parse::<usize>().unwrap() + 1)),
    };
    Reply::cached(&body[first..end])
        .status("206 Partial Content")
        .with("etag", etag)
        .with("content-range", &format!("bytes {first}-{}/{length}", end - 1))
}

async fn world(length: usize, etag: &'static str) -> (Origin, Running, SocketAddr, Vec<u8>) {
    let (origin, node, at) = alone(|settings| {
        settings.cache.block = BLOCK as u64;
        settings.listeners[0].h2c = true;
    })
    .await;
    let whole = body(length);
    let content = whole.clone();
    origin.script("/a", move |asked| ranged(asked, &content, etag));
    (origin, node, at, whole)
}

async fn part(at: SocketAddr, range: &str) -> Answer {
    get_with(at, "/a", &[("Range", range)]).await
}

fn asked_ranges(origin: &Origin) -> Vec<String> {
    origin.asked("/a").iter().map(|asked| asked.header("range").unwrap_or_default()).collect()
}

#[tokio::test]
async fn end_of_an_unknown_object_is_asked_for_once_and_answers_what_lies_inside() {
    for etag in ["\"v1\"", "W/\"v1\"", ""] {
        let (origin, node, at, whole) = world(20 * BLOCK, etag).await;
        let length = whole.len();
        let first = part(at, "bytes=-100").await;
        assert_eq!((first.status, &first.body[..]), (206, &whole[length - 100..]));
        assert_eq!(first.field("cache-status"), "n0; fwd=uri-miss; fwd-status=206; stored");
        settled(&node).await;
        let inside = format!("bytes={}-{}", length - 90, length - 81);
        let open = format!("bytes={}-", length - 7);
        for (range, bytes) in [
            ("bytes=-100", length - 100..length),
            ("bytes=-1", length - 1..length),
            (&*inside, length - 90..length - 80),
            (&*open, length - 7..length),
        ] {
            let again = part(at, range).await;
            assert_eq!((again.status, again.is_hit()), (206, true), "{range} {again:?}");
            let told = format!("bytes {}-{}/{length}", bytes.start, bytes.end - 1);
            assert_eq!(again.field("content-range"), told);
            assert_eq!(again.field("content-length"), bytes.len().to_string());
            assert_eq!(again.body, whole[bytes]);
        }
        assert_eq!(asked_ranges(&origin), ["bytes=-100"], "{etag}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn stored_part_answers_nothing_beyond_it() {
    let (origin, node, at, whole) = world(20 * BLOCK, "\"v1\"").await;
    let length = whole.len();
    part(at, "bytes=-100").await;
    settled(&node).await;
    let beyond = part(at, "bytes=-101").await;
    assert_eq!((beyond.status, &beyond.body[..]), (206, &whole[length - 101..]));
    let other = part(at, "bytes=5-9").await;
    assert_eq!((other.status, &other.body[..]), (206, &whole[5..10]));
    settled(&node).await;
    assert_eq!(asked_ranges(&origin), ["bytes=-100", "bytes=-101", "bytes=0-65535"]);
    let whole_one = get(at, "/a").await;
    assert!(whole_one.status == 200 && whole_one.whole && whole_one.body == whole);
    settled(&node).await;
}

#[tokio::test]
async fn conditions_are_not_answered_from_a_part_that_cannot_judge_them() {
    let (_origin, node, at, whole) = world(20 * BLOCK, "\"v1\"").await;
    let end = whole.len() - 5..whole.len();
    part(at, "bytes=-5").await;
    settled(&node).await;
    let same = get_with(at, "/a", &[("Range", "bytes=-5"), ("If-Range", "\"v1\"")]).await;
    assert_eq!((same.status, same.is_hit(), &same.body[..]), (206, true, &whole[end]));
    let other = get_with(at, "/a", &[("Range", "bytes=-5"), ("If-Range", "\"v0\"")]).await;
    assert!(!other.is_hit(), "{other:?}");
    settled(&node).await;
}

#[tokio::test]
async fn parts_without_usable_blocks_are_stored_one_by_one() {
    let (origin, node, at, whole) = world(5 * BLOCK, "").await;
    let middle = format!("bytes={}-{}", 2 * BLOCK + 10, 2 * BLOCK + 19);
    for (range, bytes, hit) in [
        // The block that was asked for first is useful by itself.
        ("bytes=10-19", 10..20, false),
        ("bytes=10-19", 10..20, true),
        ("bytes=0-999", 0..1000, true),
        (&*middle, 2 * BLOCK + 10..2 * BLOCK + 20, false),
        (&*middle, 2 * BLOCK + 10..2 * BLOCK + 20, true),
        ("bytes=0-999", 0..1000, true),
    ] {
        let answer = part(at, range).await;
        assert_eq!((answer.status, answer.is_hit()), (206, hit), "{range} {answer:?}");
        assert_eq!(answer.body, whole[bytes]);
        settled(&node).await;
    }
    assert_eq!(asked_ranges(&origin), ["bytes=0-65535".to_owned(), middle]);
}

#[tokio::test]
async fn answer_with_another_range_is_passed_on_and_not_stored() {
    let (origin, node, at) = alone(|settings| settings.cache.block = BLOCK as u64).await;
    origin.script("/a", |_| {
        let reply = Reply::cached("01234").status("206 Partial Content");
        reply.with("content-range", "bytes 0-4/10")
    });
    for n in 1..=2 {
        let answer = part(at, "bytes=-5").await;
        assert_eq!((answer.status, answer.field("content-range")), (206, "bytes 0-4/10".into()));
        assert_eq!((answer.text(), origin.hits("/a")), ("01234".into(), n));
        settled(&node).await;
    }
}

#[tokio::test]
async fn last_position_one_too_far_is_mended_where_all_that_was_asked_for_came() {
    let (origin, node, at) = alone(|settings| settings.cache.block = BLOCK as u64).await;
    origin.script("/a", |_| {
        let reply = Reply::cached("01234").status("206 Partial Content");
        reply.with("content-range", "bytes 4-9/10")
    });
    for (range, body) in
        [("-5", "01234"), ("-5", "01234"), ("6-8", "234"), ("6-", "234"), ("-1", "4")]
    {
        let answer = part(at, &format!("bytes={range}")).await;
        assert_eq!((answer.status, answer.text()), (206, body.to_owned()), "{range}");
        settled(&node).await;
    }
    assert_eq!(origin.hits("/a"), 1);
}

#[tokio::test]
async fn unsatisfiable_end_is_answered_by_the_origin_and_says_nothing_of_the_whole() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.script("/a", |asked| match asked.header("range") {
        None => Reply::cached(""),
        Some(_) => {
            Reply::cached("").status("416 Range Not Satisfiable").with("content-range", "bytes */0")
        }
    });
    let answer = part(at, "bytes=-5").await;
    assert_eq!((answer.status, answer.field("content-range")), (416, "bytes */0".into()));
    assert_eq!(origin.hits("/a"), 1);
    assert_eq!(get(at, "/a").await.status, 200);
    settled(&node).await;
}

#[tokio::test]
async fn purged_and_invalidated_parts_are_fetched_anew() {
    let (origin, node, at, _) = world(20 * BLOCK, "\"v1\"").await;
    part(at, "bytes=-5").await;
    settled(&node).await;
    let post = head_of("POST", "/a", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(at, post).await.answer_to("POST").await.status, 200);
    settled(&node).await;
    assert!(!part(at, "bytes=-5").await.is_hit());
    settled(&node).await;
    assert!(part(at, "bytes=-5").await.is_hit());
    purge(&node, json!({"url": url("/a")})).await;
    assert!(!part(at, "bytes=-5").await.is_hit());
    assert_eq!(origin.hits("/a"), 4);
    settled(&node).await;
}

#[tokio::test]
async fn parts_are_stored_by_the_fields_that_select_them() {
    let (origin, node, at) = alone(|settings| settings.cache.block = BLOCK as u64).await;
    let whole = body(9000);
    origin.script("/a", move |asked| {
        let language = asked.header("accept-language").unwrap_or_default();
        ranged(asked, &whole, "").with("vary", "accept-language").with("x-language", &language)
    });
    for (language, hit) in [("de", false), ("en", false), ("de", true), ("en", true)] {
        let fields = [("Range", "bytes=-9"), ("Accept-Language", language)];
        let answer = get_with(at, "/a", &fields).await;
        assert_eq!((answer.is_hit(), answer.field("x-language")), (hit, language.to_owned()));
        settled(&node).await;
    }
    assert_eq!(origin.hits("/a"), 2);
}

#[tokio::test]
async fn parts_are_served_over_http2_and_in_a_cluster() {
    let (origin, node, at, whole) = world(20 * BLOCK, "\"v1\"").await;
    let mut sender = http2::h2c(at).await;
    for _ in 0..2 {
        let mut request = http2::ask("/a");
        request.headers_mut().insert("range", "bytes=-77".parse().unwrap());
        let (status, bytes) = http2::fetch(&mut sender, request).await;
        assert_eq!((status, &bytes[..]), (206, &whole[whole.len() - 77..]));
    }
    assert_eq!(origin.hits("/a"), 1);
    drop(sender);
    settled(&node).await;

    let length = whole.len();
    let content = whole;
    origin.script("/b", move |asked| ranged(asked, &content, "\"v1\""));
    let cluster = Cluster::start(2, origin.address, |_| {}).await;
    for index in [0, 1, 0] {
        let answer = get_with(cluster.client(index), "/b", &[("Range", "bytes=-9")]).await;
        let told = format!("bytes {}-{}/{length}", length - 9, length - 1);
        assert_eq!((answer.status, answer.field("content-range")), (206, told));
        cluster.settled().await;
    }
    assert_eq!(origin.hits("/b"), 1);
}
