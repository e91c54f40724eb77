//! Who may use a site, and how much of it: at the node that met the client, and nowhere else.

use std::{sync::Arc, time::Duration};

use levada_access::{
    basic_auth::Users,
    cors::Cors,
    limit_key::LimitKey,
    rate::RateBounds,
    referers::Referers,
    signed::{Digest, Issuers, Link, PACKAGE, RequestUrl, SignedUrls, Tokens},
};
use levada_config::{
    AccessLog, AccessSettings, Bandwidth, BasicSettings, CachingRules, KeyRules, LimitSettings,
    LogFormat, QueryRule, Settings, SettingsReader,
};
use levada_node::Running;
use levada_rules::TextPattern;

use crate::support::{nodes::*, *};

fn rate(key: &str, rate: &str, burst: u32, nodelay: bool) -> LimitSettings {
    let rate = Some(RateBounds { rate: rate.parse().unwrap(), burst, nodelay });
    LimitSettings { key: key.parse().unwrap(), rate, concurrent: None, keys: 1024, cluster: false }
}

fn concurrent(most: u32) -> LimitSettings {
    let (key, concurrent) = (LimitKey::Client(32), Some(most));
    LimitSettings { key, rate: None, concurrent, keys: 1024, cluster: false }
}

fn with(access: AccessSettings) -> impl FnOnce(&mut Settings) {
    move |settings| settings.sites[0].handling.access = access
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
        settings.sites[0].handling.access.limits = vec![rate("client", "1r/m", 3, true)];
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
        settings.sites[0].handling.access.limits = vec![limit];
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
        settings.sites[0].handling.access.rules = rules.map(|rule| rule.parse().unwrap()).to_vec();
        settings.access_log = Some(AccessLog::to_file(path.clone(), LogFormat::json()));
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
        settings.purge.access.token = Some("a token of some length".to_owned());
        settings.sites[0].handling.access.rules = vec!["deny all".parse().unwrap()];
    })
    .await;
    let token = [("Authorization", "Bearer a token of some length")];
    let mut wire = Wire::saying(at, head_of("PURGE", "/a", &token)).await;
    assert_eq!(wire.answer().await.status, 200);
    assert_eq!(get(at, "/a").await.status, 403);
    drop(wire);
    settled(&node).await;
}

const ONE: &str = "Kh_RkUMj-fzbD37qBnDf_3e_RvQ3RP9PaSmVEpE24AM";
const TWO: &str = "fZBpDBNbk2GqhwoB_DGBAsBxqQZVix04rIoLJ7p_RlE";
/// A time in seconds that no test reaches.
const LATE: u64 = 4_000_000_000;

