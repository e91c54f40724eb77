//! Compression: coded copies next to the original, and coded streams of what is not stored.

use std::{io::Read, net::SocketAddr};

use levada_config::{Coding, CompressSettings, Settings};
use levada_node::Running;
use serde_json::json;

use crate::{
    purge::{purge, url},
    support::{nodes::*, origin::Asked, *},
};

pub(crate) async fn world() -> (Origin, Running, SocketAddr) {
    world_with(|_, _| {}).await
}

pub(crate) async fn world_with(
    tweak: impl FnOnce(&mut Settings, &mut CompressSettings),
) -> (Origin, Running, SocketAddr) {
    alone(|settings| {
        let mut compress = CompressSettings::default();
        tweak(settings, &mut compress);
        settings.sites[0].handling.compress = Some(compress);
    })
    .await
}

/// Text of about this length.
pub(crate) fn text(length: usize, version: u32) -> String {
    let line =
        |n: usize| format!("line {n} of version {version}: {}\n", n.wrapping_mul(2654435761));
    let mut text: String = (0..length / 30).map(line).collect();
    text.truncate(length);
    text
}

pub(crate) fn page(body: &str) -> Reply {
    Reply::cached(body).with("content-type", "text/html").with("etag", "\"v1\"")
}

/// Answers 304 to a validation.
fn validated(asked: &Asked, body: &str, etag: &str) -> Reply {
    let reply = |body: &str| {
        Reply::ok(body).with("cache-control", "max-age=0").with("content-type", "text/html")
    };
    match asked.header("if-none-match").is_some_and(|tag| tag == etag) {
        true => reply("").status("304 Not Modified").with("etag", etag),
        false => reply(body).with("etag", etag),
    }
}

pub(crate) async fn accepting(at: SocketAddr, target: &str, codings: &str) -> Answer {
    get_with(at, target, &[("Accept-Encoding", codings)]).await
}

pub(crate) fn decoded(answer: &Answer) -> String {
    let (coded, mut bytes) = (&*answer.body, Vec::new());
    match &*answer.field("content-encoding") {
        "gzip" => flate2::read::GzDecoder::new(coded).read_to_end(&mut bytes).unwrap(),
        "br" => brotli::Decompressor::new(coded, 4096).read_to_end(&mut bytes).unwrap(),
        "zstd" => zstd::Decoder::new(coded).unwrap().read_to_end(&mut bytes).unwrap(),
        other => panic!("coded as {other:?}"),
    };
    String::from_utf8(bytes).unwrap()
}

