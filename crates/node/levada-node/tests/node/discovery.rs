//! Members from DNS and from watched files, while requests run.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_config::{
    DnsSource, FileSource, NamedSource, Origin as OriginSetting, Peer, PeerTrust, Peering,
    Settings, SrvSource, SwitchServer, SystemFiles,
};
use levada_discovery::Source;
use levada_node::Running;
use serde_json::json;

use crate::{
    support::{dns::Dns, nodes::*, *},
    switch::{by, switch, switching},
};

/// Origins at these addresses of this machine, all at one port. They answer with their address and are not
/// stored.
async fn at_one_port(hosts: &[u8]) -> (Vec<Origin>, u16) {
    let ips = hosts.iter().map(|host| Ipv4Addr::new(127, 1, 3, *host));
    let free = |port: &u16| ips.clone().all(|ip| std::net::TcpListener::bind((ip, *port)).is_ok());
    let port = std::iter::repeat_with(|| reserve(1)[0].port()).find(free).unwrap();
    let mut origins = Vec::new();
    for ip in ips {
        let origin = Origin::at((ip, port).into()).await;
        origin.otherwise(move |_| Reply::ok(ip.to_string()).with("Cache-Control", "no-store"));
        origins.push(origin);
    }
    (origins, port)
}

/// A node before `app.test`, as this DNS server knows it.
fn before_app(dns: &Dns, port: u16) -> Settings {
    let mut settings = single(&[]);
    settings.sites[0].servers.origins = vec![named("app.test", port)];
    resolved(settings, dns)
}

fn resolved(mut settings: Settings, dns: &Dns) -> Settings {
    let resolver = &mut settings.discovery.resolver;
    resolver.servers = vec![dns.address];
    resolver.min_ttl = Duration::from_millis(100);
    resolver.timeout = Duration::from_millis(500);
    settings
}

fn named(host: &str, port: u16) -> OriginSetting {
    OriginSetting::Tcp { tls: false, host: host.to_owned(), port }
}

/// The value of one series, with its labels.
async fn series(node: &Running, series: &str) -> f64 {
    let page = admin(node, "/metrics").await.text();
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    value.unwrap_or(0.0)
}

async fn members(node: &Running, source: &str) -> f64 {
    series(node, &format!("levada_discovery_members{{source=\"{source}\"}}")).await
}

