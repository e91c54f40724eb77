//! Reloads that change more than sites: listeners, certificates, limits, logs, trust.

use std::{net::SocketAddr, time::Duration};

use levada_access::trust::TrustedProxies;
use levada_config::{AccessLog, Listener, LogFormat, Runtime, Settings};
use levada_node::Running;
use tokio::net::TcpStream;

use crate::support::{nodes::*, *};

/// Reloads these settings and returns what the node says has changed.
pub(crate) async fn change(node: &Running, file: &File, settings: &Settings) -> Vec<String> {
    *file.lock().unwrap() = Ok(settings.clone());
    let answer = reload(node).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let said: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
    serde_json::from_value(said["changed"].clone()).unwrap()
}

/// The reason why these settings are refused.
async fn refusal(node: &Running, file: &File, settings: &Settings) -> String {
    *file.lock().unwrap() = Ok(settings.clone());
    let answer = reload(node).await;
    assert_eq!(answer.status, 422, "{answer:?}");
    answer.text()
}

/// An address that nothing listens on.
pub(crate) fn free() -> SocketAddr {
    reserve(1)[0]
}

async fn refuses(at: SocketAddr) {
    within(async {
        while TcpStream::connect(at).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn renewed_certificate_is_shown_and_old_connections_go_on() {
    let (authority, other) = (secure::Authority::new(), secure::Authority::new());
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.listeners[0].tls = vec![authority.issue(&["a.test"])];
    let (node, file) = world(settings.clone()).await;
    let at = node.addresses.clients[0];
    let connect = async |authority: &secure::Authority| {
        secure::connect(at, "a.test", &authority.path(), &["http/1.1"], None).await
    };
    let shown = |stream: &tokio_rustls::client::TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let before = connect(&authority).await.unwrap();
    let first = shown(&before);
    let mut before = Wire::over(before);
    before.send(head_of("GET", "/1", &[])).await;
    assert_eq!(before.answer().await.text(), "/1");
    // Its files are written again: nothing in the settings differs.
    authority.issue(&["a.test"]);
    assert!(change(&node, &file, &settings).await.is_empty());
    assert_ne!(shown(&connect(&authority).await.unwrap()), first);
    before.send(head_of("GET", "/2", &[])).await;
    assert_eq!(before.answer().await.text(), "/2");
    // A file that cannot be used changes nothing.
    let key = settings.listeners[0].tls[0].key.clone();
    std::fs::write(&key, "no key").unwrap();
    assert!(refusal(&node, &file, &settings).await.contains(key.to_str().unwrap()));
    assert!(connect(&authority).await.is_ok() && connect(&other).await.is_err());
    drop(before);
    settled(&node).await;
}

#[tokio::test]
async fn listeners_open_and_close_while_connections_stay() {
    let origin = Origin::start().await;
    for runtime in [Runtime::Shared(1), Runtime::PerCore(3)] {
        let mut settings = single(&[origin.address]);
        settings.runtime = runtime;
        let (first, second) = (free(), free());
        settings.listeners[0].address = first;
        let (node, file) = world(settings.clone()).await;
        let mut kept = Wire::saying(first, head_of("GET", "/1", &[])).await;
        assert_eq!(kept.answer().await.text(), "/1");
        settings.listeners.push(Listener::plain(second));
        assert_eq!(change(&node, &file, &settings).await, ["[[listen]]"]);
        for at in [first, second, first, second] {
            assert_eq!(get(at, "/2").await.text(), "/2");
        }
        settings.listeners.remove(0);
        change(&node, &file, &settings).await;
        refuses(first).await;
        kept.send(head_of("GET", "/3", &[])).await;
        assert_eq!(kept.answer().await.text(), "/3");
        assert_eq!(get(second, "/4").await.text(), "/4");
        drop(kept);
        settled(&node).await;
    }
}

#[tokio::test]
async fn requests_under_way_meet_no_error_while_everything_is_reloaded() {
    let authority = secure::Authority::new();
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.listeners[0].address = free();
    let at = settings.listeners[0].address;
    let (node, file) = world(settings.clone()).await;
    let load = tokio::spawn(async move {
        for n in 0..300 {
            assert_eq!(get(at, &format!("/{n}")).await.text(), format!("/{n}"));
        }
    });
    let mut secured = Listener::plain(free());
    secured.tls = vec![authority.issue(&["a.test"])];
    let mut reloads = 0;
    while !load.is_finished() {
        settings.listeners.truncate(1);
        if reloads % 2 == 0 {
            settings.listeners.push(secured.clone());
        }
        settings.limits.capacity = 3000 + reloads;
        change(&node, &file, &settings).await;
        reloads += 1;
    }
    load.await.unwrap();
    assert!(reloads > 1);
    settled(&node).await;
}

#[tokio::test]
async fn limits_log_and_trust_change_for_the_next_request() {
    let origin = Origin::start().await;
    let directory = tempfile::tempdir().unwrap();
    let log = |name: &str| directory.path().join(name);
    let logged = |name| Some(AccessLog::to_file(log(name), LogFormat::combined()));
    let mut settings = single(&[origin.address]);
    settings.access_log = logged("a.log");
    let (node, file) = world(settings.clone()).await;
    let at = node.addresses.clients[0];
    get(at, "/first").await;
    settings.access_log = logged("b.log");
    settings.trusted =
        vec![TrustedProxies { addresses: "127.0.0.1".parse().unwrap(), proxy_protocol: false }];
    settings.limits.capacity = 1;
    settings.cache.memory = 64 << 20;
    let changes = change(&node, &file, &settings).await;
    assert_eq!(changes, ["[[trusted]]", "cache.memory", "[limits]", "[log]"]);
    get_with(at, "/second", &[("X-Forwarded-For", "192.0.2.7")]).await;
    let lines = |name| std::fs::read_to_string(log(name)).unwrap_or_default();
    eventually("it is logged", || lines("b.log").contains("/second")).await;
    assert!(lines("b.log").starts_with("192.0.2.7 "), "{}", lines("b.log"));
    assert!(lines("a.log").contains("/first") && !lines("a.log").contains("/second"));
    let gate = Gate::new();
    origin.on("/held", Reply::ok("held").after(&gate));
    let held = tokio::spawn(async move { get(at, "/held").await });
    eventually("it is asked", || origin.hits("/held") == 1).await;
    assert_eq!(get(at, "/third").await.status, 503, "the node is full");
    settings.limits.capacity = 100;
    change(&node, &file, &settings).await;
    assert_eq!(get(at, "/third").await.text(), "/third");
    gate.open();
    assert_eq!(within(held).await.unwrap().text(), "held");
    settled(&node).await;
}

#[tokio::test]
async fn number_of_connections_changes_also_while_more_are_open() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.limits.connections = 8;
    let (node, file) = world(settings.clone()).await;
    let at = node.addresses.clients[0];
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut wire = Wire::saying(at, head_of("GET", "/a", &[])).await;
        assert_eq!(wire.answer().await.status, 200);
        open.push(wire);
    }
    let is_served = async || {
        let mut wire = Wire::saying(at, head_of("GET", "/a", &[])).await;
        wire.answer().await.status == 200
    };
    assert!(!is_served().await, "half of the places are one client's");
    settings.limits.connections = 2;
    change(&node, &file, &settings).await;
    for wire in &mut open {
        wire.send(head_of("GET", "/b", &[])).await;
        assert_eq!(wire.answer().await.status, 200, "it stays open");
    }
    open.clear();
    settings.limits.connections = 100;
    change(&node, &file, &settings).await;
    settled(&node).await;
    for _ in 0..10 {
        let mut wire = Wire::saying(at, head_of("GET", "/a", &[])).await;
        assert_eq!(wire.answer().await.status, 200);
        open.push(wire);
    }
    drop(open);
    settled(&node).await;
}

#[tokio::test]
async fn settings_that_need_a_restart_are_named_and_nothing_changes() {
    let origin = Origin::start().await;
    let before = single(&[origin.address]);
    let (node, file) = world(before.clone()).await;
    let at = node.addresses.clients[0];
    let mut after = before.clone();
    after.sites.push(site("b.test", &[origin.address]));
    after.name = "other".to_owned();
    after.cache.block *= 2;
    let refused = refusal(&node, &file, &after).await;
    assert!(refused.contains("`name`, [cache] except `memory`"), "{refused}");
    // The address is taken, though not by this node.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut after = before.clone();
    after.sites.push(site("b.test", &[origin.address]));
    let address = taken.local_addr().unwrap();
    after.listeners.push(Listener::plain(address));
    let refused = refusal(&node, &file, &after).await;
    assert!(refused.contains(&address.to_string()), "{refused}");
    assert_eq!(get_with(at, "/x", &[("Host", "b.test")]).await.status, 421);
    drop(taken);
    let changes = change(&node, &file, &after).await;
    assert_eq!(changes, ["[[listen]]", "site b.test added"]);
    assert_eq!(get_with(address, "/x", &[("Host", "b.test")]).await.text(), "/x");
    settled(&node).await;
}

#[tokio::test]
async fn limits_change_for_servers_that_stay() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    let (node, file) = world(settings.clone()).await;
    let at = node.addresses.clients[0];
    let gate = Gate::new();
    origin.on("/late", Reply::ok("late").after(&gate));
    settings.limits.response_timeout = Duration::from_millis(50);
    settings.limits.tries = 1;
    change(&node, &file, &settings).await;
    assert_eq!(get(at, "/late").await.status, 504);
    gate.open();
    settled(&node).await;
}

