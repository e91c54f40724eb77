//! Cache rules of a site: lifetimes, keys, requests that pass the cache by, cookies and uses.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use levada_config::{
    CachingRules, Handling, IgnoredFields, KeyRules, QueryRule, Selector, StatusTtl, Statuses,
};
use levada_node::Running;
use levada_rules::TextPattern;

use crate::support::{nodes::Cluster, *};

async fn world(tweak: impl FnOnce(&mut Handling)) -> (Origin, Running, SocketAddr) {
    alone(|settings| tweak(&mut settings.sites[0].handling)).await
}

fn caching(handling: &mut Handling, rules: CachingRules) {
    handling.caching = Some(Arc::new(rules));
}

fn selectors(list: &[&str]) -> Vec<Selector> {
    list.iter().map(|text| Selector::parse(text).unwrap()).collect()
}

fn without_utm() -> KeyRules {
    let utm = TextPattern::parse("utm_*", false).unwrap();
    let query = QueryRule::Without(vec![utm]);
    KeyRules { query, sort_query: true, ..KeyRules::default() }
}

/// Whether each request is a hit, in order.
async fn hits(node: &Running, at: SocketAddr, asked: &[(&str, &[(&str, &str)])]) -> Vec<bool> {
    let mut hits = Vec::new();
    for (path, fields) in asked {
        hits.push(get_with(at, path, fields).await.is_hit());
        settled(node).await;
    }
    hits
}

#[tokio::test]
async fn forced_lifetime_and_ignored_fields_store_what_the_origin_forbids() {
    let (origin, node, at) = world(|handling| {
        let ttl = |statuses, ttl| StatusTtl { statuses, ttl: Duration::from_secs(ttl) };
        handling.rules.ttl =
            vec![ttl(Statuses::Listed(vec![200, 302]), 600), ttl(Statuses::Any, 60)];
        handling.rules.ignored =
            IgnoredFields { cache_control: true, expires: true, set_cookie: true, vary: true };
    })
    .await;
    let fields = [("cache-control", "private, no-store"), ("vary", "*"), ("set-cookie", "s=1")];
    let reply =
        |reply: Reply| fields.iter().fold(reply, |reply, (name, value)| reply.with(name, value));
    origin.on("/ok", reply(Reply::ok("x")));
    origin.on("/moved", reply(Reply::ok("x").status("302 Found")));
    origin.on("/broken", reply(Reply::ok("x").status("500 Internal Server Error")));
    for (path, ttl) in [("/ok", 599), ("/moved", 599), ("/broken", 59)] {
        let first = get(at, path).await;
        assert_eq!(first.field("set-cookie"), "s=1", "its own");
        settled(&node).await;
        let again = get(at, path).await;
        assert!(again.is_hit() && again.header("set-cookie").is_none(), "{again:?}");
        let status = again.field("cache-status");
        let told: i64 = status.rsplit_once("ttl=").unwrap().1.parse().unwrap();
        assert!((ttl - 20..=ttl + 1).contains(&told), "{path} {status}");
    }
    assert_eq!(origin.total(), 3);
    settled(&node).await;
}

#[tokio::test]
async fn requests_that_differ_in_nothing_that_counts_share_an_object() {
    let (origin, node, at) = world(|handling| {
        caching(handling, CachingRules { key: without_utm(), ..Default::default() })
    })
    .await;
    let none: &[(&str, &str)] = &[];
    let asked = [
        ("/a?b=1&a=2&utm_source=x", none),
        ("/a?a=2&b=1", none),
        ("/a?utm_medium=y&b=1&a=2", none),
        ("/a?a=3&b=1", none),
    ];
    assert_eq!(hits(&node, at, &asked).await, [false, true, true, false]);
    // The origin gets the query as the client wrote it.
    assert_eq!(origin.asked("/a")[0].target, "/a?b=1&a=2&utm_source=x");
    assert_eq!(origin.total(), 2);
}

