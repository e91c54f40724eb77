//! The trust boundary: statements about clients count if they come from a trusted proxy.

use levada_config::{AccessLog, FetchFields, LogFormat, TrustedProxies};

use crate::support::*;

const CLAIMS: [(&str, &str); 9] = [
    ("Forwarded", "for=192.0.2.1"),
    ("X-Forwarded-For", "198.51.100.1, 192.0.2.1"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Port", "443"),
    ("X-Forwarded-Prefix", "/admin"),
    ("X-Real-IP", "192.0.2.1"),
    ("X-Original-URL", "/admin"),
    ("X-Rewrite-URL", "/admin"),
    ("X_Forwarded_For", "192.0.2.1"),
];

#[tokio::test]
async fn statements_of_a_client_end_at_the_node() {
    let (origin, node, at) = alone(|_| {}).await;
    get_with(at, "/a", &CLAIMS).await;
    let asked = &origin.asked("/a")[0];
    assert_eq!(asked.header("x-forwarded-for").unwrap(), "127.0.0.1");
    assert_eq!(asked.header("x-forwarded-proto").unwrap(), "http");
    assert_eq!(asked.header("x-forwarded-host").unwrap(), HOST);
    for (name, _) in CLAIMS {
        let name = name.to_ascii_lowercase();
        let is_own = matches!(name.as_str(), "x-forwarded-for" | "x-forwarded-proto");
        assert!(is_own || asked.header(&name).is_none(), "{name}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn statements_of_a_trusted_proxy_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (origin, node, at) = alone(|settings| {
        settings.trusted = vec![proxies("127.0.0.0/8", false)];
        settings.sites[0].handling.fetch_fields = FetchFields::All;
        settings.access_log = Some(AccessLog::to_file(path.clone(), LogFormat::json()));
    })
    .await;
    get_with(at, "/a", &CLAIMS).await;
    let asked = &origin.asked("/a")[0];
    assert_eq!(asked.header("x-forwarded-for").unwrap(), "198.51.100.1, 192.0.2.1, 127.0.0.1");
    assert_eq!(asked.header("x-forwarded-proto").unwrap(), "https");
    assert_eq!(asked.header("x-original-url").unwrap(), "/admin");
    assert_eq!(asked.header("x_forwarded_for").unwrap(), "192.0.2.1");
    assert!(!get(at, "/a").await.is_hit(), "http and https are two resources");
    settled(&node).await;
    node.stop().await;
    let log = std::fs::read_to_string(path).unwrap();
    let first: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(first["remote_addr"], "192.0.2.1");
    assert_eq!(first["scheme"], "https");
}

fn proxies(addresses: &str, proxy_protocol: bool) -> TrustedProxies {
    TrustedProxies { addresses: addresses.parse().unwrap(), proxy_protocol }
}

#[tokio::test]
async fn client_is_the_one_that_the_proxy_protocol_states() {
    let (origin, node, at) =
        alone(|settings| settings.trusted = vec![proxies("127.0.0.1", true)]).await;
    let stated = |header: &'static [u8], target: &'static str| async move {
        let mut wire = Wire::to(at).await;
        wire.send(header).await;
        wire.send(head_of("GET", target, &[("X-Forwarded-For", "203.0.113.9")])).await;
        wire.answer().await.status
    };
    let v1 = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n";
    assert_eq!(stated(v1, "/1").await, 200);
    assert_eq!(origin.asked("/1")[0].header("x-forwarded-for").unwrap(), "192.0.2.1");
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x02\xc6\x33\x64\x01\0\x01\0\x02";
    assert_eq!(stated(v2, "/2").await, 200);
    assert_eq!(origin.asked("/2")[0].header("x-forwarded-for").unwrap(), "192.0.2.2");
    let health_check = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    assert_eq!(stated(health_check, "/3").await, 200);
    assert_eq!(stated(b"", "/4").await, 0, "closed without a header");
    assert_eq!(stated(b"PROXY TCP4 nonsense\r\n", "/5").await, 0);
    settled(&node).await;
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_take_turns_by_their_own_addresses() {
    let (origin, node, at) = alone(|settings| {
        settings.trusted = vec![proxies("127.0.0.1", false)];
        settings.sites[0].servers.misses.at_once = 2;
        settings.sites[0].servers.misses.queue = 0;
    })
    .await;
    let gate = Gate::new();
    origin.script("/slow", {
        let gate = gate.clone();
        move |_| Reply::ok("late").with("cache-control", "no-store").after(&gate)
    });
    let ask = |client: &str, query: u32| {
        let target = format!("/slow?{query}");
        let fields = [("X-Forwarded-For", client.to_owned())];
        async move {
            let fields: Vec<_> = fields.iter().map(|(n, v)| (*n, v.as_str())).collect();
            get_with(at, &target, &fields).await.status
        }
    };
    let first = tokio::spawn(ask("192.0.2.1", 1));
    eventually("the first waits at the origin", || node.counts().misses == 1).await;
    assert_eq!(ask("192.0.2.1", 2).await, 503, "one client has at most half of the places");
    let other = tokio::spawn(ask("192.0.2.2", 3));
    eventually("another client gets the other place", || node.counts().misses == 2).await;
    gate.open();
    assert_eq!((first.await.unwrap(), other.await.unwrap()), (200, 200));
    settled(&node).await;
}