#[tokio::test]
async fn sites_stay_or_change_by_what_they_say_and_many_are_counted() {
    let origins = [Origin::start().await, Origin::start().await];
    origins.iter().for_each(|origin| origin.otherwise(|_| Reply::cached("x")));
    // Sites with the servers of a route, which belong to no site but theirs.
    let text = |ttl: Ttls<'_>| -> String {
        let site = |n: usize| {
            format!(
                "[[site]]\nhosts = '{n}.test'\norigin = 'http://{}'\ndefault_ttl = '{}m'\n
                 response_headers = {{ set = {{ X-TTL = '{}' }} }}\n
                 [[site.route]]\npath = '/api/*'\norigin = 'http://{}'\n",
                origins[0].address,
                ttl(n),
                ttl(n),
                origins[1].address
            )
        };
        (0..SITES).map(site).collect()
    };
    let with = |ttl: Ttls<'_>| Settings {
        sites: nodes::sites(&text(ttl)),
        ..single(&[origins[0].address])
    };
    let (node, file) = world(with(&|_| 1)).await;
    let at = node.addresses.clients[0];
    let ttl = |n: usize| async move {
        let host = format!("{n}.test");
        let own = get_with(at, "/", &[("Host", &host)]).await;
        let of_route = get_with(at, "/api/a", &[("Host", &host)]).await;
        assert_eq!((own.status, of_route.status), (200, 200), "{host}");
        assert_eq!(own.header("x-ttl"), of_route.header("x-ttl"), "{host}");
        own.header("x-ttl").expect("it is set").parse::<usize>().expect("a number")
    };
    let mut requests = 0;
    let three = ["0", "1", "7"].map(|n| format!("site {n}.test"));
    let steps: [(Ttls<'_>, Vec<String>); 4] = [
        (&|_| 1, Vec::new()),
        (&|n| if n == 7 { 2 } else { 1 }, vec!["site 7.test".to_owned()]),
        (&|n| if n < 2 { 3 } else { 1 }, three.to_vec()),
        (&|_| 4, vec![format!("sites: {SITES} changed")]),
    ];
    for (ttls, said) in steps {
        assert_eq!(change(&node, &file, &with(ttls)).await, said);
        for n in 0..SITES {
            assert_eq!(ttl(n).await, ttls(n), "{n}");
            requests += 1;
        }
    }
    assert!(requests > origins[0].total() && requests > origins[1].total());
    settled(&node).await;
}

/// The lifetime that a site states, by its number.
type Ttls<'a> = &'a dyn Fn(usize) -> usize;

const SITES: usize = 20;

#[tokio::test]
async fn server_of_a_site_that_stays_is_watched_on() {
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.sites[0].servers.health = watched();
    settings.sites[0].servers.health.path = Some("/up".to_owned());
    let (node, file) = world(settings.clone()).await;
    settings.sites.insert(0, site("first.test", &[origin.address]));
    assert_eq!(change(&node, &file, &settings).await, ["site first.test added"]);
    origin.on("/up", Reply::ok("").status("503 Service Unavailable"));
    let down = || async { admin(&node, "/readyz").await.status == 503 };
    within(async {
        while !down().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    settings.sites = vec![site("last.test", &[origin.address])];
    change(&node, &file, &settings).await;
    assert_eq!(admin(&node, "/readyz").await.status, 200);
    settled(&node).await;
}
