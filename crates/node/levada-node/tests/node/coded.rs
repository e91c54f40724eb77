//! Requests that are difficult for a node that compresses: conditions, ranges, forms of `Accept-Encoding`,
//! clients that leave, variants, and copies that must not pile up.

use std::io::Read;

use levada_config::{CompressSettings, TypePattern};
use levada_node::Running;

use crate::{
    compress::{accepting, decoded, page, stored_copy, text, world, world_with},
    support::{nodes::*, origin::Asked, *},
};

/// What is not stored, from an origin that compares tags weakly, as RFC 9110 Sec. 13.1.2 requires.
fn unstored(asked: &Asked, body: &str, etag: &str) -> Reply {
    let reply = |body: &str| {
        let reply = Reply::ok(body).with("cache-control", "no-store").with("etag", etag);
        reply.with("content-type", "text/html")
    };
    let strip = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let held = asked.header("if-none-match").unwrap_or_default();
    match held.split(',').any(|tag| strip(tag) == strip(etag)) {
        true => reply("").status("304 Not Modified"),
        false => reply(body),
    }
}

#[tokio::test]
async fn client_that_holds_a_coded_stream_gets_304_from_the_origin() {
    let (origin, node, at) = world_with(|settings, _| {
        settings.sites[0].handling.cache = false;
    })
    .await;
    let body = text(5000, 1);
    for (target, etag) in [("/strong", "\"s\""), ("/weak", "W/\"s\"")] {
        let whole = body.clone();
        origin.script(target, move |asked| unstored(asked, &whole, etag));
        let first = accepting(at, target, "gzip").await;
        assert_eq!(first.field("etag"), "W/\"s-gzip\"");
        for method in ["GET", "HEAD"] {
            let held = first.field("etag");
            let fields = [("Accept-Encoding", "gzip"), ("If-None-Match", &*held)];
            let request = head_of(method, target, &fields);
            let answer = Wire::saying(at, request).await.answer_to(method).await;
            assert_eq!((answer.status, answer.field("etag")), (304, held), "{target} {method}");
            assert_eq!(answer.field("vary"), "accept-encoding", "{target} {method}");
        }
        // A tag of another coding, or of another version, stays what it is.
        for (coding, tag) in [("br", "W/\"s-gzip\""), ("gzip", "W/\"r-gzip\"")] {
            let fields = [("Accept-Encoding", coding), ("If-None-Match", tag)];
            let answer = get_with(at, target, &fields).await;
            assert_eq!((answer.status, decoded(&answer)), (200, body.clone()), "{target} {tag}");
        }
        let fields = [("Accept-Encoding", "gzip"), ("If-None-Match", "\"s\"")];
        let answer = get_with(at, target, &fields).await;
        assert_eq!((answer.status, answer.field("etag")), (304, etag.to_owned()), "{target}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn client_that_holds_any_acceptable_form_gets_304() {
    let (origin, node, at) = world().await;
    origin.on("/a", page(&text(5000, 1)));
    get(at, "/a").await;
    let held = |tag: &'static str, codings: &'static str| async move {
        let fields = [("If-None-Match", tag), ("Accept-Encoding", codings)];
        let answer = get_with(at, "/a", &fields).await;
        (answer.status, answer.field("etag"))
    };
    let expected = |tag: &str| (304, tag.to_owned());
    for stored in [false, true] {
        if stored {
            stored_copy(at, "/a", "zstd").await;
        }
        assert_eq!(held("W/\"v1-gzip\"", "gzip, br, zstd").await, expected("W/\"v1-gzip\""));
        // It got the original while the queue was full.
        assert_eq!(held("\"v1\"", "gzip, br, zstd").await, expected("\"v1\""));
        assert_eq!(held("\"v1\"", "gzip, identity;q=0").await.0, 200);
        assert_eq!(held("W/\"v1-gzip\"", "zstd").await.0, 200);
    }
    settled(&node).await;
}

#[tokio::test]
async fn date_does_not_resume_a_copy() {
    let (origin, node, at) = world().await;
    let body = text(9000, 1);
    let changed = "Wed, 01 Jan 2020 00:00:00 GMT";
    let dated = |body: &str| Reply::cached(body).with("content-type", "text/html");
    let now = httpdate::fmt_http_date(std::time::SystemTime::now());
    origin.on("/a", dated(&body).with("last-modified", changed).with("date", &now));
    get(at, "/a").await;
    let resume = |codings: &'static str| async move {
        let fields =
            [("Accept-Encoding", codings), ("Range", "bytes=10-19"), ("If-Range", changed)];
        get_with(at, "/a", &fields).await
    };
    // The client may hold the beginning of a copy, whose date is that of the original.
    let answer = resume("gzip").await;
    assert_eq!((answer.status, decoded(&answer)), (200, body.clone()));
    stored_copy(at, "/a", "gzip").await;
    let answer = resume("gzip").await;
    assert_eq!((answer.status, decoded(&answer)), (200, body.clone()));
    let answer = resume("identity").await;
    assert_eq!((answer.status, &*answer.body), (206, &body.as_bytes()[10..20]));
    settled(&node).await;
}

#[tokio::test]
async fn client_that_wants_no_transformation_gets_the_original() {
    let (origin, node, at) = world().await;
    let body = text(5000, 1);
    origin.on("/a", page(&body));
    origin.on("/passed", page(&body).with("cache-control", "no-store"));
    stored_copy(at, "/a", "gzip").await;
    for target in ["/a", "/passed"] {
        let fields = [("Accept-Encoding", "gzip"), ("Cache-Control", "no-transform")];
        let answer = get_with(at, target, &fields).await;
        assert_eq!((answer.header("content-encoding"), answer.text()), (None, body.clone()));
    }
    settled(&node).await;
}

#[tokio::test]
async fn forms_of_the_field_give_what_they_say() {
    let (origin, node, at) = world().await;
    let body = text(5000, 1);
    origin.on("/a", page(&body));
    let padding = "x;q=0.5,".repeat(1000);
    let long = format!("{padding} gzip");
    for (codings, expected) in [
        ("identity;q=0", None),
        ("*;q=0", None),
        ("gzip;q=0, *", Some("zstd")),
        ("gzip;q=0.000", None),
        ("identity;q=0, gzip;q=0.001", Some("gzip")),
        ("br;q=0.1,, ,gzip;q=1.000", Some("gzip")),
        ("gzip;q=0, gzip", None),
        ("deflate, compress", None),
        (&*long, None),
    ] {
        let answer = accepting(at, "/a", codings).await;
        assert_eq!(answer.header("content-encoding").as_deref(), expected, "{codings}");
        let got = if expected.is_some() { decoded(&answer) } else { answer.text() };
        assert_eq!((answer.status, got), (200, body.clone()), "{codings}");
    }
    let lines = [("Accept-Encoding", "br;q=0"), ("Accept-Encoding", "gzip, zstd;q=0.2")];
    assert_eq!(get_with(at, "/a", &lines).await.field("content-encoding"), "gzip");
    settled(&node).await;
}

/// Waits until no body is being compressed.
async fn none_active(node: &Running) {
    for _ in 0..2000 {
        if metric(node, "levada_compress_active_bodies").await == 0.0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("a body is still being compressed");
}

#[tokio::test]
async fn client_that_leaves_takes_nothing_along() {
    let (origin, node, at) = world().await;
    let body = text(2 << 20, 1);
    for target in ["/kept", "/passed"] {
        let gate = Gate::new();
        let (first, rest) = body.split_at(1 << 20);
        let pieces = vec![
            Piece::Bytes(first.as_bytes().to_vec()),
            Piece::Gate(gate.clone()),
            Piece::Bytes(rest.as_bytes().to_vec()),
        ];
        let reply = Reply::chunked(pieces).with("content-type", "text/html");
        let control = if target == "/kept" { "max-age=60" } else { "no-store" };
        origin.on(target, reply.with("cache-control", control));
        let request = head_of("GET", target, &[("Accept-Encoding", "gzip")]);
        let mut wire = Wire::saying(at, request).await;
        assert_eq!(wire.head().await.field("content-encoding"), "gzip");
        within(wire.some()).await;
        drop(wire);
        if target == "/passed" {
            none_active(&node).await;
        }
        gate.open();
    }
    assert_eq!(decoded(&stored_copy(at, "/kept", "gzip").await), body);
    none_active(&node).await;
    settled(&node).await;
}

#[tokio::test]
async fn each_variant_has_copies_of_its_own() {
    let (origin, node, at) = world().await;
    origin.script("/a", |asked| {
        let language = asked.header("accept-language").unwrap_or_default();
        let body = text(5000, language.len() as u32);
        page(&body).with("vary", "Accept-Language").with("etag", &format!("\"{language}\""))
    });
    for _ in 0..2 {
        for (language, version) in [("de", 2), ("fra", 3)] {
            let fields = [("Accept-Encoding", "gzip"), ("Accept-Language", language)];
            let answer = get_with(at, "/a", &fields).await;
            assert_eq!(decoded(&answer), text(5000, version), "{language}");
            assert_eq!(
                answer.field("vary").to_ascii_lowercase(),
                "accept-language, accept-encoding"
            );
        }
    }
    assert_eq!(origin.hits("/a"), 2);
    settled(&node).await;
}

#[tokio::test]
async fn stale_copy_stands_in_for_an_error() {
    let (origin, node, at) = world().await;
    let body = text(5000, 1);
    let stale = "max-age=0, stale-if-error=600";
    let reply = Reply::ok(&*body).with("content-type", "text/html").with("etag", "\"v1\"");
    origin.on("/a", reply.with("cache-control", stale));
    accepting(at, "/a", "gzip").await;
    origin.on("/a", Reply::ok("no").status("503 Service Unavailable"));
    for _ in 0..2 {
        let answer = accepting(at, "/a", "gzip").await;
        assert_eq!((answer.status, decoded(&answer)), (200, body.clone()));
    }
    settled(&node).await;
}

#[tokio::test]
async fn stored_answer_to_a_post_is_compressed() {
    let (origin, node, at) = world().await;
    let body = text(5000, 1);
    origin.on("/a", page(&body).with("content-location", "/a"));
    let fields = [("Accept-Encoding", "gzip"), ("Content-Length", "0")];
    for _ in 0..2 {
        let answer = Wire::saying(at, head_of("POST", "/a", &fields)).await.answer_to("POST").await;
        assert_eq!(decoded(&answer), body);
    }
    assert_eq!(decoded(&accepting(at, "/a", "gzip").await), body);
    assert_eq!(origin.hits("/a"), 2);
    settled(&node).await;
}

#[tokio::test]
async fn named_event_stream_is_compressed_event_by_event() {
    let (origin, node, at) = world_with(|_, compress| {
        compress.types = vec![TypePattern::parse("text/event-stream").unwrap()];
    })
    .await;
    let gates: Vec<Gate> = (0..3).map(|_| Gate::new()).collect();
    let event = |n: usize| format!("data: {n}\n\n");
    let pieces =
        (0..3).flat_map(|n| [Piece::Bytes(event(n).into_bytes()), Piece::Gate(gates[n].clone())]);
    let reply = Reply::chunked(pieces.collect()).with("cache-control", "no-store");
    origin.on("/events", reply.with("content-type", "text/event-stream"));
    let request = head_of("GET", "/events", &[("Accept-Encoding", "gzip")]);
    let mut wire = Wire::saying(at, request).await;
    assert_eq!(wire.head().await.field("content-encoding"), "gzip");
    let mut coded = Vec::new();
    for (n, gate) in gates.iter().enumerate() {
        let chunk = within(wire.some()).await;
        let line = chunk.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
        coded.extend_from_slice(&chunk[line..chunk.len() - 2]);
        let expected: String = (0..=n).map(event).collect();
        let mut got = vec![0; expected.len()];
        flate2::read::GzDecoder::new(&*coded).read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8(got).unwrap(), expected);
        gate.open();
    }
    wire.rest_until(b"0\r\n\r\n").await;
    settled(&node).await;
}

#[tokio::test]
async fn copies_count_as_memory_of_the_cache() {
    let (origin, node, at) = world_with(|settings, _| settings.cache.memory = 2 << 20).await;
    let body: Vec<u8> = {
        let mut state = 1_u64;
        let next = move |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8 & 0x7f
        };
        (0..50_000).map(next).collect()
    };
    origin.otherwise(move |_| Reply::cached(&*body).with("content-type", "text/plain"));
    for n in 0..60 {
        for coding in ["gzip", "br", "zstd"] {
            accepting(at, &format!("/{n}"), coding).await;
        }
    }
    settled(&node).await;
    let held = metric(&node, "levada_cache_bytes").await;
    assert!(held <= f64::from(2 << 20), "{held}");
}

