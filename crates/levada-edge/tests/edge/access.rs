//! Who may use a site, and how much of it: at the node that met the client, and nowhere else.

use std::{sync::Arc, time::Duration};

use levada_access::{
    basic_auth::Users, cors::Cors, limit_key::LimitKey, rate::RateBounds, referers::Referers,
};
use levada_edge::settings::{
    AccessLog, AccessSettings, Bandwidth, BasicSettings, LimitSettings, LogFormat, Settings,
};

use crate::support::{nodes::Cluster, *};

fn rate(key: &str, rate: &str, burst: u32, nodelay: bool) -> LimitSettings {
    let rate = Some(RateBounds { rate: rate.parse().unwrap(), burst, nodelay });
    LimitSettings { key: key.parse().unwrap(), rate, concurrent: None, keys: 1024, cluster: false }
}

fn concurrent(most: u32) -> LimitSettings {
    let (key, concurrent) = (LimitKey::Client(32), Some(most));
    LimitSettings { key, rate: None, concurrent, keys: 1024, cluster: false }
}

fn with(access: AccessSettings) -> impl FnOnce(&mut Settings) {
    move |settings| settings.sites[0].access = access
}

#[tokio::test]
async fn requests_beyond_the_rate_get_429_hits_included() {
    let limits = vec![rate("client", "1r/m", 2, true)];
    let (origin, node, at) = alone(with(AccessSettings { limits, ..Default::default() })).await;
    origin.on("/a", Reply::cached("x"));
    for _ in 0..3 {
        assert_eq!(get(at, "/a").await.status, 200);
    }
    let refused = get(at, "/a").await;
    assert_eq!((refused.status, origin.hits("/a")), (429, 1));
    let seconds: u64 = refused.field("retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(refused.field("ratelimit-policy"), "\"client\";q=3;w=180");
    assert_eq!(refused.field("ratelimit"), format!("\"client\";r=0;t={seconds}"));
    assert_eq!(refused.field("cache-control"), "no-store");
    let mut other = Wire::over(connect_from(2, at).await);
    other.send(head_of("GET", "/a", &[])).await;
    assert_eq!(other.answer().await.status, 200);
    settled(&node).await;
}

#[tokio::test]
async fn request_within_the_burst_waits_for_its_turn() {
    let limits = vec![rate("site", "20r/s", 100, false)];
    let (origin, node, at) = alone(with(AccessSettings { limits, ..Default::default() })).await;
    origin.on("/a", Reply::cached("x"));
    let before = std::time::Instant::now();
    for _ in 0..5 {
        assert_eq!(get(at, "/a").await.status, 200);
    }
    assert!(before.elapsed() >= Duration::from_millis(200), "four turns of 50 ms");
    settled(&node).await;
}

#[tokio::test]
async fn requests_of_one_key_that_are_served_at_once_are_bounded() {
    let limits = vec![concurrent(2)];
    let (origin, node, at) = alone(with(AccessSettings { limits, ..Default::default() })).await;
    let gate = Gate::new();
    origin.on("/slow", Reply::ok("x").after(&gate));
    let mut waiting = Vec::new();
    for _ in 0..2 {
        waiting.push(
            Wire::saying(at, head_of("GET", "/slow", &[("Cache-Control", "no-store")])).await,
        );
    }
    eventually("both are served", || origin.heads() == 2).await;
    let refused = get(at, "/a").await;
    assert_eq!((refused.status, refused.field("retry-after").as_str()), (429, "1"));
    gate.open();
    for wire in &mut waiting {
        assert_eq!(wire.answer().await.status, 200);
    }
    drop(waiting);
    settled(&node).await;
    assert_eq!(get(at, "/a").await.status, 200);
}