/// The file of an issuer's keys, by `kid`. The first one signs.
fn key_file(issuer: &str, keys: &[(&str, &str)]) -> String {
    let signing = keys[0].0;
    let key = |(kid, k): &(&str, &str)| {
        format!(r#"{{"kid": "{kid}", "alg": "HS256", "kty": "oct", "k": "{k}"}}"#)
    };
    let keys: Vec<String> = keys.iter().map(key).collect();
    format!(r#"{{"{issuer}": {{"renewal_kid": "{signing}", "keys": [{}]}}}}"#, keys.join(", "))
}

fn tokens(keys: &str) -> SignedUrls {
    SignedUrls::Token(Tokens { issuers: Issuers::read(keys).unwrap(), audience: None })
}

fn link(digest: Digest, message: &str, signature: &str) -> SignedUrls {
    SignedUrls::Link(Link {
        digest,
        message: message.parse().unwrap(),
        secrets: vec!["secret".to_owned()],
        signature: signature.to_owned(),
        expires: "expires".to_owned(),
    })
}

fn sign(keys: &SignedUrls, target: &str, expires: u64) -> String {
    let url = RequestUrl { scheme: "http", host: HOST, target };
    keys.sign(&url, Some([127, 0, 0, 1].into()), expires).unwrap()
}

fn signed(keys: &SignedUrls) -> AccessSettings {
    AccessSettings { signed: Some(Arc::new(keys.clone())), ..Default::default() }
}

#[tokio::test]
async fn url_without_a_valid_token_is_refused_and_only_the_log_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let own = tokens(&key_file("a", &[("1", ONE)]));
    let (origin, node, at) = alone(|settings| {
        settings.sites[0].handling.access = signed(&own);
        settings.access_log = Some(AccessLog::to_file(path.clone(), LogFormat::json()));
    })
    .await;
    let valid = sign(&own, "/a?x=1", LATE);
    let claims = valid.split('.').nth(1).unwrap();
    let refusals = [
        ("/a?x=1".to_owned(), "the request has no token"),
        (format!("/a?x=1&{PACKAGE}=x"), "the token has no valid form"),
        (sign(&own, "/a?x=1", 1), "the token has expired"),
        (valid.replace("x=1", "x=2"), "the token is for another URL"),
        // The header is {"alg":"none"}.
        (
            format!("/a?x=1&{PACKAGE}=eyJhbGciOiJub25lIn0.{claims}."),
            "the token's algorithm is not accepted",
        ),
        (
            sign(&tokens(&key_file("b", &[("1", ONE)])), "/a?x=1", LATE),
            "the token's issuer is not known",
        ),
        (
            sign(&tokens(&key_file("a", &[("2", ONE)])), "/a?x=1", LATE),
            "the token's key is not known",
        ),
        (
            sign(&tokens(&key_file("a", &[("1", TWO)])), "/a?x=1", LATE),
            "the token's signature is wrong",
        ),
    ];
    for (target, why) in &refusals {
        let answer = get(at, target).await;
        let text = "403 Forbidden: access is denied\n";
        assert_eq!((answer.status, answer.text().as_str()), (403, text), "{why}");
        assert!(!answer.fields.iter().any(|(_, value)| value.contains("token")), "{answer:?}");
    }
    assert_eq!(origin.total(), 0);
    assert_eq!(get(at, &valid).await.status, 200);
    assert_eq!(origin.asked("/a")[0].target, "/a?x=1");
    settled(&node).await;
    node.stop().await;
    let log = std::fs::read_to_string(path).unwrap();
    for (line, (target, why)) in log.lines().zip(&refusals) {
        assert!(line.contains(why), "{target}: {line}");
    }
}

#[tokio::test]
async fn stored_response_is_one_for_all_signatures_and_for_none_without() {
    let own = tokens(&key_file("a", &[("1", ONE), ("2", TWO)]));
    let (origin, node, at) = alone(with(signed(&own))).await;
    let other = tokens(&key_file("a", &[("2", TWO)]));
    assert_eq!(get(at, &sign(&own, "/a", LATE)).await.status, 200);
    settled(&node).await;
    for target in [sign(&own, "/a", LATE + 1), sign(&other, "/a", LATE)] {
        let answer = get(at, &target).await;
        assert_eq!((answer.status, answer.is_hit()), (200, true));
    }
    for target in ["/a".to_owned(), sign(&own, "/a", 1), sign(&own, "/b", LATE).replace("/b", "/a")]
    {
        assert_eq!(get(at, &target).await.status, 403, "{target}");
    }
    // A target in absolute form names the same.
    let target = format!("http://{HOST}{}", sign(&own, "/a", LATE));
    let mut wire = Wire::saying(at, head_of("GET", &target, &[])).await;
    assert!(wire.answer().await.is_hit());
    drop(wire);
    assert_eq!(origin.total(), 1);
    settled(&node).await;
}

#[tokio::test]
async fn key_rules_apply_to_the_url_without_its_signature() {
    let own = link(Digest::HmacSha256, "{expires}{path}", "signature");
    let (origin, node, at) = alone(|settings| {
        settings.sites[0].handling.access = signed(&own);
        let query = QueryRule::Without(vec![TextPattern::parse("utm_*", false).unwrap()]);
        let key =
            KeyRules { query, headers: vec!["x-kind".parse().unwrap()], ..Default::default() };
        let rules = CachingRules { key, ..Default::default() };
        settings.sites[0].handling.caching = Some(Arc::new(rules));
    })
    .await;
    let ask = async |target: &str, kind: &str, expires: u64| {
        let answer = get_with(at, &sign(&own, target, expires), &[("X-Kind", kind)]).await;
        settled(&node).await;
        (answer.status, answer.is_hit())
    };
    assert_eq!(ask("/a?x=1&utm_a=1", "one", LATE).await, (200, false));
    assert_eq!(ask("/a?utm_b=2&x=1", "one", LATE + 1).await, (200, true));
    assert_eq!(ask("/a?x=1", "two", LATE).await, (200, false));
    assert_eq!(ask("/a?x=2", "one", LATE).await, (200, false));
    assert_eq!(origin.asked("/a")[0].target, "/a?x=1&utm_a=1");
    assert_eq!(get(at, "/a?x=1").await.status, 403);
    settled(&node).await;
}

#[tokio::test]
async fn link_of_nginx_manual_is_valid_for_its_client_and_its_path() {
    let (origin, node, at) =
        alone(with(signed(&link(Digest::Md5, "{expires}{path}{client} {secret}", "md5")))).await;
    let manual = "?md5=_e4Nc3iduzkWRm01TBBNYw&expires=2147483647";
    assert_eq!(get(at, &format!("/s/link{manual}")).await.status, 200);
    assert_eq!(origin.asked("/s/link")[0].target, "/s/link");
    assert_eq!(get(at, &format!("/s/link?x=1&{}", &manual[1..])).await.status, 200);
    assert_eq!(origin.asked("/s/link")[1].target, "/s/link?x=1");
    for target in ["/s/link".to_owned(), format!("/s/other{manual}"), format!("/s/link{manual}0")] {
        assert_eq!(get(at, &target).await.status, 403, "{target}");
    }
    let mut other = Wire::over(connect_from(2, at).await);
    other.send(head_of("GET", &format!("/s/link{manual}"), &[])).await;
    assert_eq!(other.answer().await.status, 403);
    drop(other);
    settled(&node).await;
}

#[tokio::test]
async fn link_with_an_hmac_is_valid_until_its_end() {
    let own = link(Digest::HmacSha256, "{expires}{path}", "signature");
    let (origin, node, at) = alone(with(signed(&own))).await;
    // echo -n '4000000000/a' | openssl sha256 -hmac secret -binary | openssl base64 | tr +/ -_ | tr -d =
    let made_by_openssl =
        "/a?expires=4000000000&signature=lvqVieZoXQsM9fNMKzaE95eip_q5XN-MFJTwds8uWfI";
    assert_eq!(sign(&own, "/a", LATE), made_by_openssl);
    assert_eq!(get(at, made_by_openssl).await.status, 200);
    assert_eq!(get(at, &sign(&own, "/a", 1)).await.status, 403);
    assert_eq!(get(at, &made_by_openssl.replace("expires=4", "expires=5")).await.status, 403);
    assert_eq!(get(at, &made_by_openssl.replace("/a", "/b")).await.status, 403);
    assert_eq!(origin.total(), 1);
    settled(&node).await;
}

#[tokio::test]
async fn peers_do_not_check_signatures_again() {
    let own = tokens(&key_file("a", &[("1", ONE)]));
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |settings| {
        settings.sites[0].handling.access = signed(&own)
    })
    .await;
    let mut by_peer = 0;
    for number in 0..16 {
        let target = format!("/{number}");
        let answer = get(cluster.client(0), &sign(&own, &target, LATE)).await;
        assert_eq!(answer.status, 200);
        by_peer += u32::from(answer.field("via").contains("n1"));
        assert_eq!(origin.asked(&target)[0].target, target);
        assert_eq!(get(cluster.client(1), &target).await.status, 403);
    }
    assert!(by_peer > 0);
    assert_eq!(cluster.get_as_peer(1, "/0", &[]).await.status, 200);
    cluster.settled().await;
}