#[tokio::test]
async fn range_of_a_copy_beyond_its_end_is_told_the_length_of_the_copy() {
    let (origin, node, at) = world().await;
    let body = text(9000, 1);
    origin.on("/a", page(&body));
    let copy = stored_copy(at, "/a", "gzip").await;
    let fields = [("Accept-Encoding", "gzip"), ("Range", "bytes=8999-")];
    let answer = get_with(at, "/a", &fields).await;
    assert_eq!(answer.status, 416);
    assert_eq!(answer.field("content-range"), format!("bytes */{}", copy.body.len()));
    // Several parts, and the last bytes.
    let fields = [("Accept-Encoding", "gzip"), ("Range", "bytes=-10")];
    let answer = get_with(at, "/a", &fields).await;
    assert_eq!((answer.status, &*answer.body), (206, &copy.body[copy.body.len() - 10..]));
    let fields = [("Accept-Encoding", "gzip"), ("Range", "bytes=0-1,5-6")];
    let answer = get_with(at, "/a", &fields).await;
    assert_eq!((answer.status, answer.field("content-encoding")), (206, "gzip".to_owned()));
    // A client that cannot take the original gets a range of no original.
    origin.on("/b", page(&body));
    let fields = [("Accept-Encoding", "br, identity;q=0"), ("Range", "bytes=1-2")];
    let answer = get_with(at, "/b", &fields).await;
    assert_eq!((answer.status, decoded(&answer)), (200, body));
    settled(&node).await;
}