#[tokio::test]
async fn limits_hold_at_the_node_that_met_the_client_only() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |settings| {
        settings.sites[0].access.limits = vec![rate("client", "1r/m", 3, true)];
    })
    .await;
    // All requests are of one client, and a peer serves about half of them.
    for number in 0..4 {
        let answer = get(cluster.client(0), &format!("/{number}")).await;
        assert_eq!(answer.status, 200, "{number}");
    }
    assert_eq!(get(cluster.client(0), "/4").await.status, 429);
    for number in 0..4 {
        assert_eq!(get(cluster.client(1), &format!("/{number}")).await.status, 200, "{number}");
    }
    cluster.settled().await;
}

#[tokio::test]
async fn nodes_that_are_up_share_a_limit_of_the_cluster() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |settings| {
        let limit = LimitSettings { cluster: true, ..rate("client", "1r/m", 4, true) };
        settings.sites[0].access.limits = vec![limit];
    })
    .await;
    let mut passed = 0;
    for number in 0..10 {
        passed += u32::from(get(cluster.client(0), &format!("/{number}")).await.status == 200);
    }
    assert_eq!(passed, 3, "one, and half of the burst");
    cluster.settled().await;
}

#[tokio::test]
async fn denied_addresses_are_refused_and_logged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (origin, node, at) = alone(|settings| {
        let rules = ["deny 127.0.0.2", "allow 127.0.0.0/8", "deny all"];
        settings.sites[0].access.rules = rules.map(|rule| rule.parse().unwrap()).to_vec();
        settings.access_log = Some(AccessLog { path: Some(path.clone()), format: LogFormat::Json });
    })
    .await;
    assert_eq!(get(at, "/a").await.status, 200);
    let mut denied = Wire::over(connect_from(2, at).await);
    denied.send(head_of("GET", "/a", &[])).await;
    let answer = denied.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (403, "403 Forbidden: access is denied\n"));
    drop(denied);
    assert_eq!(origin.total(), 1);
    settled(&node).await;
    node.stop().await;
    let log = std::fs::read_to_string(path).unwrap();
    assert!(log.contains("the client's address is denied"), "{log}");
}

#[tokio::test]
async fn body_beyond_the_bound_gets_413_with_and_without_a_length() {
    let (origin, node, at) =
        alone(with(AccessSettings { max_body: Some(10), ..Default::default() })).await;
    let post = |length: usize| {
        head_of("POST", "/a", &[("Content-Length", &length.to_string())]) + &"x".repeat(length)
    };
    assert_eq!(Wire::saying(at, post(10)).await.answer().await.status, 200);
    let head =
        head_of("POST", "/b", &[("Content-Length", "1000000000"), ("Expect", "100-continue")]);
    assert_eq!(Wire::saying(at, head).await.answer().await.status, 413, "nothing of it is read");
    assert_eq!(origin.hits("/b"), 0);
    let chunked = |target: &str| head_of("POST", target, &[("Transfer-Encoding", "chunked")]);
    let fits = chunked("/c") + "5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n";
    assert_eq!(Wire::saying(at, fits).await.answer().await.status, 200);
    let mut long = Wire::saying(at, chunked("/d") + "a\r\n0123456789\r\n").await;
    long.send("1\r\nx\r\n").await;
    // The rest of the body never comes.
    assert_eq!(long.answer().await.status, 413);
    drop(long);
    settled(&node).await;
}

#[tokio::test]
async fn response_goes_out_at_the_rate_of_its_connection() {
    let bandwidth = Bandwidth { connection: Some(100_000), after: 50_000, site: None };
    let (origin, node, at) = alone(with(AccessSettings { bandwidth, ..Default::default() })).await;
    origin.on("/a", Reply::cached(vec![b'x'; 90_000]));
    for _ in 0..2 {
        let before = std::time::Instant::now();
        assert_eq!(get(at, "/a").await.body.len(), 90_000);
        assert!(before.elapsed() >= Duration::from_millis(300), "40,000 bytes at 100,000 a second");
    }
    settled(&node).await;
}

