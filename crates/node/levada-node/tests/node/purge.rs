//! Purging: every scope, every way to send an order, during fetches, across peers.

use std::net::SocketAddr;

use levada_config::Settings;
use levada_node::Running;
use serde_json::{Value as Json, json};

use crate::support::{nodes::*, *};

const TOKEN: &str = "a token of some length";

async fn world() -> (Origin, Running, SocketAddr) {
    world_with(|_| {}).await
}

async fn world_with(tweak: impl FnOnce(&mut Settings)) -> (Origin, Running, SocketAddr) {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.sites.push(site("b.test", &[origin.address]));
    tweak(&mut settings);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (origin, node, at)
}

fn with_token(settings: &mut Settings) {
    settings.purge.access.token = Some(TOKEN.to_owned());
}

/// Posts to a node's admin listener.
async fn post(node: &Running, fields: &[(&str, &str)], body: &str) -> Answer {
    let length = body.len().to_string();
    let mut all = vec![("Host", "admin"), ("Content-Length", &*length)];
    all.extend(fields);
    let request = head_of("POST", "/purge", &all) + body;
    Wire::saying(node.addresses.admin.unwrap(), request).await.answer().await
}

/// Sends a purge order to the admin listener.
pub(super) async fn order(node: &Running, order: &Json) -> Answer {
    post(node, &[("Content-Type", "application/json")], &order.to_string()).await
}

