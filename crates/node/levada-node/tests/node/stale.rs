//! Stale responses in place of a failed origin's, and the answers when none may be used.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::support::*;

/// An origin whose `/a` is stale from the start and has these directives; from the second request on it
/// does `later`.
async fn world(
    directives: &str,
    later: fn() -> Reply,
) -> (Origin, levada_node::Running, std::net::SocketAddr) {
    let origin = Origin::start().await;
    let node = start(single(&[origin.address])).await;
    let at = node.addresses.clients[0];
    let cache_control = format!("max-age=60, {directives}");
    let times = AtomicUsize::new(0);
    origin.script("/a", move |_| match times.fetch_add(1, Relaxed) {
        0 => Reply::ok("body")
            .with("etag", "\"1\"")
            .with("age", "100")
            .with("cache-control", &cache_control),
        _ => later(),
    });
    assert_eq!(get(at, "/a").await.text(), "body");
    settled(&node).await;
    (origin, node, at)
}

fn unavailable() -> Reply {
    Reply::ok("oops").status("503 Service Unavailable").with("cache-control", "max-age=60")
}

#[tokio::test]
async fn stale_object_stands_in_for_an_origin_that_does_not_answer() {
    let (_origin, node, at) = world("x", Reply::hang_up).await;
    let answer = get(at, "/a").await;
    assert_eq!((answer.status, answer.text()), (200, "body".to_owned()));
    let status = answer.field("cache-status");
    assert!(status.starts_with("n0; fwd=stale; ttl=-4"), "{status}");
    assert!(status.ends_with("; detail=unreachable"), "{status}");
    assert!(answer.field("age").parse::<u32>().unwrap() >= 100);
    settled(&node).await;
}

#[tokio::test]
async fn stale_object_stands_in_for_an_error_where_the_origin_allows_it() {
    let (origin, node, at) = world("stale-if-error=600", unavailable).await;
    for _ in 0..2 {
        let answer = get(at, "/a").await;
        assert_eq!((answer.status, answer.text()), (200, "body".to_owned()));
        let status = answer.field("cache-status");
        assert!(status.contains("fwd=stale; fwd-status=503; ttl=-4"), "{status}");
        assert!(status.ends_with("; detail=stale-if-error"), "{status}");
        settled(&node).await;
    }
    assert_eq!(origin.hits("/a"), 3, "an error is not remembered in place of the object");
    assert!(origin.connections() <= 2, "an error answer leaves its connection to others");
}

#[tokio::test]
async fn error_reaches_the_client_where_nothing_allows_stale() {
    let (_origin, node, at) = world("x", unavailable).await;
    let answer = get(at, "/a").await;
    assert_eq!((answer.status, answer.text()), (503, "oops".to_owned()));
    settled(&node).await;
}

#[tokio::test]
async fn client_may_allow_stale_for_an_error() {
    let (_origin, node, at) = world("x", unavailable).await;
    let answer = get_with(at, "/a", &[("Cache-Control", "stale-if-error=600")]).await;
    assert_eq!((answer.status, answer.text()), (200, "body".to_owned()));
    settled(&node).await;
}

#[tokio::test]
async fn nothing_stale_stands_in_where_the_origin_forbids_it() {
    for directive in ["must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=60"] {
        let (_origin, node, at) = world(directive, Reply::hang_up).await;
        let answer = get(at, "/a").await;
        assert_eq!(answer.status, 502, "{directive}");
        assert_eq!(answer.field("retry-after"), "5", "{directive}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn dead_origin_with_nothing_stored_is_a_502_that_says_when_to_come_back() {
    let (origin, node, at) = world("x", Reply::hang_up).await;
    drop(origin);
    let answer = get(at, "/b").await;
    assert_eq!((answer.status, answer.field("retry-after")), (502, "5".to_owned()));
    settled(&node).await;
}

#[tokio::test]
async fn site_fills_in_what_the_origin_leaves_open() {
    use levada_config::{CacheRules, CookieStorage};
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    let minute = std::time::Duration::from_secs(60);
    settings.sites[0].handling.rules = CacheRules {
        default_ttl: Some(minute),
        negative_ttl: Some(minute / 2),
        stale_while_revalidate: 10 * minute,
        cookies: CookieStorage::Store,
        ..CacheRules::default()
    };
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    origin.on("/silent", Reply::ok("x").with("set-cookie", "a=b"));
    origin.on("/missing", Reply::ok("x").status("404 Not Found"));
    origin.on("/old", Reply::cached("x").with("age", "100").with("etag", "\"1\""));
    for (path, ttl) in [("/silent", 50..=60), ("/missing", 20..=30), ("/old", -50..=-40)] {
        get(at, path).await;
        settled(&node).await;
        let hit = get(at, path).await;
        let status = hit.field("cache-status");
        let left = status.split("ttl=").nth(1).unwrap_or_default().parse::<i64>();
        assert!(hit.is_hit() && left.is_ok_and(|left| ttl.contains(&left)), "{path}: {status}");
        settled(&node).await;
    }
    assert_eq!(origin.hits("/old"), 2, "and it is fetched anew meanwhile");
}
