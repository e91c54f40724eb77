//! One node: storing responses, serving them again, and passing on the ones that it does not store.

use crate::support::*;

#[tokio::test]
async fn second_request_is_a_hit() {
    let (origin, node, at) = alone(|_| {}).await;
    let miss = get(at, "/a").await;
    assert_eq!((miss.status, miss.text()), (200, "/a".to_owned()));
    assert_eq!(miss.field("cache-status"), "n0; fwd=uri-miss; fwd-status=200; stored");
    assert_eq!(miss.field("via"), "1.1 n0");
    settled(&node).await;
    let hit = get(at, "/a").await;
    assert_eq!((hit.status, hit.text()), (200, "/a".to_owned()));
    assert!(hit.field("cache-status").starts_with("n0; hit; ttl="), "{hit:?}");
    assert_eq!(hit.field("age"), "0");
    assert_eq!(hit.field("content-length"), "2");
    assert_eq!(hit.field("via"), "1.1 n0");
    assert_eq!(origin.hits("/a"), 1);
    settled(&node).await;
}

#[tokio::test]
async fn what_is_admitted_on_its_second_fetch_is_a_hit_from_the_third_on() {
    let (origin, node, at) = alone(|settings| settings.cache.second_hit = true).await;
    for (asked, fetched) in [(1, 1), (2, 2), (3, 2), (4, 2)] {
        let answer = get(at, "/a").await;
        assert_eq!(answer.text(), "/a");
        assert_eq!(answer.field("cache-status").ends_with("; stored"), asked == 2);
        settled(&node).await;
        assert_eq!(origin.hits("/a"), fetched, "request {asked}");
    }
}

#[tokio::test]
async fn origin_learns_who_asked_and_through_whom() {
    let (origin, node, at) = alone(|_| {}).await;
    let claims = [
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.test"),
        ("CDN-Loop", "other"),
        ("Levada-Peer", "n1;guess"),
    ];
    get_with(at, "/a", &claims).await;
    let asked = &origin.asked("/a")[0];
    assert_eq!(asked.header("x-forwarded-for").unwrap(), "127.0.0.1");
    assert_eq!(asked.header("x-forwarded-proto").unwrap(), "http");
    assert_eq!(asked.header("x-forwarded-host").unwrap(), HOST);
    assert_eq!(asked.header("cdn-loop").unwrap(), "other, levada");
    assert_eq!(asked.header("via").unwrap(), "1.1 n0");
    assert_eq!(asked.header("host").unwrap(), HOST);
    assert_eq!(asked.header("levada-peer"), None);
    settled(&node).await;
}

#[tokio::test]
async fn age_counts_on_from_what_the_origin_says() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.on("/old", Reply::cached("x").with("age", "30"));
    assert_eq!(get(at, "/old").await.field("age"), "30");
    settled(&node).await;
    let hit = get(at, "/old").await;
    assert!(hit.is_hit());
    assert!((30..40).contains(&hit.field("age").parse::<u32>().unwrap()), "{hit:?}");
    settled(&node).await;
}

#[tokio::test]
async fn responses_that_reach_their_ends_count_as_complete() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.on("/none", Reply::ok("").status("204 No Content"));
    origin.on("/tag", Reply::cached("x").with("etag", "\"1\""));
    origin.on("/chunks", Reply::chunked(vec![Piece::Bytes(b"x".to_vec())]));
    get(at, "/chunks").await;
    get(at, "/tag").await;
    settled(&node).await;
    let mut wire = Wire::to(at).await;
    for (method, path, field, status) in [
        ("GET", "/none", ("x-a", "b"), 204),
        ("HEAD", "/tag", ("x-a", "b"), 200),
        ("HEAD", "/other", ("x-a", "b"), 200),
        ("GET", "/tag", ("if-none-match", "\"1\""), 304),
    ] {
        wire.send(head_of(method, path, &[field])).await;
        assert_eq!(wire.answer_to(method).await.status, status, "{method} {path}");
        settled(&node).await;
        let aborted = nodes::metric(&node, "levada_http_responses_aborted_total").await;
        assert_eq!(aborted, 0.0, "{method} {path}");
    }
}