#[tokio::test]
async fn fields_cookies_and_devices_of_the_key_tell_objects_apart_and_purges_find_all() {
    let (_origin, node, at) = world(|handling| {
        let key = KeyRules {
            headers: vec!["x-lang".parse().unwrap()],
            cookies: vec!["ab".to_owned()],
            device: true,
            ..KeyRules::default()
        };
        caching(handling, CachingRules { key, ..Default::default() });
    })
    .await;
    let phone = ("User-Agent", "Mozilla/5.0 (iPhone) Mobile/1");
    let variants: [(&str, &[(&str, &str)]); 4] = [
        ("/a", &[]),
        ("/a", &[phone]),
        ("/a", &[("X-Lang", "de")]),
        ("/a", &[("Cookie", "session=1; ab=2")]),
    ];
    assert_eq!(hits(&node, at, &variants).await, [false; 4]);
    assert_eq!(hits(&node, at, &variants).await, [true; 4]);
    // A field that ends at this node selects nothing.
    let hidden = [("X-Lang", "de"), ("Connection", "x-lang")];
    assert_eq!(hits(&node, at, &[("/a", &hidden)]).await, [true]);
    // An unsafe request invalidates all of them, and a purge does.
    let post = head_of("POST", "/a", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(at, post).await.answer_to("POST").await.status, 200);
    settled(&node).await;
    assert_eq!(hits(&node, at, &variants).await, [false; 4]);
    crate::purge::purge(&node, serde_json::json!({"url": crate::purge::url("/a")})).await;
    assert_eq!(hits(&node, at, &variants).await, [false; 4]);
    settled(&node).await;
}

#[tokio::test]
async fn bypass_asks_the_origin_and_no_store_keeps_nothing() {
    let (origin, node, at) = world(|handling| {
        let (bypass, no_store) = (selectors(&["query.fresh"]), selectors(&["cookie.session"]));
        caching(handling, CachingRules { bypass, no_store, ..Default::default() });
    })
    .await;
    let none: &[(&str, &str)] = &[];
    let session: &[(&str, &str)] = &[("Cookie", "session=1")];
    assert_eq!(
        hits(&node, at, &[("/a", session), ("/a", none), ("/a", session)]).await,
        [false, false, true]
    );
    let asked = [("/b?fresh", none), ("/b?fresh", none)];
    assert_eq!(hits(&node, at, &asked).await, [false, false]);
    let bypassed = get(at, "/b?fresh").await;
    assert_eq!(bypassed.field("cache-status"), "n0; fwd=bypass; fwd-status=200; stored");
    let both = get_with(at, "/b?fresh", session).await;
    assert_eq!(both.field("cache-status"), "n0; fwd=bypass; fwd-status=200; detail=bypass");
    assert_eq!((origin.hits("/a"), origin.hits("/b")), (2, 4));
    settled(&node).await;
}

#[tokio::test]
async fn cookies_are_stripped_but_for_those_of_the_key_and_of_requests_that_bypass() {
    let (origin, node, at) = world(|handling| {
        let key = KeyRules { cookies: vec!["ab".to_owned()], ..KeyRules::default() };
        let rules = CachingRules {
            key,
            bypass: selectors(&["cookie.session"]),
            no_store: selectors(&["cookie.session"]),
            strips_request_cookies: true,
            strips_response_cookies: true,
            ..Default::default()
        };
        caching(handling, rules);
    })
    .await;
    origin.on("/a", Reply::cached("x").with("set-cookie", "id=1").with("vary", "cookie"));
    let first = get_with(at, "/a", &[("Cookie", "x=1; ab=2")]).await;
    assert_eq!((first.header("set-cookie"), first.status), (None, 200));
    settled(&node).await;
    assert!(get_with(at, "/a", &[("Cookie", "ab=2; x=5")]).await.is_hit());
    let own = get_with(at, "/a", &[("Cookie", "session=1; ab=2")]).await;
    assert!(!own.is_hit() && own.field("set-cookie") == "id=1", "{own:?}");
    let cookies: Vec<_> = origin.asked("/a").iter().map(|asked| asked.header("cookie")).collect();
    assert_eq!(cookies, [Some("ab=2".to_owned()), Some("session=1; ab=2".to_owned())]);
    settled(&node).await;
}