/// Waits until a copy is stored: its answer has a length.
pub(crate) async fn stored_copy(at: SocketAddr, target: &str, coding: &str) -> Answer {
    for _ in 0..2000 {
        let answer = accepting(at, target, coding).await;
        if answer.header("content-length").is_some() && answer.field("content-encoding") == coding {
            return answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("never stored: {target} in {coding}");
}

#[tokio::test]
async fn every_coding_is_made_once_and_served_from_the_store() {
    let (origin, node, at) = world().await;
    let body = text(100_000, 1);
    origin.on("/a", page(&body));
    for coding in ["zstd", "br", "gzip"] {
        let first = accepting(at, "/a", coding).await;
        assert_eq!((first.status, first.whole), (200, true), "{first:?}");
        assert_eq!(decoded(&first), body);
        let again = stored_copy(at, "/a", coding).await;
        assert!(again.is_hit() && again.body.len() < body.len() / 2, "{:?}", again.fields);
        assert_eq!(decoded(&again), body);
        assert_eq!(again.field("etag"), format!("W/\"v1-{coding}\""));
        assert_eq!(again.field("vary"), "accept-encoding");
        assert_eq!(again.field("content-length"), again.body.len().to_string());
    }
    let original = get(at, "/a").await;
    assert_eq!((original.text(), original.field("etag")), (body, "\"v1\"".to_owned()));
    assert_eq!(original.field("vary"), "accept-encoding");
    assert_eq!(origin.hits("/a"), 1);
    assert_eq!(metric(&node, "levada_compress_bodies_total").await, 3.0);
    settled(&node).await;
}

#[tokio::test]
async fn origin_is_asked_for_the_original_and_variants_do_not_multiply() {
    let (origin, node, at) = world().await;
    let body = text(20_000, 1);
    origin.on("/a", page(&body).with("vary", "Accept-Encoding"));
    for codings in ["gzip", "gzip, deflate", "deflate, gzip;q=0.9", "x-gzip", "gzip, br;q=0"] {
        assert_eq!(decoded(&accepting(at, "/a", codings).await), body, "{codings}");
    }
    assert_eq!(origin.hits("/a"), 1);
    assert_eq!(origin.asked("/a")[0].header("accept-encoding").as_deref(), Some("identity"));
    assert_eq!(metric(&node, "levada_compress_bodies_total").await, 1.0);
    settled(&node).await;
}

#[tokio::test]
async fn origin_is_asked_for_codings_in_one_form_if_that_is_wanted() {
    let (origin, node, at) = world_with(|_, compress| compress.origin_codings = true).await;
    let coded = vec![7; 2000];
    let reply = Reply::cached(&*coded).with("content-type", "text/css");
    origin.on("/a", reply.with("content-encoding", "gzip").with("vary", "accept-encoding"));
    for codings in ["gzip, br", "br;q=0.5,GZIP", "br, gzip, deflate"] {
        let answer = accepting(at, "/a", codings).await;
        assert_eq!((answer.field("content-encoding"), &answer.body), ("gzip".to_owned(), &coded));
    }
    assert_eq!(origin.hits("/a"), 1);
    assert_eq!(origin.asked("/a")[0].header("accept-encoding").as_deref(), Some("br, gzip"));
    settled(&node).await;
}

#[tokio::test]
async fn coded_untouchable_partial_and_small_responses_pass_as_they_are() {
    let (origin, node, at) = world().await;
    let body = text(4000, 1);
    origin.on("/gzip", page(&body).with("content-encoding", "gzip"));
    origin.on("/fixed", page(&body).with("cache-control", "no-transform"));
    origin.on("/png", Reply::cached(&*body).with("content-type", "image/png"));
    origin.on("/small", page("small"));
    let events = Reply::chunked(vec![Piece::Bytes(body.clone().into())]);
    origin.on("/events", events.with("content-type", "text/event-stream"));
    for target in ["/gzip", "/fixed", "/png", "/events"] {
        for _ in 0..2 {
            let answer = accepting(at, target, "gzip, br, zstd").await;
            assert_eq!(answer.text(), body, "{target}");
        }
    }
    assert_eq!(accepting(at, "/small", "gzip").await.text(), "small");
    assert_eq!(accepting(at, "/gzip", "br").await.field("content-encoding"), "gzip");
    assert_eq!(metric(&node, "levada_compress_bodies_total").await, 0.0);
    settled(&node).await;
}

#[tokio::test]
async fn client_that_holds_a_copy_gets_304_for_its_own_coding() {
    let (origin, node, at) = world().await;
    origin.on("/a", page(&text(5000, 1)));
    get(at, "/a").await;
    let held = |tag: &'static str, coding: &'static str| async move {
        let fields = [("If-None-Match", tag), ("Accept-Encoding", coding)];
        get_with(at, "/a", &fields).await
    };
    // The copy need not be there.
    let answer = held("W/\"v1-br\"", "br").await;
    assert_eq!((answer.status, answer.field("etag")), (304, "W/\"v1-br\"".to_owned()));
    assert_eq!(answer.field("vary"), "accept-encoding");
    assert_eq!(metric(&node, "levada_compress_bodies_total").await, 0.0);
    assert_eq!(held("\"x\", W/\"v1-gzip\"", "gzip").await.status, 304);
    assert_eq!(held("W/\"v1-br\"", "gzip").await.status, 200);
    assert_eq!(held("\"v1\"", "gzip").await.status, 304);
    assert_eq!(held("\"v1\"", "identity").await.status, 304);
    settled(&node).await;
}

#[tokio::test]
async fn head_has_the_fields_of_the_get() {
    let (origin, node, at) = world().await;
    origin.on("/a", page(&text(5000, 1)));
    let head = || async move {
        let request = head_of("HEAD", "/a", &[("Accept-Encoding", "gzip")]);
        Wire::saying(at, request).await.answer_to("HEAD").await
    };
    // By the origin's head, by the stored original, by the stored copy.
    for stored in 0..3 {
        match stored {
            1 => drop(get(at, "/a").await),
            2 => drop(stored_copy(at, "/a", "gzip").await),
            _ => {}
        }
        let answer = head().await;
        assert_eq!(answer.field("content-encoding"), "gzip", "{stored}: {answer:?}");
        assert_eq!(answer.field("etag"), "W/\"v1-gzip\"");
        assert_eq!(answer.header("content-length").is_some(), stored == 2);
    }
    let (whole, head) = (stored_copy(at, "/a", "gzip").await, head().await);
    for name in ["content-length", "content-encoding", "etag", "vary", "content-type"] {
        assert_eq!(whole.header(name), head.header(name), "{name}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn ranges_come_from_the_stored_copy_else_from_the_original() {
    let (origin, node, at) = world().await;
    let body = text(9000, 1);
    origin.on("/a", page(&body));
    get(at, "/a").await;
    let part = |fields: &'static [(&'static str, &'static str)]| async move {
        let mut all = vec![("Accept-Encoding", "gzip"), ("Range", "bytes=10-19")];
        all.extend(fields);
        get_with(at, "/a", &all).await
    };
    let original = part(&[]).await;
    assert_eq!((original.status, &*original.body), (206, &body.as_bytes()[10..20]));
    assert_eq!(original.field("etag"), "\"v1\"");
    assert!(original.header("content-encoding").is_none());
    let copy = stored_copy(at, "/a", "gzip").await;
    let coded = part(&[]).await;
    assert_eq!((coded.status, &*coded.body), (206, &copy.body[10..20]));
    assert_eq!(coded.field("content-range"), format!("bytes 10-19/{}", copy.body.len()));
    assert_eq!(coded.field("content-encoding"), "gzip");
    // Neither validator allows the parts to be combined with those of the copy.
    for validator in ["\"v1\"", "W/\"v1-gzip\""] {
        let fields = [("Accept-Encoding", "gzip"), ("Range", "bytes=10-"), ("If-Range", validator)];
        let answer = get_with(at, "/a", &fields).await;
        assert_eq!((answer.status, decoded(&answer)), (200, body.clone()), "{validator}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn revalidation_keeps_the_copies_and_a_new_version_drops_them() {
    let (origin, node, at) = world().await;
    let (first, second) = (text(5000, 1), text(5000, 2));
    let body = first.clone();
    origin.script("/a", move |asked| validated(asked, &body, "\"v1\""));
    assert_eq!(decoded(&accepting(at, "/a", "gzip").await), first);
    for _ in 0..3 {
        let answer = stored_copy(at, "/a", "gzip").await;
        assert!(answer.field("cache-status").contains("fwd-status=304"), "{:?}", answer.fields);
        assert_eq!(decoded(&answer), first);
    }
    assert_eq!(metric(&node, "levada_compress_bodies_total").await, 1.0);
    let body = second.clone();
    // The same tag, as of a bad origin, must not bring the old copy back: the original's version counts.
    origin.script("/a", move |asked| validated(asked, &body, "\"v2\""));
    let answer = accepting(at, "/a", "gzip").await;
    assert_eq!((decoded(&answer), answer.field("etag")), (second, "W/\"v2-gzip\"".to_owned()));
    settled(&node).await;
}

#[tokio::test]
async fn purge_of_the_original_covers_its_copies() {
    let (origin, node, at) = world().await;
    let (first, second) = (text(5000, 1), text(5000, 2));
    origin.on("/a", page(&first));
    accepting(at, "/a", "br").await;
    stored_copy(at, "/a", "br").await;
    // The new one has the tag of the former one.
    origin.on("/a", page(&second));
    purge(&node, json!({ "url": url("/a") })).await;
    assert_eq!(decoded(&accepting(at, "/a", "br").await), second);
    assert_eq!(decoded(&stored_copy(at, "/a", "br").await), second);
    settled(&node).await;
}

#[tokio::test]
async fn long_bodies_have_copies_in_blocks() {
    let (origin, node, at) = world_with(|settings, _| settings.cache.block = 64 << 10).await;
    let body = text(3 << 20, 1);
    origin.on("/a", page(&body));
    assert_eq!(decoded(&accepting(at, "/a", "gzip").await), body);
    let copy = stored_copy(at, "/a", "gzip").await;
    assert!(copy.body.len() > 2 * (64 << 10) && decoded(&copy) == body);
    let fields = [("Accept-Encoding", "gzip"), ("Range", "bytes=65530-65545")];
    assert_eq!(get_with(at, "/a", &fields).await.body, &copy.body[65530..65546]);
    settled(&node).await;
}

#[tokio::test]
async fn copies_survive_a_restart_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let origin = Origin::start().await;
    let body = text(50_000, 1);
    origin.on("/a", page(&body).with("vary", "origin, accept-encoding"));
    let mut settings = single(&[origin.address]);
    settings.sites[0].handling.compress = Some(CompressSettings::default());
    settings.cache.disk = Some(levada_config::DiskCache { path, size: 64 << 20 });
    let node = start(settings.clone()).await;
    let at = node.addresses.clients[0];
    accepting(at, "/a", "gzip").await;
    let before = stored_copy(at, "/a", "gzip").await;
    node.stop().await;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let after = accepting(at, "/a", "gzip").await;
    assert!(after.is_hit() && after.body == before.body, "{:?}", after.fields);
    assert_eq!((origin.hits("/a"), decoded(&after)), (1, body));
    settled(&node).await;
}

#[tokio::test]
async fn stream_that_is_not_stored_is_compressed_and_not_held_back() {
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    let (first, rest) = (text(600, 1), text(600, 2));
    let pieces = vec![
        Piece::Bytes(first.clone().into()),
        Piece::Gate(gate.clone()),
        Piece::Bytes(rest.clone().into()),
    ];
    let reply = Reply::chunked(pieces).with("content-type", "text/plain");
    origin.on("/slow", reply.with("cache-control", "no-store").with("etag", "\"s\""));
    let request = head_of("GET", "/slow", &[("Accept-Encoding", "gzip")]);
    let mut wire = Wire::saying(at, request).await;
    let mut answer = wire.head().await;
    assert_eq!(answer.field("content-encoding"), "gzip");
    assert_eq!(answer.field("etag"), "W/\"s-gzip\"");
    assert_eq!(answer.field("transfer-encoding"), "chunked");
    // The first chunk comes while the origin still waits.
    let chunk = within(wire.some()).await;
    let coded = chunk.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
    let mut begun = vec![0; first.len()];
    flate2::read::GzDecoder::new(&chunk[coded..]).read_exact(&mut begun).unwrap();
    assert_eq!(begun, first.as_bytes());
    gate.open();
    let mut tail = chunk;
    tail.extend(wire.rest_until(b"0\r\n\r\n").await);
    let mut again = Wire::over(std::io::Cursor::new(tail));
    again.body(&mut answer, "GET").await;
    assert_eq!(decoded(&answer), first + &rest);
    settled(&node).await;
}

#[tokio::test]
async fn body_that_breaks_off_is_cut_for_those_who_get_its_copy() {
    let (origin, node, at) = world().await;
    let length = 100_000.to_string();
    for target in ["/stored", "/passed"] {
        let pieces = vec![Piece::Bytes(text(50_000, 1).into()), Piece::Cut];
        let mut reply = page("").with("content-length", &length).pieces(pieces);
        if target == "/passed" {
            reply = reply.with("cache-control", "no-store");
        }
        origin.on(target, reply);
        let answer = accepting(at, target, "gzip").await;
        assert!(!answer.whole, "{target}: {answer:?}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn full_queue_sends_the_original() {
    let (origin, node, at) = world_with(|settings, _| {
        settings.limits.compress_workers = Some(1);
        settings.limits.compress_queue = 0;
    })
    .await;
    let gate = Gate::new();
    let body = text(2000, 1);
    let pieces = vec![Piece::Bytes(body.clone().into()), Piece::Gate(gate.clone())];
    origin.on("/slow", Reply::chunked(pieces).with("content-type", "text/html"));
    origin.on("/a", page(&body));
    let mut slow = Wire::saying(at, head_of("GET", "/slow", &[("Accept-Encoding", "br")])).await;
    assert_eq!(slow.head().await.field("content-encoding"), "br");
    let answer = accepting(at, "/a", "br").await;
    assert_eq!((answer.header("content-encoding"), answer.text()), (None, body.clone()));
    assert_eq!(answer.field("vary"), "accept-encoding");
    assert!(metric(&node, "levada_compress_refused_total").await >= 1.0);
    gate.open();
    drop(slow);
    assert_eq!(decoded(&stored_copy(at, "/a", "br").await), body);
    settled(&node).await;
}

#[tokio::test]
async fn node_that_holds_the_object_makes_the_copy() {
    let origin = Origin::start().await;
    let body = text(30_000, 1);
    origin.on("/a", page(&body));
    let cluster = Cluster::start(3, origin.address, |settings| {
        settings.sites[0].handling.compress = Some(CompressSettings::default());
        settings.sites[0].servers.policy = policy("hrw");
    })
    .await;
    for index in 0..3 {
        for _ in 0..3 {
            let answer = accepting(cluster.client(index), "/a", "zstd").await;
            assert_eq!(
                (answer.field("etag"), decoded(&answer)),
                ("W/\"v1-zstd\"".to_owned(), body.clone())
            );
        }
        stored_copy(cluster.client(index), "/a", "zstd").await;
    }
    let mut made = Vec::new();
    for index in 0..3 {
        made.push(metric(cluster.node(index), "levada_compress_bodies_total").await);
    }
    made.sort_by(f64::total_cmp);
    assert_eq!((origin.hits("/a"), made), (1, vec![0.0, 0.0, 1.0]));
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_together_share_one_copy() {
    let (origin, node, at) = world_with(|_, compress| compress.codings = vec![Coding::Gzip]).await;
    let body = text(400_000, 1);
    origin.on("/a", page(&body));
    let all: Vec<_> = (0..20)
        .map(|_| tokio::spawn(async move { accepting(at, "/a", "gzip, br, zstd").await }))
        .collect();
    for one in all {
        assert_eq!(decoded(&one.await.unwrap()), body);
    }
    assert_eq!(origin.hits("/a"), 1);
    assert_eq!(metric(&node, "levada_compress_bodies_total").await, 1.0);
    settled(&node).await;
}