#[tokio::test]
async fn precondition_is_judged_by_the_origin() {
    let (origin, node, at) = world().await;
    let body = text(5000, 1);
    let whole = body.clone();
    origin.script("/a", move |asked| match asked.header("if-match") {
        Some(tag) if tag != "\"v1\"" => Reply::ok("").status("412 Precondition Failed"),
        _ => page(&whole),
    });
    stored_copy(at, "/a", "gzip").await;
    for (tag, status) in [("\"v1\"", 200), ("W/\"v1-gzip\"", 412)] {
        let fields = [("Accept-Encoding", "gzip"), ("If-Match", tag)];
        let answer = get_with(at, "/a", &fields).await;
        assert_eq!(answer.status, status, "{tag}");
    }
    assert_eq!(decoded(&accepting(at, "/a", "gzip").await), body);
    settled(&node).await;
}

#[tokio::test]
async fn peers_pass_conditions_and_streams_on() {
    let origin = Origin::start().await;
    let body = text(30_000, 1);
    origin.on("/a", page(&body));
    let passed = body.clone();
    origin.script("/passed", move |asked| unstored(asked, &passed, "\"s\""));
    let cluster = Cluster::start(3, origin.address, |settings| {
        settings.sites[0].handling.compress = Some(CompressSettings::default());
        settings.sites[0].servers.policy = policy("hrw");
    })
    .await;
    stored_copy(cluster.client(0), "/a", "br").await;
    for index in 0..3 {
        let at = cluster.client(index);
        let fields = [("Accept-Encoding", "br"), ("If-None-Match", "W/\"v1-br\"")];
        let answer = get_with(at, "/a", &fields).await;
        assert_eq!((answer.status, answer.field("etag")), (304, "W/\"v1-br\"".to_owned()));
        assert_eq!(answer.field("vary"), "accept-encoding");
        assert_eq!(decoded(&accepting(at, "/passed", "gzip").await), body);
        let fields = [("Accept-Encoding", "br"), ("Range", "bytes=5-9")];
        assert_eq!(get_with(at, "/a", &fields).await.field("content-encoding"), "br");
        assert_eq!(get(at, "/a").await.text(), body);
    }
    cluster.settled().await;
}