#[tokio::test]
async fn object_is_stored_at_the_request_that_min_uses_names() {
    let (origin, node, at) =
        world(|handling| caching(handling, CachingRules { min_uses: 3, ..Default::default() }))
            .await;
    let asked = [("/a", &[][..]); 5];
    assert_eq!(hits(&node, at, &asked).await, [false, false, false, true, true]);
    assert_eq!(origin.hits("/a"), 3);
}

#[tokio::test]
async fn all_nodes_of_a_cluster_make_the_same_key() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |settings| {
        let key = KeyRules { cookies: vec!["ab".to_owned()], device: true, ..without_utm() };
        let rules = CachingRules { key, strips_request_cookies: true, ..Default::default() };
        caching(&mut settings.sites[0].handling, rules);
    })
    .await;
    let fields = [("Cookie", "x=1; ab=2"), ("User-Agent", "Android Tablet")];
    for number in 0..10 {
        for (index, query) in [(0, "b=1&a=2&utm_source=x"), (1, "a=2&b=1"), (0, "a=2&b=1&utm_x=1")]
        {
            let path = format!("/{number}?{query}");
            let answer = get_with(cluster.client(index), &path, &fields).await;
            assert_eq!(
                (answer.status, answer.is_hit()),
                (200, query != "b=1&a=2&utm_source=x"),
                "{path} {answer:?}"
            );
            cluster.settled().await;
        }
    }
    assert_eq!(origin.total(), 10);
}

/// A site that stores what the origin forbids, and its origin, which answers every URL with a page for one client.
async fn deceived(armour: bool) -> (Origin, Running, SocketAddr) {
    let (origin, node, at) = world(|handling| {
        handling.rules.ttl =
            vec![StatusTtl { statuses: Statuses::Cacheable, ttl: Duration::from_secs(600) }];
        handling.rules.ignored = IgnoredFields { cache_control: true, ..IgnoredFields::default() };
        handling.deception_armour = armour;
    })
    .await;
    origin.otherwise(|asked| {
        let is_style = asked.target.starts_with("/style");
        let media = if is_style { "text/css" } else { "text/html" };
        Reply::ok("mine").with("cache-control", "private").with("content-type", media)
    });
    origin.on("/public;x.css", Reply::cached("all").with("content-type", "text/html"));
    (origin, node, at)
}

#[tokio::test]
async fn page_under_the_url_of_a_static_file_is_stored_by_the_rules_of_http_only() {
    let (_origin, node, at) = deceived(true).await;
    let deceptive = [
        "/account;x.css",
        "/account%3fx.css",
        "/account%23x.css",
        "/account%2fx.css",
        "/static/..%5caccount",
        "/static/..%2faccount",
        "/static/%2e%2e/account",
        "/account/x.css",
        "/account.js",
        "/account/x.png?y=z",
        "/style;x.css",
    ];
    for path in deceptive {
        for _ in 0..2 {
            let answer = get(at, path).await;
            assert!(answer.status == 200 && !answer.is_hit(), "{path}");
            let status = answer.field("cache-status");
            assert!(status.contains("detail=deception-armour"), "{path}: {status}");
            settled(&node).await;
        }
    }
    for path in ["/style.css", "/style.css?x=%2f", "/page", "/index.php", "/public;x.css"] {
        let found = hits(&node, at, &[(path, &[]), (path, &[])]).await;
        assert_eq!(found, [false, true], "{path}");
    }
    let (_origin, node, at) = deceived(false).await;
    for path in deceptive {
        let found = hits(&node, at, &[(path, &[]), (path, &[])]).await;
        assert_eq!(found, [false, true], "{path}");
    }
}
