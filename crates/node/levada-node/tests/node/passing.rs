//! Answers that are not stored: their effects on stored responses, and the fields that are forwarded.

use std::net::SocketAddr;

use levada_config::{CookieStorage, FetchFields};

use crate::support::*;

async fn ask(at: SocketAddr, method: &str, target: &str) -> Answer {
    let fields = if method == "HEAD" { &[][..] } else { &[("Content-Length", "0")][..] };
    Wire::saying(at, head_of(method, target, fields)).await.answer_to(method).await
}

#[tokio::test]
async fn what_a_successful_change_names_is_fetched_anew() {
    for method in ["POST", "PUT", "DELETE", "M-SEARCH"] {
        let (origin, node, at) = alone(|_| {}).await;
        origin.script("/change", |asked| match asked.method.as_str() {
            "GET" => Reply::cached("x"),
            _ => Reply::ok("done")
                .with("location", "/named")
                .with("content-location", &format!("http://{HOST}/located?q"))
                .with("link", "</other>"),
        });
        let stored = ["/change", "/named", "/located?q", "/other"];
        for target in stored {
            get(at, target).await;
            settled(&node).await;
        }
        assert_eq!(ask(at, method, "/change").await.status, 200);
        let hits = [
            get(at, stored[0]).await.is_hit(),
            get(at, stored[1]).await.is_hit(),
            get(at, stored[2]).await.is_hit(),
            get(at, stored[3]).await.is_hit(),
        ];
        assert_eq!(hits, [false, false, false, true], "{method}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn change_of_one_site_leaves_what_it_names_of_another_alone() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.sites.push(nodes::site("b.test", &[origin.address]));
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    origin.script("/change", |_| Reply::ok("done").with("location", "http://b.test/named"));
    let other = [("Host", "b.test")];
    get_with(at, "/named", &other).await;
    settled(&node).await;
    assert_eq!(ask(at, "POST", "/change").await.status, 200);
    assert!(get_with(at, "/named", &other).await.is_hit());
    settled(&node).await;
}

/// Stale from the start, and confirmed or invalidated by the answer to a HEAD.
fn aged(asked: &origin::Asked, tag: &str) -> Reply {
    match asked.method.as_str() {
        "HEAD" => Reply::cached("body").with("etag", tag).with("x-new", "yes"),
        _ => Reply::cached("body").with("etag", "\"1\"").with("age", "100").with("x-old", "yes"),
    }
}

#[tokio::test]
async fn head_that_confirms_makes_fresh_again() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.script("/a", |asked| aged(asked, "\"1\""));
    get(at, "/a").await;
    settled(&node).await;
    assert_eq!(ask(at, "HEAD", "/a").await.status, 200);
    assert_eq!(origin.asked("/a")[1].method, "HEAD");
    let hit = get(at, "/a").await;
    assert!(hit.is_hit(), "{hit:?}");
    assert_eq!((hit.text(), hit.field("x-new")), ("body".to_owned(), "yes".to_owned()));
    assert_eq!((hit.field("x-old"), hit.field("via")), ("yes".to_owned(), "1.1 n0".to_owned()));
    settled(&node).await;
}

#[tokio::test]
async fn head_that_contradicts_makes_stale() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.script("/a", |asked| match asked.method.as_str() {
        "HEAD" => Reply::cached("other").with("etag", "\"2\""),
        _ => Reply::cached("body").with("etag", "\"1\""),
    });
    get(at, "/a").await;
    settled(&node).await;
    let head = head_of("HEAD", "/a", &[("Cache-Control", "no-cache")]);
    assert_eq!(Wire::saying(at, head).await.answer_to("HEAD").await.field("etag"), "\"2\"");
    let answer = get(at, "/a").await;
    assert!(answer.field("cache-status").contains("fwd=stale"), "{answer:?}");
    settled(&node).await;
}

#[tokio::test]
async fn precondition_is_for_the_origin_to_judge() {
    let (origin, node, at) = alone(|_| {}).await;
    origin.script("/a", |asked| match asked.header("if-match") {
        Some(_) => Reply::ok("").status("412 Precondition Failed"),
        None => Reply::cached("body").with("etag", "\"1\""),
    });
    let fields = [("If-Match", "\"2\"")];
    let missing = get_with(at, "/a", &fields).await;
    assert_eq!(missing.status, 412);
    assert!(missing.field("cache-status").contains("fwd=uri-miss"), "{missing:?}");
    get(at, "/a").await;
    settled(&node).await;
    let stored = get_with(at, "/a", &fields).await;
    assert_eq!(stored.status, 412);
    assert!(stored.field("cache-status").contains("fwd=request"), "{stored:?}");
    assert!(get(at, "/a").await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn cookie_of_one_client_reaches_no_other() {
    for (cookies, is_shared) in [
        (CookieStorage::default(), false),
        (CookieStorage::StoreIfExplicit, true),
        (CookieStorage::Store, true),
    ] {
        let (origin, node, at) = alone(|s| {
            s.sites[0].handling.rules.cookies = cookies;
            s.sites[0].handling.fetch_fields = FetchFields::All;
        })
        .await;
        origin.script("/a", |asked| {
            let session = asked.header("x-user").unwrap();
            let fresh = Reply::ok("body").with("cache-control", "public, max-age=60");
            fresh.with("set-cookie", &format!("session={session}"))
        });
        for user in ["1", "2"] {
            let answer = get_with(at, "/a", &[("X-User", user)]).await;
            let expected = if is_shared { "session=1" } else { &format!("session={user}") };
            assert_eq!(answer.field("set-cookie"), *expected, "{cookies:?}");
            settled(&node).await;
        }
    }
}

#[tokio::test]
async fn field_that_is_not_to_be_stored_reaches_who_asked_first() {
    for directive in ["no-cache=\"set-cookie, x-a\"", "private=\"set-cookie, x-a\""] {
        let (origin, node, at) = alone(|_| {}).await;
        let reply = Reply::ok("body")
            .with("cache-control", &format!("max-age=60, {directive}"))
            .with("set-cookie", "a=1")
            .with("set-cookie", "b=2")
            .with("x-a", "1");
        origin.on("/a", reply);
        let first = get(at, "/a").await;
        assert_eq!(first.field("set-cookie"), "a=1, b=2", "{directive}");
        assert_eq!(first.field("x-a"), "1", "{directive}");
        settled(&node).await;
        let hit = get(at, "/a").await;
        assert!(hit.is_hit(), "{directive}");
        assert_eq!((hit.header("set-cookie"), hit.header("x-a")), (None, None), "{directive}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn what_the_origin_tells_this_cache_alone_goes_no_further() {
    let (origin, node, at) = alone(|_| {}).await;
    let reply = Reply::ok("body")
        .with("levada-cache-control", "max-age=60")
        .with("cdn-cache-control", "max-age=0")
        .with("cache-control", "no-store");
    origin.on("/a", reply);
    for hit in [false, true] {
        let answer = get(at, "/a").await;
        assert_eq!(answer.is_hit(), hit);
        assert_eq!(answer.header("levada-cache-control"), None);
        assert_eq!(answer.field("cdn-cache-control"), "max-age=0");
        settled(&node).await;
    }
    assert_eq!(ask(at, "POST", "/a").await.header("levada-cache-control"), None);
    settled(&node).await;
}