#[tokio::test]
async fn stored_204_has_no_length() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.on("/none", Reply::cached("").status("204 No Content"));
    for _ in 0..2 {
        let answer = get(at, "/none").await;
        assert_eq!((answer.status, answer.header("content-length")), (204, None), "{answer:?}");
        settled(&node).await;
    }
    assert_eq!(origin.hits("/none"), 1);
}

#[tokio::test]
async fn stale_object_is_revalidated() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.script("/a", |asked| match asked.header("if-none-match") {
        Some(tag) if tag == "\"1\"" => Reply::ok("")
            .status("304 Not Modified")
            .with("etag", "\"1\"")
            .with("cache-control", "max-age=60")
            .with("x-new", "yes"),
        _ => Reply::ok("body").with("etag", "\"1\"").with("cache-control", "max-age=0"),
    });
    assert_eq!(get(at, "/a").await.text(), "body");
    settled(&node).await;
    let renewed = get(at, "/a").await;
    assert_eq!((renewed.status, renewed.text()), (200, "body".to_owned()));
    assert_eq!(renewed.field("x-new"), "yes");
    assert!(renewed.field("cache-status").contains("fwd=stale; fwd-status=304"), "{renewed:?}");
    settled(&node).await;
    assert!(get(at, "/a").await.is_hit());
    assert_eq!(origin.hits("/a"), 2);
    settled(&node).await;
}

#[tokio::test]
async fn known_tag_gets_304_whether_stored_or_not() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.on("/a", Reply::cached("body").with("etag", "\"1\""));
    for _ in 0..2 {
        let answer = get_with(at, "/a", &[("If-None-Match", "\"1\"")]).await;
        assert_eq!((answer.status, answer.field("etag")), (304, "\"1\"".to_owned()));
        settled(&node).await;
    }
    assert_eq!(get_with(at, "/a", &[("If-None-Match", "\"2\"")]).await.text(), "body");
    assert_eq!(origin.hits("/a"), 1, "the node asked for all of it once");
    assert_eq!(origin.asked("/a")[0].header("if-none-match"), None);
    settled(&node).await;
}

#[tokio::test]
async fn head_is_answered_from_the_store_or_passed() {
    let (origin, node, at) = alone(|_| {}).await;
    let head = head_of("HEAD", "/a", &[]);
    let passed = Wire::saying(at, &head).await.answer_to("HEAD").await;
    assert_eq!((passed.status, passed.field("content-length")), (200, "2".to_owned()));
    assert_eq!(origin.asked("/a")[0].method, "HEAD");
    get(at, "/a").await;
    settled(&node).await;
    let mut wire = Wire::saying(at, &head).await;
    let stored = wire.answer_to("HEAD").await;
    assert!(stored.is_hit(), "{stored:?}");
    assert_eq!(stored.field("content-length"), "2");
    // No byte of a body follows: the next answer begins at once.
    wire.send(head_of("GET", "/a", &[])).await;
    assert_eq!(wire.answer().await.text(), "/a");
    settled(&node).await;
}