#[tokio::test]
async fn keys_rotate_by_reloads_and_stay_when_their_file_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    let write = |list: &[(&str, &str)]| std::fs::write(&keys, key_file("a", list)).unwrap();
    write(&[("1", ONE)]);
    let origin = Origin::start().await;
    let (directory, before) = (folder.path().to_owned(), single(&[origin.address]));
    let read = move || {
        let text = "name = 'n0'\n[[listen]]\naddress = '127.0.0.1:8080'\n[[site]]\nhosts = 'a.test'\n\
                    origin = 'http://127.0.0.1:9'\n\
                    signed_urls = { form = 'token', keys_file = 'keys.json' }\n";
        let source =
            levada_config::Source { name: "levada.toml".to_owned(), text: text.to_owned() };
        let surroundings = levada_config::Surroundings {
            directory: &directory,
            variable: &|_| None,
            start_error: &|_| None,
        };
        let checked = levada_config::check(&source, &surroundings);
        let mut settings = before.clone();
        let mut sites = checked.settings.ok_or(checked.report.to_string())?.sites;
        settings.sites[0].handling.access = sites.remove(0).handling.access;
        Ok::<Settings, String>(settings)
    };
    let settings = read().unwrap();
    let node = Running::start_with(settings, Some(SettingsReader(Box::new(read)))).await.unwrap();
    let at = node.addresses.clients[0];
    let reload = async || {
        let fields = [("Content-Type", "application/json"), ("Content-Length", "0")];
        let admin = node.addresses.admin.unwrap();
        Wire::saying(admin, head_of("POST", "/reload", &fields)).await.answer().await
    };
    let old = sign(&tokens(&key_file("a", &[("1", ONE)])), "/a", LATE);
    let new = sign(&tokens(&key_file("a", &[("2", TWO)])), "/a", LATE);
    let valid = async || [get(at, &old).await.status, get(at, &new).await.status];
    assert_eq!(valid().await, [200, 403]);
    write(&[("2", TWO), ("1", ONE)]);
    assert_eq!(reload().await.status, 200);
    assert_eq!(valid().await, [200, 200]);
    std::fs::remove_file(&keys).unwrap();
    let refused = reload().await;
    assert_eq!(refused.status, 422);
    let text = refused.text();
    assert!(text.contains("signed_urls.keys_file: cannot read") && text.contains("keys.json"));
    std::fs::write(&keys, "{").unwrap();
    let refused = reload().await;
    assert!(refused.status == 422 && refused.text().contains("keys.json"), "{refused:?}");
    assert_eq!(valid().await, [200, 200]);
    write(&[("2", TWO)]);
    assert_eq!(reload().await.status, 200);
    assert_eq!(valid().await, [403, 200]);
    settled(&node).await;
}