async fn until_members(node: &Running, source: &str, count: usize) {
    let wait = async {
        while members(node, source).await != count as f64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(wait).await;
}

/// Asks until dropped, and counts answers that are not good.
struct Asking {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(usize, Vec<Answer>)>,
}

impl Asking {
    fn begin(at: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let over = stop.clone();
        let task = tokio::spawn(async move {
            let (mut asked, mut bad) = (0, Vec::new());
            while !over.load(Relaxed) {
                let answer = get(at, "/asked").await;
                asked += 1;
                if answer.status != 200 {
                    bad.push(answer);
                }
            }
            (asked, bad)
        });
        Self { stop, task }
    }

    async fn end(self) -> usize {
        self.stop.store(true, Relaxed);
        let (asked, bad) = within(self.task).await.unwrap();
        assert!(bad.is_empty(), "{} of {asked}: {:?}", bad.len(), bad[0]);
        asked
    }
}

#[tokio::test]
async fn requests_are_spread_over_all_addresses_of_a_name() {
    let (origins, port) = at_one_port(&[1, 2]).await;
    let Some(dns) = Dns::start(&["app 60 A 127.1.3.1", "app 60 A 127.1.3.2"]).await else { return };
    let node = start(before_app(&dns, port)).await;
    let at = node.addresses.clients[0];
    for _ in 0..200 {
        assert_eq!(get(at, "/").await.status, 200);
    }
    let counts: Vec<usize> = origins.iter().map(Origin::total).collect();
    assert!(counts.iter().all(|count| (90..=110).contains(count)), "{counts:?}");
    let host = origins[0].asked("/")[0].header("host").unwrap();
    assert_eq!(host, HOST, "the client's own");
    let status = admin_json(&node, "/status").await;
    let listed = status["origins"].as_array().unwrap();
    let shown: Vec<_> = listed.iter().map(|o| (&o["name"], &o["address"], &o["source"])).collect();
    let (one, two) = (format!("127.1.3.1:{port}"), format!("127.1.3.2:{port}"));
    let source = format!("app.test:{port}");
    assert_eq!(
        shown[0],
        (&format!("{source}/127.1.3.1").into(), &one.into(), &source.clone().into())
    );
    assert_eq!(shown[1].1, &serde_json::Value::from(two));
    settled(&node).await;
}

/// A node before this origin, with files of its own in the place of those in `/etc`.
fn with_files(dns: &Dns, origin: OriginSetting, directory: &Path) -> Settings {
    let mut settings = single(&[]);
    settings.sites[0].servers.origins = vec![origin];
    let mut settings = resolved(settings, dns);
    let (hosts, resolv_conf) = (directory.join("hosts"), directory.join("resolv.conf"));
    settings.discovery.resolver.system = SystemFiles { hosts, resolv_conf };
    settings
}

#[tokio::test]
async fn file_of_hosts_goes_before_dns_and_is_followed() {
    let (origins, port) = at_one_port(&[1, 2, 3]).await;
    let Some(dns) = Dns::start(&["app 1 A 127.1.3.1"]).await else { return };
    let directory = tempfile::tempdir().unwrap();
    let hosts = |text: &[u8]| {
        fs::write(directory.path().join("new"), text).unwrap();
        fs::rename(directory.path().join("new"), directory.path().join("hosts")).unwrap();
    };
    // A comment in Latin-1 costs no entry.
    hosts(b"127.1.3.2 other App.Test # f\xfcr uns\n127.1.3.3 app.test\n");
    let node = start(with_files(&dns, named("app.test", port), directory.path())).await;
    let at = node.addresses.clients[0];
    for _ in 0..20 {
        assert_eq!(get(at, "/").await.status, 200);
    }
    let counts: Vec<usize> = origins.iter().map(Origin::total).collect();
    assert_eq!(counts[0], 0, "{counts:?}");
    assert!(counts[1] > 0 && counts[2] > 0, "{counts:?}");
    hosts(b"127.1.3.2 other\n");
    within(async { while get(at, "/").await.text() != "127.1.3.1" {} }).await;
    settled(&node).await;
}

#[tokio::test]
async fn short_name_is_completed_by_the_search_domains() {
    let (origins, port) = at_one_port(&[1]).await;
    let Some(dns) = Dns::start(&["app 1 A 127.1.3.1", "app.inner 1 A 127.1.3.2"]).await else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("resolv.conf"), "search wrong.test test\n").unwrap();
    let node = start(with_files(&dns, named("app", port), directory.path())).await;
    assert_eq!(get(node.addresses.clients[0], "/").await.text(), "127.1.3.1");
    assert_eq!(origins[0].total(), 1);
    settled(&node).await;
}

#[tokio::test]
async fn moved_record_is_followed_and_no_request_fails() {
    let (origins, port) = at_one_port(&[1, 2]).await;
    let Some(dns) = Dns::start(&["app 1 A 127.1.3.1"]).await else { return };
    let node = start(before_app(&dns, port)).await;
    let asking = Asking::begin(node.addresses.clients[0]);
    eventually("the first is asked", || origins[0].total() > 10).await;
    assert_eq!(origins[1].total(), 0);
    dns.change(&["app 1 A 127.1.3.2"]);
    eventually("the second is asked", || origins[1].total() > 10).await;
    let before = origins[0].total();
    eventually("only the second is asked", || origins[1].total() > 50).await;
    assert!(origins[0].total() <= before + 1);
    asking.end().await;
    settled(&node).await;
}

#[tokio::test]
async fn request_ends_at_the_address_that_left() {
    let (origins, port) = at_one_port(&[1, 2]).await;
    let gate = Gate::new();
    origins[0].on("/held", Reply::ok("held").after(&gate));
    let Some(dns) = Dns::start(&["app 0 A 127.1.3.1"]).await else { return };
    let node = start(before_app(&dns, port)).await;
    let at = node.addresses.clients[0];
    let held = tokio::spawn(async move { get(at, "/held").await });
    eventually("it is asked", || origins[0].hits("/held") == 1).await;
    dns.change(&["app 0 A 127.1.3.2"]);
    within(async { while get(at, "/").await.text() != "127.1.3.2" {} }).await;
    gate.open();
    assert_eq!(within(held).await.unwrap().text(), "held");
    settled(&node).await;
}