#[tokio::test]
async fn post_invalidates() {
    let (origin, node, at) = alone(|_| {}).await;
    get(at, "/a").await;
    settled(&node).await;
    assert!(get(at, "/a").await.is_hit());
    let post = head_of("POST", "/a", &[("Content-Length", "2")]) + "hi";
    assert_eq!(Wire::saying(at, post).await.answer().await.status, 200);
    assert_eq!(origin.asked("/a")[1].body, b"hi");
    assert!(!get(at, "/a").await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn answer_to_post_that_is_what_its_target_gives_answers_later_gets() {
    let (origin, node, at) = alone(|settings| settings.cache.block = 64 << 10).await;
    for (target, length) in [("/short", 5), ("/long", 300_000)] {
        origin.script(target, move |asked| match asked.method.as_str() {
            "POST" => Reply::cached(vec![b'p'; length]).with("content-location", target),
            _ => Reply::cached("got"),
        });
        assert_eq!(get(at, target).await.text(), "got");
        settled(&node).await;
        let post = head_of("POST", target, &[("Content-Length", "2")]) + "hi";
        let posted = Wire::saying(at, post).await.answer().await;
        assert!(posted.whole && posted.body == vec![b'p'; length], "{posted:?}");
        let status = posted.field("cache-status");
        assert_eq!(status, "n0; fwd=method; fwd-status=200; stored; detail=method");
        settled(&node).await;
        let hit = get(at, target).await;
        assert!(hit.is_hit() && hit.body == vec![b'p'; length], "{hit:?}");
        assert_eq!(origin.hits(target), 2);
    }
    // This response has no such field.
    origin.on("/plain", Reply::cached("plain"));
    let post = head_of("POST", "/plain", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(at, post).await.answer().await.text(), "plain");
    assert!(!get(at, "/plain").await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn answer_to_post_that_another_change_overtakes_is_not_kept() {
    let (origin, node, at) = alone(|_| {}).await;
    let gate = Gate::new();
    let closed = gate.clone();
    origin.script("/p", move |asked| match asked.method.as_str() {
        "POST" => Reply::cached("posted").with("content-location", "/p").after(&closed),
        method => Reply::cached(method),
    });
    let post = head_of("POST", "/p", &[("Content-Length", "0")]);
    let mut posting = Wire::saying(at, post).await;
    eventually("the origin has it", || origin.hits("/p") == 1).await;
    let put = head_of("PUT", "/p", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(at, put).await.answer().await.text(), "PUT");
    gate.open();
    assert_eq!(posting.answer().await.text(), "posted");
    settled(&node).await;
    assert_eq!(get(at, "/p").await.text(), "GET");
    settled(&node).await;
}

#[tokio::test]
async fn failed_post_leaves_the_store_alone() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.script("/a", |asked| match asked.method.as_str() {
        "POST" => Reply::ok("no").status("403 Forbidden"),
        _ => Reply::cached("a"),
    });
    get(at, "/a").await;
    settled(&node).await;
    let post = head_of("POST", "/a", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(at, post).await.answer().await.status, 403);
    assert!(get(at, "/a").await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn invalidated_variants_do_not_come_back() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.script("/v", |asked| {
        let language = asked.header("accept-language").unwrap_or_default();
        Reply::cached(language).with("vary", "accept-language")
    });
    for language in ["en", "pt"] {
        get_with(at, "/v", &[("Accept-Language", language)]).await;
        settled(&node).await;
        assert!(get_with(at, "/v", &[("Accept-Language", language)]).await.is_hit());
    }
    let post = head_of("POST", "/v", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(at, post).await.answer().await.status, 200);
    assert!(!get_with(at, "/v", &[("Accept-Language", "en")]).await.is_hit());
    settled(&node).await;
    // The new variant must not lead to one from before the change.
    assert!(!get_with(at, "/v", &[("Accept-Language", "pt")]).await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn variants_are_stored_side_by_side() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.script("/v", |asked| {
        Reply::cached(asked.header("accept-encoding").unwrap_or_default())
            .with("vary", "accept-encoding")
    });
    for encoding in ["gzip", "br", "gzip", "br"] {
        let answer = get_with(at, "/v", &[("Accept-Encoding", encoding)]).await;
        assert_eq!(answer.text(), encoding);
        settled(&node).await;
    }
    assert_eq!(origin.hits("/v"), 2);
}

#[tokio::test]
async fn field_that_connection_takes_away_selects_no_variant() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.script("/v", |asked| {
        Reply::cached(asked.header("x-user").unwrap_or_else(|| "nobody".to_owned()))
            .with("vary", "x-user")
    });
    let poison = [("X-User", "ann"), ("Connection", "x-user")];
    assert_eq!(get_with(at, "/v", &poison).await.text(), "nobody");
    settled(&node).await;
    assert_eq!(get_with(at, "/v", &[("X-User", "ann")]).await.text(), "ann");
    settled(&node).await;
}

#[tokio::test]
async fn only_if_cached_gets_504_or_a_hit() {
    let (origin, node, at) = alone(|_| {}).await;
    let only = [("Cache-Control", "only-if-cached")];
    assert_eq!(get_with(at, "/a", &only).await.status, 504);
    assert_eq!(origin.total(), 0);
    get(at, "/a").await;
    settled(&node).await;
    assert!(get_with(at, "/a", &only).await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn largest_object_allowed_is_stored() {
    let (origin, node, at) = alone(|settings| {
        settings.cache.memory = 16 << 20;
        settings.cache.max_object = 3 << 20;
    })
    .await;
    for path in ["/1", "/2", "/3"] {
        origin.on(path, Reply::cached(vec![b'x'; 3 << 20]));
        assert_eq!(get(at, path).await.body.len(), 3 << 20);
        settled(&node).await;
        assert!(get(at, path).await.is_hit(), "{path}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn object_known_to_be_too_large_is_passed() {
    let (origin, node, at) = alone(|settings| settings.cache.max_object = 1000).await;
    origin.on("/big", Reply::cached(vec![b'x'; 1001]));
    for _ in 0..2 {
        let answer = get(at, "/big").await;
        assert_eq!((answer.body.len(), answer.is_hit()), (1001, false));
        settled(&node).await;
    }
    assert_eq!(origin.hits("/big"), 2);
}

#[tokio::test]
async fn body_that_turns_out_too_large_is_not_said_to_be_stored() {
    let (origin, node, at) = alone(|settings| settings.cache.max_object = 1000).await;
    for (path, length, is_stored) in [("/fits", 1000, true), ("/big", 1001, false)] {
        let pieces = vec![Piece::Bytes(vec![b'x'; length])];
        origin.on(path, Reply::chunked(pieces).with("cache-control", "max-age=60"));
        let answer = get(at, path).await;
        let status = answer.field("cache-status");
        assert_eq!(
            (answer.body.len(), status.ends_with("; stored")),
            (length, is_stored),
            "{status}"
        );
        settled(&node).await;
        assert_eq!(get(at, path).await.is_hit(), is_stored);
        settled(&node).await;
    }
}

#[tokio::test]
async fn site_without_a_cache_asks_the_origin_every_time() {
    let (origin, node, at) = alone(|settings| settings.sites[0].handling.cache = false).await;
    for _ in 0..2 {
        assert!(get(at, "/a").await.field("cache-status").contains("fwd=bypass"));
    }
    assert_eq!(origin.hits("/a"), 2);
    settled(&node).await;
}

#[tokio::test]
async fn error_of_the_origin_does_not_throw_away_what_is_stored() {
    let (origin, node, at) = alone(|_| {}).await;
    let broken = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now = broken.clone();
    origin.script("/a", move |asked| match now.load(std::sync::atomic::Ordering::Relaxed) {
        true => Reply::ok("oops").status("500 Internal Server Error"),
        false if asked.header("if-none-match").is_some() => Reply::ok("")
            .status("304 Not Modified")
            .with("etag", "\"1\"")
            .with("cache-control", "no-cache"),
        false => Reply::ok("body").with("etag", "\"1\"").with("cache-control", "no-cache"),
    });
    assert_eq!(get(at, "/a").await.text(), "body");
    settled(&node).await;
    broken.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(get(at, "/a").await.status, 500);
    settled(&node).await;
    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    let answer = get(at, "/a").await;
    assert_eq!(answer.text(), "body");
    assert!(answer.field("cache-status").contains("fwd-status=304"), "{answer:?}");
    settled(&node).await;
}

#[tokio::test]
async fn variants_of_a_url_are_bounded_and_the_least_used_goes_first() {
    let (origin, node, at) = alone(|settings| settings.cache.variants = 20).await;
    origin.script("/a", |asked| {
        let language = asked.header("accept-language").unwrap_or_default();
        Reply::cached(language).with("vary", "accept-language")
    });
    let ask = async |language: &str| {
        let answer = get_with(at, "/a", &[("Accept-Language", language)]).await;
        assert_eq!(answer.text(), language);
        settled(&node).await;
        answer.is_hit()
    };
    for language in ["de", "de", "en", "en"] {
        ask(language).await;
    }
    for number in 0..300 {
        assert!(!ask(&format!("x-{number}")).await);
    }
    assert!(ask("de").await && ask("en").await, "they were used");
    assert!(ask("x-299").await && !ask("x-280").await, "of the others, the oldest went");
    // Two used ones, 18 of the others, and the entry that leads to them.
    assert_eq!(nodes::metric(&node, "levada_cache_objects").await, 21.0);
    assert_eq!(nodes::metric(&node, "levada_cache_variants_evicted_total").await, 283.0);
}