#[tokio::test]
async fn old_client_gets_a_copy_that_ends_with_the_connection() {
    let (origin, node, at) = world().await;
    let body = text(50_000, 1);
    origin.on("/a", page(&body));
    let request = "GET /a HTTP/1.0\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n";
    for _ in 0..2 {
        let mut wire = Wire::saying(at, request).await;
        let mut answer = wire.head().await;
        assert_eq!(answer.header("transfer-encoding"), None);
        answer.body = within(wire.rest()).await;
        assert_eq!(decoded(&answer), body);
    }
    settled(&node).await;
}

/// A file that the origin codes with the dictionary that the client has (RFC 9842).
fn delta(asked: &Asked, body: &str) -> Reply {
    let reply = |body: &str| {
        let reply = Reply::cached(body).with("content-type", "application/javascript");
        reply.with("vary", "accept-encoding, available-dictionary")
    };
    let codings = asked.header("accept-encoding").unwrap_or_default();
    match (codings.contains("dcz"), asked.header("available-dictionary")) {
        (true, Some(hash)) => reply(&format!("delta to {hash}")).with("content-encoding", "dcz"),
        _ => reply(body),
    }
}

#[tokio::test]
async fn origin_that_codes_with_dictionaries_is_respected() {
    for compresses in [false, true] {
        let (origin, node, at) = match compresses {
            true => world_with(|_, compress| compress.origin_codings = true).await,
            false => alone(|_| {}).await,
        };
        let body = text(5000, 1);
        let whole = body.clone();
        origin.script("/a.js", move |asked| delta(asked, &whole));
        let ask = |codings: &'static str, hash: &'static str| async move {
            let fields = [("Accept-Encoding", codings), ("Available-Dictionary", hash)];
            get_with(at, "/a.js", &fields).await
        };
        for _ in 0..2 {
            for hash in [":AAAA:", ":BBBB:"] {
                let answer = ask("gzip, dcz", hash).await;
                assert_eq!(answer.field("content-encoding"), "dcz", "{compresses}");
                assert_eq!(answer.text(), format!("delta to {hash}"));
            }
        }
        assert_eq!(origin.hits("/a.js"), 2);
        let answer = ask("gzip", ":AAAA:").await;
        match compresses {
            true => assert_eq!(decoded(&answer), body),
            false => assert_eq!(answer.text(), body),
        }
        let answer = accepting(at, "/a.js", "dcz").await;
        assert_eq!((answer.header("content-encoding"), answer.text()), (None, body));
        settled(&node).await;
    }
}