#[tokio::test]
async fn users_with_the_right_password_share_what_is_cached() {
    let users = "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";
    let basic = Some(BasicSettings {
        realm: "Staff".to_owned(),
        users: Arc::new(Users::read(users).unwrap()),
    });
    let (origin, node, at) = alone(with(AccessSettings { basic, ..Default::default() })).await;
    origin.on("/a", Reply::cached("x"));
    let asked = get(at, "/a").await;
    assert_eq!(asked.status, 401);
    assert_eq!(asked.field("www-authenticate"), "Basic realm=\"Staff\", charset=\"UTF-8\"");
    assert_eq!(get_with(at, "/a", &[("Authorization", "Basic YW5uOndyb25n")]).await.status, 401);
    assert_eq!(origin.total(), 0);
    // ann:secret, bob:secret
    let ann = get_with(at, "/a", &[("Authorization", "Basic YW5uOnNlY3JldA==")]).await;
    let bob = get_with(at, "/a", &[("Authorization", "Basic Ym9iOnNlY3JldA==")]).await;
    assert_eq!((ann.status, bob.status, bob.is_hit()), (200, 200, true));
    assert_eq!(origin.asked("/a")[0].header("authorization"), None);
    settled(&node).await;
}

#[tokio::test]
async fn pages_of_strangers_may_not_embed_files() {
    let kinds = ["none", "server_names"].map(|kind| kind.parse().unwrap()).to_vec();
    let referers = Some(Referers::new(kinds));
    let (_origin, node, at) = alone(with(AccessSettings { referers, ..Default::default() })).await;
    let own = format!("http://{HOST}/page");
    assert_eq!(get(at, "/a").await.status, 200);
    assert_eq!(get_with(at, "/a", &[("Referer", &own)]).await.status, 200);
    assert_eq!(get_with(at, "/a", &[("Referer", "http://evil.test/")]).await.status, 403);
    settled(&node).await;
}

#[tokio::test]
async fn preflight_is_answered_by_the_node_and_responses_name_the_origin() {
    let cors = Some(Cors {
        origins: vec!["https://app.test".to_owned()],
        methods: Vec::new(),
        headers: None,
        expose: Vec::new(),
        credentials: false,
        max_age: Duration::from_secs(60),
    });
    let limits = vec![rate("path", "1r/m", 1, true)];
    let (origin, node, at) =
        alone(with(AccessSettings { cors, limits, ..Default::default() })).await;
    origin.on("/a", Reply::cached("x").with("Access-Control-Allow-Origin", "https://old.test"));
    let asks = [("Origin", "https://app.test"), ("Access-Control-Request-Method", "GET")];
    let mut wire = Wire::saying(at, head_of("OPTIONS", "/p", &asks)).await;
    let answer = wire.answer().await;
    assert_eq!((answer.status, origin.total()), (204, 0));
    assert_eq!(answer.field("access-control-allow-origin"), "https://app.test");
    assert_eq!(answer.field("access-control-allow-methods"), "GET, HEAD, POST");
    drop(wire);
    for (from, allowed) in
        [("https://app.test", Some("https://app.test")), ("https://evil.test", None)]
    {
        let answer = get_with(at, "/a", &[("Origin", from)]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("access-control-allow-origin").as_deref(), allowed);
        assert!(answer.field("vary").to_ascii_lowercase().contains("origin"));
    }
    assert_eq!(origin.hits("/a"), 1, "one copy serves all origins");
    let refused = get_with(at, "/a", &[("Origin", "https://app.test")]).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("access-control-allow-origin"), "https://app.test");
    settled(&node).await;
}

#[tokio::test]
async fn purges_pass_the_rules_of_a_site() {
    let (_origin, node, at) = alone(|settings| {
        settings.purge.token = Some("a token of some length".to_owned());
        settings.sites[0].access.rules = vec!["deny all".parse().unwrap()];
    })
    .await;
    let token = [("Authorization", "Bearer a token of some length")];
    let mut wire = Wire::saying(at, head_of("PURGE", "/a", &token)).await;
    assert_eq!(wire.answer().await.status, 200);
    assert_eq!(get(at, "/a").await.status, 403);
    drop(wire);
    settled(&node).await;
}