#[tokio::test]
async fn dead_address_of_a_name_fails_no_request() {
    let (origins, port) = at_one_port(&[1]).await;
    let Some(dns) = Dns::start(&["app 60 A 127.1.3.1", "app 60 A 127.1.3.9"]).await else { return };
    let mut settings = before_app(&dns, port);
    settings.sites[0].servers.health = watched();
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    for _ in 0..50 {
        assert_eq!(get(at, "/").await.status, 200);
        let post = head_of("POST", "/", &[("Content-Length", "1")]) + "x";
        assert_eq!(Wire::saying(at, post).await.answer().await.status, 200);
    }
    assert_eq!(origins[0].total(), 100);
    let down =
        format!("levada_upstream_healthy{{kind=\"origin\",server=\"app.test:{port}/127.1.3.9\"}}");
    let page = async || admin(&node, "/metrics").await.text();
    within(async { while !page().await.contains(&format!("{down} 0")) {} }).await;
    settled(&node).await;
}

#[tokio::test]
async fn name_that_vanishes_or_has_no_addresses_any_more_keeps_those_it_had() {
    let (origins, port) = at_one_port(&[1, 2]).await;
    let Some(dns) = Dns::start(&["app 0 A 127.1.3.1"]).await else { return };
    let node = start(before_app(&dns, port)).await;
    let asking = Asking::begin(node.addresses.clients[0]);
    let source = format!("app.test:{port}");
    let failures = format!("levada_discovery_failures_total{{source=\"{source}\"}}");
    for records in [&["other 0 A 127.1.3.2"][..], &["app 0 TXT nothing"]] {
        let before = series(&node, &failures).await;
        dns.change(records);
        within(async { while series(&node, &failures).await <= before {} }).await;
        assert_eq!(members(&node, &source).await, 1.0);
    }
    assert_eq!(origins[1].total(), 0);
    dns.change(&["app 0 A 127.1.3.2"]);
    eventually("it is followed again", || origins[1].total() > 0).await;
    asking.end().await;
    settled(&node).await;
}

#[tokio::test]
async fn dns_server_that_goes_away_takes_no_member_with_it() {
    let (origins, port) = at_one_port(&[1, 2]).await;
    let Some(mut dns) = Dns::start(&["app 0 A 127.1.3.1"]).await else { return };
    let node = start(before_app(&dns, port)).await;
    let asking = Asking::begin(node.addresses.clients[0]);
    dns.stop();
    let source = format!("app.test:{port}");
    let failures = format!("levada_discovery_failures_total{{source=\"{source}\"}}");
    within(async { while series(&node, &failures).await == 0.0 {} }).await;
    assert_eq!(members(&node, &source).await, 1.0);
    dns.revive().await;
    dns.change(&["app 0 A 127.1.3.2"]);
    eventually("it is followed again", || origins[1].total() > 0).await;
    asking.end().await;
}

#[tokio::test]
async fn answer_with_a_thousand_addresses_is_taken_whole() {
    let records: Vec<String> =
        (0..1000).map(|n| format!("app 60 A 127.2.{}.{}", n / 250, n % 250 + 1)).collect();
    let Some(dns) = Dns::start(&records.iter().map(String::as_str).collect::<Vec<_>>()).await
    else {
        return;
    };
    let node = start(before_app(&dns, 80)).await;
    until_members(&node, "app.test:80", 1000).await;
    let status = admin_json(&node, "/status").await;
    assert_eq!(status["origins"].as_array().unwrap().len(), 1000);
}