/// Purges, and checks that every node confirms.
pub(super) async fn purge(node: &Running, what: Json) -> Json {
    let answer = order(node, &what).await;
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

pub(super) fn url(target: &str) -> String {
    format!("http://{HOST}{target}")
}

/// Whether a target is stored (`only-if-cached`).
async fn is_stored(at: SocketAddr, target: &str, fields: &[(&str, &str)]) -> bool {
    let mut all = vec![("Cache-Control", "only-if-cached")];
    all.extend(fields);
    get_with(at, target, &all).await.status == 200
}

/// Requests these targets so that they are stored.
async fn stored(node: &Running, at: SocketAddr, targets: &[&str]) {
    for target in targets {
        get(at, target).await;
        settled(node).await;
        assert!(is_stored(at, target, &[]).await, "{target}");
    }
}

#[tokio::test]
async fn purged_url_is_a_miss_and_its_neighbours_are_not() {
    let (origin, node, at) = world().await;
    stored(&node, at, &["/a", "/a?q", "/b"]).await;
    let mut report = purge(&node, json!({"url": url("/a")})).await;
    assert!(report.as_object_mut().unwrap().remove("order").is_some());
    assert_eq!(
        report,
        json!({
            "purged": "url", "count": 1, "soft": false, "confirmed": true,
            "nodes": [{"node": "n0", "result": "confirmed"}],
        })
    );
    assert!(!is_stored(at, "/a", &[]).await);
    assert!(is_stored(at, "/a?q", &[]).await && is_stored(at, "/b", &[]).await);
    assert!(get(at, "/a").await.field("cache-status").contains("fwd=uri-miss"));
    assert_eq!(origin.hits("/a"), 3);
    // Again: a response that came after the purge stays.
    settled(&node).await;
    assert!(is_stored(at, "/a", &[]).await);
    settled(&node).await;
}

#[tokio::test]
async fn url_is_purged_whatever_its_scheme_port_and_case() {
    let (_origin, node, at) = world().await;
    for url in ["https://a.test/a", "http://A.TEST:80/a", "https://a.test:443/a#fragment"] {
        stored(&node, at, &["/a"]).await;
        purge(&node, json!({"url": [url, "http://a.test/other"]})).await;
        assert!(!is_stored(at, "/a", &[]).await, "{url}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn url_is_purged_with_all_its_variants() {
    let (origin, node, at) = world().await;
    origin.script("/a", |asked| {
        Reply::cached(asked.header("accept-language").unwrap_or_default())
            .with("vary", "accept-language")
            .with("surrogate-key", "t")
    });
    for what in [json!({"url": url("/a")}), json!({"prefix": url("/")}), json!({"tag": "t"})] {
        for language in ["de", "en"] {
            get_with(at, "/a", &[("Accept-Language", language)]).await;
            settled(&node).await;
            assert!(is_stored(at, "/a", &[("Accept-Language", language)]).await);
        }
        purge(&node, what).await;
        for language in ["de", "en"] {
            assert!(!is_stored(at, "/a", &[("Accept-Language", language)]).await);
        }
    }
    settled(&node).await;
}

#[tokio::test]
async fn prefix_covers_what_begins_so() {
    let (_origin, node, at) = world().await;
    let all = ["/img/a", "/img/b?q", "/im", "/x"];
    stored(&node, at, &all).await;
    purge(&node, json!({"prefix": url("/img/")})).await;
    for (target, left) in all.iter().zip([false, false, true, true]) {
        assert_eq!(is_stored(at, target, &[]).await, left, "{target}");
    }
    purge(&node, json!({"prefix": format!("https://{HOST}")})).await;
    assert!(!is_stored(at, "/im", &[]).await && !is_stored(at, "/x", &[]).await);
    settled(&node).await;
}

#[tokio::test]
async fn tags_are_purged_by_any_of_their_fields() {
    let (origin, node, at) = world().await;
    for (path, field, value) in [
        ("/key", "surrogate-key", "x one y"),
        ("/tag", "cache-tag", "x, one"),
        ("/group", "cache-groups", "\"one\";p, \"x\""),
        ("/other", "surrogate-key", "One on"),
    ] {
        origin.on(path, Reply::cached("").with(field, value));
    }
    let all = ["/key", "/tag", "/group", "/other", "/none"];
    stored(&node, at, &all).await;
    purge(&node, json!({"tag": ["none", "one"]})).await;
    for (target, left) in all.iter().zip([false, false, false, true, true]) {
        assert_eq!(is_stored(at, target, &[]).await, left, "{target}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn tag_and_all_can_be_confined_to_a_site() {
    let (origin, node, at) = world().await;
    origin.on("/a", Reply::cached("").with("surrogate-key", "t"));
    let there = [("Host", "b.test")];
    for (what, a_left, b_left) in [
        (json!({"tag": "t", "site": "A.test:80"}), false, true),
        (json!({"tag": "t", "site": "b.test"}), true, false),
        (json!({"tag": "t"}), false, false),
        (json!({"all": true, "site": HOST}), false, true),
        (json!({"all": true, "site": "b.test"}), true, false),
        (json!({"all": true}), false, false),
    ] {
        get(at, "/a").await;
        get_with(at, "/a", &there).await;
        settled(&node).await;
        purge(&node, what.clone()).await;
        assert_eq!(is_stored(at, "/a", &[]).await, a_left, "{what}");
        assert_eq!(is_stored(at, "/a", &there).await, b_left, "{what}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn soft_purge_makes_stale_and_a_304_renews() {
    let (origin, node, at) = world().await;
    origin.script("/a", |asked| match asked.header("if-none-match") {
        Some(_) => Reply::cached("").status("304 Not Modified").with("etag", "\"1\""),
        None => Reply::cached("body").with("etag", "\"1\"").with("surrogate-key", "t"),
    });
    for what in [
        json!({"url": url("/a"), "soft": true}),
        json!({"prefix": url("/"), "soft": true}),
        json!({"tag": "t", "soft": true}),
        json!({"all": true, "soft": true}),
    ] {
        stored(&node, at, &["/a"]).await;
        purge(&node, what.clone()).await;
        assert!(!is_stored(at, "/a", &[]).await, "{what}");
        let renewed = get(at, "/a").await;
        assert_eq!((renewed.status, renewed.text()), (200, "body".to_owned()), "{what}");
        assert!(renewed.field("cache-status").contains("fwd-status=304"), "{renewed:?}");
        settled(&node).await;
        assert!(get(at, "/a").await.is_hit(), "{what}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn softly_purged_response_is_served_where_stale_ones_are() {
    let (origin, node, at) = world().await;
    let allowed = "max-age=60, stale-while-revalidate=60, stale-if-error=60";
    origin.on("/swr", Reply::ok("old").with("cache-control", allowed));
    origin.on("/sie", Reply::ok("old").with("cache-control", "max-age=60, stale-if-error=60"));
    stored(&node, at, &["/swr", "/sie"]).await;
    origin.on("/swr", Reply::cached("new"));
    origin.on("/sie", Reply::hang_up());
    purge(&node, json!({"all": true, "soft": true})).await;
    let stale = get(at, "/swr").await;
    assert_eq!(stale.text(), "old");
    assert!(stale.is_hit(), "{stale:?}");
    settled(&node).await;
    assert_eq!(get(at, "/swr").await.text(), "new");
    assert_eq!(get(at, "/sie").await.text(), "old", "instead of an error");
    purge(&node, json!({"all": true})).await;
    assert_eq!(get(at, "/sie").await.status, 502, "nothing is left after a hard purge");
    settled(&node).await;
}

#[tokio::test]
async fn purge_wins_against_a_fetch_that_was_under_way() {
    let (origin, node, at) = world().await;
    for what in [
        json!({"url": url("/a")}),
        json!({"prefix": url("/")}),
        json!({"tag": "t"}),
        json!({"all": true, "site": HOST}),
        json!({"url": url("/a"), "soft": true}),
        json!({"tag": "t", "soft": true}),
    ] {
        let (head, body) = (Gate::new(), Gate::new());
        let pieces = vec![Piece::Bytes(b"o".to_vec()), Piece::Gate(body.clone())];
        let pieces = [pieces, vec![Piece::Bytes(b"ld".to_vec())]].concat();
        let old = Reply::cached("").with("surrogate-key", "t").with("content-length", "3");
        origin.on("/a", old.pieces(pieces).after(&head));
        let before = origin.hits("/a");
        let mut early = Wire::saying(at, head_of("GET", "/a", &[])).await;
        eventually("the fetch begins", || origin.hits("/a") == before + 1).await;
        purge(&node, what.clone()).await;
        origin.on("/a", Reply::cached("new").with("surrogate-key", "t"));
        // The head has not arrived: its tags are unknown.
        let mut late = Wire::saying(at, head_of("GET", "/a", &[])).await;
        head.open();
        assert_eq!(late.answer().await.text(), "new", "{what}");
        body.open();
        assert_eq!(early.answer().await.text(), "old", "who asked before may have it: {what}");
        settled(&node).await;
        // Even if the old response ended last, and was stored as stale.
        assert_eq!(get(at, "/a").await.text(), "new", "{what}");
        settled(&node).await;
        purge(&node, json!({"all": true})).await;
    }
    settled(&node).await;
}

#[tokio::test]
async fn purge_between_head_and_end_keeps_late_comers_off_the_old_body() {
    let (origin, node, at) = world().await;
    for what in [json!({"url": url("/a")}), json!({"tag": "t"}), json!({"all": true})] {
        let gate = Gate::new();
        let pieces = vec![Piece::Bytes(b"old".to_vec()), Piece::Gate(gate.clone())];
        origin.on(
            "/a",
            Reply::chunked(pieces).with("cache-control", "max-age=60").with("cache-tag", "t"),
        );
        let mut early = Wire::saying(at, head_of("GET", "/a", &[])).await;
        let mut answer = early.head().await;
        assert_eq!(answer.status, 200);
        purge(&node, what.clone()).await;
        origin.on("/a", Reply::cached("new").with("cache-tag", "t"));
        assert_eq!(get(at, "/a").await.text(), "new", "{what}");
        gate.open();
        early.body(&mut answer, "GET").await;
        assert!(answer.whole && answer.text() == "old", "{what}");
        settled(&node).await;
        let hit = get(at, "/a").await;
        assert!(hit.is_hit() && hit.text() == "new", "{what}: {hit:?}");
        purge(&node, json!({"all": true})).await;
    }
    settled(&node).await;
}

#[tokio::test]
async fn fetch_of_something_else_is_still_shared_after_a_purge() {
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    origin.on("/a", Reply::cached("x").with("surrogate-key", "t").after(&gate));
    let mut first = Wire::saying(at, head_of("GET", "/a", &[])).await;
    eventually("the fetch begins", || origin.hits("/a") == 1).await;
    purge(&node, json!({"tag": "other"})).await;
    let mut second = Wire::saying(at, head_of("GET", "/a", &[])).await;
    eventually("both wait", || node.counts().in_flight == 2).await;
    gate.open();
    assert_eq!(first.answer().await.text(), "x");
    assert_eq!(second.answer().await.text(), "x");
    assert_eq!(origin.hits("/a"), 1);
    settled(&node).await;
}

#[tokio::test]
async fn rules_end_when_they_have_been_applied() {
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    origin.on("/slow", Reply::cached("").after(&gate));
    stored(&node, at, &["/a", "/b"]).await;
    let mut slow = Wire::saying(at, head_of("GET", "/slow", &[])).await;
    eventually("the fetch begins", || origin.hits("/slow") == 1).await;
    purge(&node, json!({"all": true})).await;
    assert_eq!(metric(&node, "levada_purge_rules").await, 1.0);
    assert_eq!(metric(&node, "levada_purges_total").await, 1.0);
    let objects = async || metric(&node, "levada_cache_objects").await;
    while objects().await > 0.0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(metric(&node, "levada_purge_rules").await, 1.0, "a fetch is older");
    gate.open();
    slow.answer().await;
    while metric(&node, "levada_purge_rules").await > 0.0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(!is_stored(at, "/slow", &[]).await);
    settled(&node).await;
}

#[tokio::test]
async fn tags_stay_between_origin_and_cache() {
    let origin = Origin::start().await;
    for exposed in [false, true] {
        let mut settings = single(&[origin.address]);
        settings.purge.expose_tags = exposed;
        let node = start(settings).await;
        let at = node.addresses.clients[0];
        let tags = |reply: Reply| {
            reply.with("surrogate-key", "t").with("cache-tag", "t").with("cache-groups", "\"t\"")
        };
        origin.on("/stored", tags(Reply::cached("")));
        origin.on("/passed", tags(Reply::ok("").with("cache-control", "no-store")));
        for (method, target) in
            [("GET", "/stored"), ("GET", "/stored"), ("GET", "/passed"), ("POST", "/passed")]
        {
            let request = head_of(method, target, &[("Content-Length", "0")]);
            let answer = Wire::saying(at, request).await.answer().await;
            settled(&node).await;
            let shown = exposed.then(|| "t".to_owned());
            assert_eq!(answer.header("surrogate-key"), shown, "{method} {target}");
            assert_eq!(answer.header("cache-tag"), shown, "{method} {target}");
            assert_eq!(answer.field("cache-groups"), "\"t\"", "{method} {target}");
        }
        purge(&node, json!({"tag": "t"})).await;
        assert!(!is_stored(at, "/stored", &[]).await);
    }
}

#[tokio::test]
async fn origin_purges_its_groups_by_the_answer_to_an_unsafe_request() {
    let (origin, node, at) = world().await;
    origin.on("/a", Reply::cached("").with("cache-groups", "\"g\""));
    origin.on("/plain", Reply::cached("").with("surrogate-key", "g"));
    let says = |reply: Reply| reply.with("cache-group-invalidation", "\"g\", \"h\"");
    origin.on("/change", says(Reply::ok("")));
    let there = [("Host", "b.test")];
    stored(&node, at, &["/a", "/plain"]).await;
    get_with(at, "/a", &there).await;
    get(at, "/change").await;
    assert!(is_stored(at, "/a", &[]).await, "a safe request changes nothing");
    let request = head_of("POST", "/change", &[("Content-Length", "0")]);
    Wire::saying(at, request).await.answer().await;
    assert!(!is_stored(at, "/a", &[]).await);
    assert!(is_stored(at, "/plain", &[]).await, "a tag is no group");
    assert!(is_stored(at, "/a", &there).await, "another origin's");
    settled(&node).await;
}

#[tokio::test]
async fn clients_purge_with_the_token() {
    let (origin, node, at) = world_with(with_token).await;
    origin.on("/t", Reply::cached("").with("surrogate-key", "t"));
    let bearer = format!("bearer {TOKEN}");
    for (target, fields, gone, left) in [
        ("/a", vec![], vec!["/a"], vec!["/a/b", "/t"]),
        ("/a", vec![("Levada-Purge", "prefix")], vec!["/a", "/a/b"], vec!["/t"]),
        ("/a", vec![("Surrogate-Key", "s t")], vec!["/t"], vec!["/a", "/a/b"]),
        ("/x", vec![("Levada-Purge", "all")], vec!["/a", "/a/b", "/t"], vec![]),
        ("/a", vec![("Fastly-Soft-Purge", "1")], vec!["/a"], vec!["/a/b", "/t"]),
    ] {
        stored(&node, at, &["/a", "/a/b", "/t"]).await;
        let mut fields = fields;
        fields.push(("Authorization", &bearer));
        let answer = Wire::saying(at, head_of("PURGE", target, &fields)).await.answer().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let report: Json = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(report["confirmed"], true);
        for (targets, expected) in [(gone, false), (left, true)] {
            for target in targets {
                assert_eq!(is_stored(at, target, &[]).await, expected, "{target} {fields:?}");
            }
        }
    }
    assert!(origin.asked("/a").iter().all(|asked| asked.method == "GET"));
    settled(&node).await;
}

#[tokio::test]
async fn nobody_purges_without_the_token() {
    for configured in [false, true] {
        let (origin, node, at) = world_with(|settings| {
            if configured {
                with_token(settings);
            }
        })
        .await;
        stored(&node, at, &["/a"]).await;
        for value in ["", "Bearer", "Bearer ", "Bearer wrong", "Basic YTpi", TOKEN] {
            let fields = [("Authorization", value)];
            let answer = Wire::saying(at, head_of("PURGE", "/a", &fields)).await.answer().await;
            let expected = if configured { 401 } else { 405 };
            assert_eq!(answer.status, expected, "{value}");
            let told = if configured { "www-authenticate" } else { "allow" };
            assert!(answer.header(told).is_some());
        }
        let answer = order(&node, &json!({"url": url("/b")})).await;
        assert_eq!(answer.status, if configured { 401 } else { 200 });
        assert!(is_stored(at, "/a", &[]).await);
        assert_eq!(origin.hits("/a"), 1, "it never reaches the origin");
        settled(&node).await;
    }
}

#[tokio::test]
async fn bad_orders_are_refused_and_purge_nothing() {
    let (_origin, node, at) = world().await;
    stored(&node, at, &["/a"]).await;
    let json = [("Content-Type", "application/json; charset=utf-8")];
    let large = format!(r#"{{"tag":"{}"}}"#, "t".repeat(300 << 10));
    for (body, status) in [
        ("", 400),
        ("{", 400),
        ("{}", 400),
        (r#"{"url":"/a"}"#, 400),
        (r#"{"url":"a.test/a"}"#, 400),
        (r#"{"url":["http://a.test/a","/b"]}"#, 400),
        (r#"{"url":["http://a.test/a","http://c.test/b"]}"#, 404),
        (r#"{"prefix":"http://a.tes"}"#, 404),
        (r#"{"tag":" "}"#, 400),
        (r#"{"all":true,"site":"c.test"}"#, 404),
        (r#"{"all":true,"sote":"a.test"}"#, 400),
        (&large, 413),
    ] {
        let answer = post(&node, &json, body).await;
        assert_eq!(answer.status, status, "{}: {}", &body[..body.len().min(60)], answer.text());
        assert!(!answer.text().is_empty());
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let answer = post(&node, &[("Content-Type", kind)], r#"{"all":true}"#).await;
        assert_eq!(answer.status, 415, "{kind}");
    }
    assert!(is_stored(at, "/a", &[]).await);
    assert_eq!(metric(&node, "levada_purges_total").await, 0.0);
    settled(&node).await;
}

/// Requests a target at every node so that it is stored.
pub(super) async fn stored_everywhere(cluster: &Cluster, target: &str) {
    for index in 0..cluster.settings.len() {
        cluster.get_as_peer(index, target, &[]).await;
    }
    cluster.settled().await;
}

pub(super) async fn is_stored_at(cluster: &Cluster, index: usize, target: &str) -> bool {
    let fields = [("Cache-Control", "only-if-cached")];
    cluster.get_as_peer(index, target, &fields).await.status == 200
}

pub(super) fn results(report: &Json) -> Vec<(&str, &str)> {
    let nodes = report["nodes"].as_array().unwrap().iter();
    nodes.map(|n| (n["node"].as_str().unwrap(), n["result"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn purge_reaches_every_peer() {
    let origin = Origin::start().await;
    for h2 in [false, true] {
        let cluster = Cluster::start(3, origin.address, |settings| {
            settings.peering.as_mut().unwrap().h2 = h2;
        })
        .await;
        origin.on("/t", Reply::cached("").with("surrogate-key", "t"));
        for what in [json!({"url": url("/t")}), json!({"tag": "t"}), json!({"all": true})] {
            stored_everywhere(&cluster, "/t").await;
            let report = purge(cluster.node(1), what.clone()).await;
            let all = [("n1", "confirmed"), ("n0", "confirmed"), ("n2", "confirmed")];
            assert_eq!(results(&report), all, "{what}");
            for index in 0..3 {
                assert!(!is_stored_at(&cluster, index, "/t").await, "{what} at n{index}");
            }
        }
        cluster.settled().await;
    }
}

#[tokio::test]
async fn groups_are_purged_at_peers_as_well() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |_| {}).await;
    origin.on("/a", Reply::cached("").with("cache-groups", "\"g\""));
    origin.on("/change", Reply::ok("").with("cache-group-invalidation", "\"g\""));
    stored_everywhere(&cluster, "/a").await;
    let request = head_of("POST", "/change", &[("Content-Length", "0")]);
    Wire::saying(cluster.client(0), request).await.answer().await;
    assert!(!is_stored_at(&cluster, 0, "/a").await);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while is_stored_at(&cluster, 1, "/a").await {
        assert!(tokio::time::Instant::now() < deadline);
    }
    cluster.settled().await;
}

#[tokio::test]
async fn change_invalidates_at_every_peer_before_it_is_answered() {
    let origin = Origin::start().await;
    for h2 in [false, true] {
        let cluster = Cluster::start(3, origin.address, |settings| {
            settings.peering.as_mut().unwrap().h2 = h2;
        })
        .await;
        origin.on("/change", Reply::ok("").with("location", "/b"));
        for target in ["/a", "/b", "/change"] {
            stored_everywhere(&cluster, target).await;
        }
        let request = head_of("POST", "/change", &[("Content-Length", "0")]);
        assert_eq!(Wire::saying(cluster.client(1), request).await.answer().await.status, 200);
        for index in 0..3 {
            assert!(is_stored_at(&cluster, index, "/a").await, "n{index}");
            assert!(!is_stored_at(&cluster, index, "/b").await, "n{index}");
        }
        // An invalidation is not a purge: it adds no rule.
        assert_eq!(metric(cluster.node(0), "levada_purges_total").await, 0.0);
        cluster.settled().await;
    }
}

#[tokio::test]
async fn peer_that_is_away_hears_of_a_change_when_it_is_back() {
    let origin = Origin::start().await;
    let mut cluster = Cluster::start(2, origin.address, |_| {}).await;
    cluster.kill(1);
    for _ in 0..3 {
        let request = head_of("POST", "/a", &[("Content-Length", "0")]);
        assert_eq!(Wire::saying(cluster.client(0), request).await.answer().await.status, 200);
    }
    assert_eq!(metric(cluster.node(0), "levada_purges_pending").await, 1.0, "once is enough");
    cluster.revive(1).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while metric(cluster.node(0), "levada_purges_pending").await > 0.0 {
        assert!(tokio::time::Instant::now() < deadline, "never delivered");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    cluster.settled().await;
}

#[tokio::test]
async fn strangers_cannot_purge_by_the_peer_listener() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |_| {}).await;
    stored_everywhere(&cluster, "/a").await;
    let body = r#"{"all":true}"#;
    for secret in ["n1;wrong", "n1;", ""] {
        let fields = [("Levada-Peer", secret), ("Content-Length", "12")];
        let request = head_of("POST", "/.levada/purge", &fields) + body;
        let answer = Wire::saying(cluster.peer(0), request).await.answer().await;
        assert_eq!(answer.status, 403);
    }
    for body in ["", "{}", "[1]", r#"{"url":"x"}"#] {
        let length = body.len().to_string();
        let mut wire = cluster.peer_wire(0).await;
        wire.send(head_of("POST", "/.levada/purge", &[("Content-Length", &*length)]) + body).await;
        let answer = wire.answer().await;
        assert_eq!(answer.status, 400, "{body}");
    }
    // On the client listener this path is like any other.
    let request = head_of("POST", "/.levada/purge", &[("Content-Length", "12")]) + body;
    let answer = Wire::saying(cluster.client(0), request).await.answer().await;
    assert_eq!(answer.text(), "/.levada/purge");
    assert!(is_stored_at(&cluster, 0, "/a").await);
    cluster.settled().await;
}

#[tokio::test]
async fn peer_that_is_away_is_named_and_told_later() {
    let origin = Origin::start().await;
    for probed in [true, false] {
        let mut cluster = Cluster::start(3, origin.address, |settings| {
            let peering = settings.peering.as_mut().unwrap();
            peering.health = if probed { watched() } else { unwatched() };
        })
        .await;
        cluster.kill(2);
        let answer = order(cluster.node(0), &json!({"url": url("/a")})).await;
        assert_eq!(answer.status, 202);
        let report: Json = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(report["confirmed"], false);
        let all = [("n0", "confirmed"), ("n1", "confirmed"), ("n2", "unreachable")];
        assert_eq!(results(&report), all);
        assert_eq!(metric(cluster.node(0), "levada_purges_pending").await, 1.0);
        cluster.revive(2).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while metric(cluster.node(0), "levada_purges_pending").await > 0.0 {
            assert!(tokio::time::Instant::now() < deadline, "never delivered");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(metric(cluster.node(2), "levada_purges_total").await, 1.0);
        cluster.settled().await;
    }
}

#[tokio::test]
async fn peer_that_hangs_and_peer_that_refuses_are_told_apart() {
    let origin = Origin::start().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_at = silent.local_addr().unwrap();
    let cluster = Cluster::start(3, origin.address, |_| {}).await;
    let mut settings = cluster.settings[0].clone();
    let peering = settings.peering.as_mut().unwrap();
    peering.listen = reserve(1)[0];
    peering.peers[1].address = silent_at.to_string();
    // The third is a node with another secret.
    peering.trust = levada_config::PeerTrust::Secret("another secret than theirs".into());
    settings.listeners[0].address = reserve(1)[0];
    let node = start(settings).await;
    let answer = order(&node, &json!({"all": true})).await;
    assert_eq!(answer.status, 202);
    let report: Json = serde_json::from_slice(&answer.body).unwrap();
    let all = [("n0", "confirmed"), ("n1", "pending"), ("n2", "refused")];
    assert_eq!(results(&report), all);
}

/// An origin that serves ranges, all with one entity tag whatever the bytes are.
fn long(origin: &Origin, byte: u8) -> Vec<u8> {
    let whole = vec![byte; 256 << 10];
    let body = whole.clone();
    origin.script("/long", move |asked| {
        let reply =
            |part: &[u8]| Reply::cached(part).with("etag", "\"same\"").with("surrogate-key", "t");
        let Some(range) = asked.header("range") else { return reply(&body) };
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        reply(&body[first..=last])
            .status("206 Partial Content")
            .with("content-range", &format!("bytes {first}-{last}/{}", body.len()))
    });
    whole
}

#[tokio::test]
async fn long_body_is_purged_with_all_its_blocks() {
    let (origin, node, at) = world_with(|settings| settings.cache.block = 64 << 10).await;
    for what in [json!({"url": url("/long")}), json!({"tag": "t"}), json!({"all": true})] {
        let old = long(&origin, b'o');
        assert_eq!(get(at, "/long").await.body, old);
        settled(&node).await;
        assert!(get(at, "/long").await.is_hit());
        settled(&node).await;
        purge(&node, what.clone()).await;
        let new = long(&origin, b'n');
        for range in ["bytes=0-9", "bytes=70000-70009", "bytes=-10"] {
            let part = get_with(at, "/long", &[("Range", range)]).await;
            assert_eq!((part.status, part.body), (206, b"nnnnnnnnnn".to_vec()), "{what} {range}");
            settled(&node).await;
        }
        assert_eq!(get(at, "/long").await.body, new, "{what}");
        settled(&node).await;
        purge(&node, json!({"all": true})).await;
    }
}

#[tokio::test]
async fn purge_wins_against_a_long_body_that_is_still_arriving() {
    let (origin, node, at) = world_with(|settings| settings.cache.block = 64 << 10).await;
    for what in [json!({"url": url("/long")}), json!({"tag": "t"}), json!({"all": true})] {
        let gate = Gate::new();
        let half = vec![b'o'; 128 << 10];
        let pieces =
            vec![Piece::Bytes(half.clone()), Piece::Gate(gate.clone()), Piece::Bytes(half)];
        let old = Reply::cached("").with("etag", "\"same\"").with("surrogate-key", "t");
        origin.on("/long", old.with("content-length", "262144").pieces(pieces));
        let mut early = Wire::saying(at, head_of("GET", "/long", &[])).await;
        let mut answer = early.head().await;
        assert!(early.take(100_000).await.iter().all(|byte| *byte == b'o'));
        purge(&node, what.clone()).await;
        let new = long(&origin, b'n');
        assert_eq!(get(at, "/long").await.body, new, "{what}");
        gate.open();
        answer.fields.retain(|(name, _)| name != "content-length");
        answer.fields.push(("content-length".to_owned(), (262_144 - 100_000).to_string()));
        early.body(&mut answer, "GET").await;
        assert!(answer.whole && answer.body.iter().all(|byte| *byte == b'o'), "{what}");
        settled(&node).await;
        let hit = get(at, "/long").await;
        assert!(hit.is_hit() && hit.body == new, "{what}");
        settled(&node).await;
        purge(&node, json!({"all": true})).await;
    }
}