#[tokio::test]
async fn answers_that_change_at_every_query_grow_into_their_union() {
    let (_origins, port) = at_one_port(&[1, 2, 3, 4, 5, 6]).await;
    let answer = |from: usize| -> Vec<String> {
        (0..2).map(|n| format!("app 0 A 127.1.3.{}", (from + n) % 6 + 1)).collect()
    };
    let change = |dns: &Dns, from| {
        let records = answer(from);
        dns.change(&records.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let Some(dns) = Dns::start(&["app 0 A 127.1.3.1"]).await else { return };
    let node = start(before_app(&dns, port)).await;
    let asking = Asking::begin(node.addresses.clients[0]);
    let source = format!("app.test:{port}");
    let grown = async {
        for from in (0..).step_by(2) {
            change(&dns, from);
            tokio::time::sleep(Duration::from_millis(150)).await;
            if members(&node, &source).await == 6.0 {
                break;
            }
        }
    };
    within(grown).await;
    for from in [0, 2, 4] {
        change(&dns, from);
        tokio::time::sleep(Duration::from_millis(150)).await;
        assert_eq!(members(&node, &source).await, 6.0, "none leaves any more");
    }
    asking.end().await;
}

#[tokio::test]
async fn node_starts_without_its_sources_and_says_what_is_missing() {
    let (origins, port) = at_one_port(&[1]).await;
    let Some(dns) = Dns::start(&[]).await else { return };
    let mut settings = before_app(&dns, port);
    let other = Origin::start().await;
    other.on("/", Reply::ok("other"));
    settings.sites.push(site("other.test", &[other.address]));
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let answer = get(at, "/").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("no member of this site is known yet"), "{}", answer.text());
    let head = head_of("GET", "/", &[]).replace(HOST, "other.test");
    assert_eq!(Wire::saying(at, head).await.answer().await.text(), "other");
    let ready = get(node.addresses.admin.unwrap(), "/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains(&format!("app.test:{port}")), "{}", ready.text());
    dns.change(&["app 0 A 127.1.3.1"]);
    within(async { while get(at, "/").await.status != 200 {} }).await;
    assert_eq!(get(node.addresses.admin.unwrap(), "/readyz").await.status, 200);
    assert!(origins[0].total() > 0);
}

/// The servers of a switch come from this source or name.
fn switching_over(origin: OriginSetting) -> Settings {
    let mut settings = switching("round_robin", &[]);
    switch(&mut settings).servers = vec![SwitchServer {
        name: "app".to_owned(),
        origin,
        weight: 1.0,
        max_conns: 100,
        handoff: None,
        found: None,
    }];
    settings
}

fn from_source(settings: &mut Settings, source: Source) {
    settings.discovery.sources = vec![NamedSource { name: "app".into(), source }];
}

fn discovered() -> OriginSetting {
    OriginSetting::Discovered { tls: false, source: "app".into() }
}

#[tokio::test]
async fn policy_of_a_switch_chooses_among_all_addresses() {
    let (origins, port) = at_one_port(&[1, 2, 3]).await;
    let Some(dns) = Dns::start(&["app 0 A 127.1.3.1", "app 0 A 127.1.3.2"]).await else { return };
    let node = start(resolved(switching_over(named("app.test", port)), &dns)).await;
    let at = node.addresses.clients[0];
    for _ in 0..200 {
        assert_eq!(get(at, "/").await.status, 200);
    }
    assert_eq!([origins[0].total(), origins[1].total()], [100, 100]);
    let servers = admin_json(&node, "/servers").await;
    assert_eq!(servers[0]["servers"][0]["name"], "app/127.1.3.1");
    assert_eq!(servers[0]["servers"][0]["source"], format!("app.test:{port}"));
    let explained = admin_json(&node, &format!("/explain?url=http://{HOST}/")).await;
    for candidate in explained["candidates"].as_array().unwrap() {
        let ip = candidate["node"].as_str().unwrap().strip_prefix("app/").unwrap();
        assert_eq!(candidate["address"], format!("{ip}:{port}"));
    }
    dns.change(&["app 0 A 127.1.3.2", "app 0 A 127.1.3.3"]);
    within(async { while get(at, "/").await.text() != "127.1.3.3" {} }).await;
    let before = origins[0].total();
    let by = by(&get(at, "/").await);
    assert!(["app/127.1.3.2", "app/127.1.3.3"].contains(&by.as_str()), "{by}");
    get(at, "/").await;
    assert_eq!(origins[0].total(), before);
    settled(&node).await;
}

#[tokio::test]
async fn reload_keeps_members_and_their_connections() {
    let (origins, port) = at_one_port(&[1, 2]).await;
    let Some(dns) = Dns::start(&["app 0 A 127.1.3.1", "app 0 A 127.1.3.2"]).await else { return };
    let settings = before_app(&dns, port);
    let (node, file) = world(settings.clone()).await;
    let at = node.addresses.clients[0];
    let asking = Asking::begin(at);
    eventually("both are asked", || origins.iter().all(|origin| origin.total() > 5)).await;
    let before: Vec<usize> = origins.iter().map(Origin::connections).collect();
    let mut after = settings;
    after.limits.tries = 2;
    *file.lock().unwrap() = Ok(after);
    assert_eq!(reload(&node).await.status, 200);
    let totals: Vec<usize> = origins.iter().map(Origin::total).collect();
    let goes_on = || origins.iter().zip(&totals).all(|(o, before)| o.total() > before + 5);
    eventually("both are asked after it", goes_on).await;
    asking.end().await;
    assert_eq!(before, origins.iter().map(Origin::connections).collect::<Vec<_>>());
    settled(&node).await;
}

#[tokio::test]
async fn reload_to_another_name_waits_for_its_addresses() {
    let (origins, port) = at_one_port(&[1, 2]).await;
    let Some(dns) = Dns::start(&["app 60 A 127.1.3.1", "other 60 A 127.1.3.2"]).await else {
        return;
    };
    let settings = before_app(&dns, port);
    let (node, file) = world(settings.clone()).await;
    let asking = Asking::begin(node.addresses.clients[0]);
    eventually("the first is asked", || origins[0].total() > 0).await;
    let mut after = settings;
    after.sites[0].servers.origins = vec![named("other.test", port)];
    *file.lock().unwrap() = Ok(after);
    assert_eq!(reload(&node).await.status, 200);
    eventually("the second is asked", || origins[1].total() > 5).await;
    asking.end().await;
}

/// Origins that store nothing.
async fn unstored(count: usize) -> Vec<Origin> {
    let mut origins = Vec::new();
    for _ in 0..count {
        let origin = Origin::start().await;
        origin.otherwise(|_| Reply::ok("").with("Cache-Control", "no-store"));
        origins.push(origin);
    }
    origins
}

/// A DNS server that knows these origins as the service `_http._tcp.app.test`.
async fn with_service(
    origins: &[Origin],
    priorities_and_weights: &[(u16, u16)],
) -> Option<(Dns, Source)> {
    let all = origins.iter().zip(priorities_and_weights).enumerate();
    let records = all.flat_map(|(at, (origin, (priority, weight)))| {
        let port = origin.address.port();
        let srv = format!("_http._tcp.app 0 SRV {priority} {weight} {port} s{at}");
        [srv, format!("s{at} 0 A 127.0.0.1")]
    });
    let records: Vec<String> = records.collect();
    let dns = Dns::start(&records.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let name = "_http._tcp.app.test".into();
    let source = Source::Srv(SrvSource { name, resolver: Some(dns.address) });
    Some((dns, source))
}

#[tokio::test]
async fn srv_members_of_the_lowest_priority_get_all_requests_by_weight() {
    for of_switch in [false, true] {
        let mut origins = unstored(3).await;
        let service = with_service(&origins, &[(1, 30), (1, 10), (2, 1)]).await;
        let Some((dns, source)) = service else { return };
        let mut settings = if of_switch { switching_over(discovered()) } else { single(&[]) };
        if !of_switch {
            settings.sites[0].servers.origins = vec![discovered()];
        }
        from_source(&mut settings, source);
        settings.sites[0].servers.health = watched();
        settings.sites[0].servers.policy = policy("weighted_round_robin");
        let mut settings = resolved(settings, &dns);
        // The source has a DNS server of its own.
        settings.discovery.resolver.servers = vec![reserve(1)[0]];
        let node = start(settings.clone()).await;
        let at = node.addresses.clients[0];
        for _ in 0..200 {
            assert_eq!(get(at, "/").await.status, 200);
        }
        let counts: Vec<usize> = origins.iter().map(Origin::total).collect();
        assert_eq!(counts[2], 0, "{counts:?}");
        assert!((140..=160).contains(&counts[0]), "by weight: {counts:?}");
        settled(&node).await;
        drop(node);
        let last = origins.pop().unwrap();
        drop(origins);
        let node = start(settings).await;
        let at = node.addresses.clients[0];
        within(async { while get(at, "/").await.status != 200 {} }).await;
        assert!(last.total() > 0, "the next priority");
    }
}

fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn watched_file_is_followed_when_it_is_replaced_and_not_while_it_is_half_written() {
    let origins = unstored(2).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("members.json");
    let list = |at: usize| {
        format!(r#"[{{"targets": ["{}"], "labels": {{"job": "x"}}}}]"#, origins[at].address)
    };
    write(&path, &list(0));
    let mut settings = single(&[]);
    settings.sites[0].servers.origins = vec![discovered()];
    from_source(&mut settings, Source::File(FileSource { path: path.clone() }));
    let node = start(settings).await;
    let asking = Asking::begin(node.addresses.clients[0]);
    eventually("the first is asked", || origins[0].total() > 0).await;
    write(&path, &list(1));
    eventually("the second is asked", || origins[1].total() > 0).await;
    let failures = "levada_discovery_failures_total{source=\"app\"}";
    let mut known = series(&node, failures).await;
    let half = &list(0)[..20];
    for wrong in [half, "", "[]", r#"[{"targets": []}]"#] {
        // In place, as by a program that does not rename.
        fs::write(&path, wrong).unwrap();
        within(async { while series(&node, failures).await <= known {} }).await;
        known = series(&node, failures).await;
        assert_eq!(members(&node, "app").await, 1.0, "{wrong:?}");
    }
    fs::remove_file(&path).unwrap();
    within(async { while series(&node, failures).await <= known {} }).await;
    assert_eq!(members(&node, "app").await, 1.0);
    let before = origins[0].total();
    write(&path, &list(0));
    eventually("the first is asked again", || origins[0].total() > before).await;
    asking.end().await;
    settled(&node).await;
}

/// A node at this address, which knows itself and the source `nodes`.
fn node_of(source: Source, origin: SocketAddr, listen: SocketAddr, region: &str) -> Settings {
    let mut settings = single(&[origin]);
    settings.name = listen.ip().to_string();
    settings.discovery.sources = vec![NamedSource { name: "nodes".into(), source }];
    settings.peering = Some(Peering {
        listen,
        trust: PeerTrust::Secret(SECRET.into()),
        h2: false,
        peers: vec![Peer {
            name: settings.name.clone(),
            address: listen.to_string(),
            at: None,
            weight: 1.0,
            rtt: None,
            client_url: None,
            region: region.into(),
            public: Vec::new(),
        }],
        discovery: Some("nodes".into()),
        health: watched(),
        slow_start: Duration::ZERO,
        catch_up: Duration::from_secs(10),
    });
    settings
}

/// Nodes at these addresses, each of which knows itself and the source `nodes`.
async fn nodes_of(dns: &Dns, origin: SocketAddr, ips: &[Ipv4Addr], port: u16) -> Vec<Running> {
    let mut nodes = Vec::new();
    for ip in ips {
        let source = Source::Dns(DnsSource { host: "nodes.test".into(), port, resolver: None });
        let settings = node_of(source, origin, (*ip, port).into(), "");
        nodes.push(start(resolved(settings, dns)).await);
    }
    nodes
}

async fn peers_up(node: &Running) -> usize {
    let status = admin_json(node, "/status").await;
    status["peers"].as_array().unwrap().iter().filter(|peer| peer["up"] == true).count()
}

async fn until_peers_up(node: &Running, count: usize) {
    within(async { while peers_up(node).await != count {} }).await;
}

#[tokio::test]
async fn nodes_of_a_cluster_come_from_the_addresses_of_a_name() {
    let ips: Vec<Ipv4Addr> = (1..=3).map(|host| Ipv4Addr::new(127, 1, 4, host)).collect();
    let free = |port: &u16| ips.iter().all(|ip| std::net::TcpListener::bind((*ip, *port)).is_ok());
    let port = std::iter::repeat_with(|| reserve(1)[0].port()).find(free).unwrap();
    let origin = Origin::start().await;
    let two = ["nodes 0 A 127.1.4.1", "nodes 0 A 127.1.4.2"];
    let Some(dns) = Dns::start(&two).await else { return };
    let nodes = nodes_of(&dns, origin.address, &ips[..2], port).await;
    for node in &nodes {
        until_peers_up(node, 2).await;
    }
    let at = nodes[0].addresses.clients[0];
    for key in 0..40 {
        assert_eq!(get(at, &format!("/{key}")).await.status, 200);
    }
    let relayed = admin_json(&nodes[0], "/status").await["relayed"].as_u64().unwrap();
    assert!((5..=35).contains(&relayed), "each node has its part: {relayed}");
    let asking = Asking::begin(at);
    let third = nodes_of(&dns, origin.address, &ips[2..], port).await.remove(0);
    dns.change(&[&two[..], &["nodes 0 A 127.1.4.3"]].concat());
    for node in nodes.iter().chain([&third]) {
        until_peers_up(node, 3).await;
    }
    // A source that says nothing takes no node away.
    dns.change(&[]);
    within(async {
        while series(&nodes[0], "levada_discovery_failures_total{source=\"nodes\"}").await == 0.0 {}
    })
    .await;
    assert_eq!(peers_up(&nodes[0]).await, 3);
    dns.change(&two);
    for node in &nodes {
        until_peers_up(node, 2).await;
    }
    asking.end().await;
}

#[tokio::test]
async fn nodes_of_two_regions_come_from_a_file() {
    let ips: Vec<Ipv4Addr> = (1..=4).map(|host| Ipv4Addr::new(127, 1, 6, host)).collect();
    let free = |port: &u16| ips.iter().all(|ip| std::net::TcpListener::bind((*ip, *port)).is_ok());
    let port = std::iter::repeat_with(|| reserve(1)[0].port()).find(free).unwrap();
    let origin = Origin::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nodes.json");
    let region = |at: usize| if at < 2 { "eu" } else { "us" };
    let group = |(at, ip): (usize, &Ipv4Addr)| {
        let labels = json!({"name": ip.to_string(), "region": region(at)});
        json!({"targets": [format!("{ip}:{port}")], "labels": labels})
    };
    let groups: Vec<_> = ips.iter().enumerate().map(group).collect();
    write(&path, &json!(groups).to_string());
    let mut nodes = Vec::new();
    for (at, ip) in ips.iter().enumerate() {
        let source = Source::File(FileSource { path: path.clone() });
        let mut settings = node_of(source, origin.address, (*ip, port).into(), region(at));
        settings.sites[0].servers.shield = Some(shielded("us", "hrw"));
        nodes.push(start(settings).await);
    }
    for node in &nodes {
        until_peers_up(node, 4).await;
    }
    for key in 0..20 {
        let target = format!("/{key}");
        for (at, node) in nodes.iter().enumerate() {
            let answer = get(node.addresses.clients[0], &target).await;
            assert_eq!(answer.status, 200);
            let hop = answer.field("proxy-status");
            let others = if at < 2 { &ips[2..] } else { &ips[..2] };
            assert!(!others.iter().any(|ip| hop.contains(&format!("\"{ip}"))), "{at}: {hop}");
        }
        assert_eq!(origin.hits(&target), 1, "{target}");
    }
}

#[tokio::test]
async fn peer_whose_name_moves_is_followed() {
    let ips: Vec<Ipv4Addr> = (1..=2).map(|host| Ipv4Addr::new(127, 1, 5, host)).collect();
    let free = |port: &u16| ips.iter().all(|ip| std::net::TcpListener::bind((*ip, *port)).is_ok());
    let port = std::iter::repeat_with(|| reserve(1)[0].port()).find(free).unwrap();
    let origin = Origin::start().await;
    let Some(dns) = Dns::start(&["b 0 A 127.1.5.1"]).await else { return };
    let mut cluster = Cluster::start(2, origin.address, |settings| {
        let name = settings.name.clone();
        *settings = resolved(settings.clone(), &dns);
        let peering = settings.peering.as_mut().unwrap();
        peering.health = watched();
        peering.peers[1].address = format!("b.test:{port}");
        if name == "n1" {
            peering.listen = (ips[0], port).into();
        }
    })
    .await;
    until_peers_up(cluster.node(0), 2).await;
    cluster.stop(1).await;
    cluster.settings[1].peering.as_mut().unwrap().listen = (ips[1], port).into();
    cluster.revive(1).await;
    until_peers_up(cluster.node(0), 1).await;
    dns.change(&["b 0 A 127.1.5.2"]);
    until_peers_up(cluster.node(0), 2).await;
    let status = admin_json(cluster.node(0), "/status").await;
    assert_eq!(status["peers"][1]["address"], format!("127.1.5.2:{port}"));
}

#[tokio::test]
async fn switch_without_members_answers_503_and_is_explained() {
    let Some(dns) = Dns::start(&[]).await else { return };
    for entry in levada_policy::POLICIES.iter().flat_map(|file| file.iter()) {
        if !entry.runs_on_an_edge() {
            continue;
        }
        let mut settings = switching_over(named("app.test", 80));
        settings.sites[0].servers.policy = policy(entry.name);
        let node = start(resolved(settings, &dns)).await;
        assert_eq!(get(node.addresses.clients[0], "/").await.status, 503, "{}", entry.name);
        let explained = admin(&node, &format!("/explain?url=http://{HOST}/")).await;
        assert_eq!(explained.status, 200, "{}", entry.name);
        assert_eq!(admin(&node, "/servers").await.status, 200);
    }
}
