//! A node that is a name server too: docs/operate/dns.md.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use levada_config::{DnsSettings, Settings, TrustedProxies};
use levada_dns::{
    HttpListener, World,
    rate::RateLimit,
    redirect::Redirects,
    route::{Regions, Tables, coverage_zones},
    serve::TcpLimits,
    wire::Name,
    zone::{Routed, Routing, Zone, ZoneFile, Zones},
};
use tokio::net::UdpSocket;

use crate::support::{nodes::*, *};

/// A zone of which `www` is routed, and `text` has this record.
fn world(text: &str) -> Arc<World> {
    let apex: Name = "cdn.test".parse().unwrap();
    let file =
        format!("$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\ntext TXT {text}\n");
    let records =
        ZoneFile { path: Path::new("zone"), text: file.as_bytes() }.records(&apex).unwrap();
    let routed = |name, of_node| Routed {
        name: apex.below(name).unwrap(),
        federation: None,
        stated: true,
        of_node,
    };
    let routes = vec![routed("www", false), routed("*.video", true)];
    let routing = Routing { ttl: 20, max_answers: 4, hot_rate: 0, alpn: Vec::new() };
    let mut zones = Zones::default();
    zones.add(Zone::new(apex, records, routes, routing, None).unwrap());
    let mut regions = Regions::new(["eu", "us"]);
    let coverage = br#"{"coverageZones": {"us": {"network": ["203.0.113.0/24"]}}}"#;
    let tables = Tables {
        coverage: coverage_zones(coverage, &mut regions).unwrap(),
        regions,
        fallbacks: vec![vec![0, 1], vec![1, 0]],
        ..Tables::default()
    };
    let redirects = Redirects::new(["go.video.cdn.test".to_owned()].into_iter());
    Arc::new(World { zones, tables, redirects })
}

fn dns(listen: SocketAddr) -> DnsSettings {
    DnsSettings {
        listen: vec![listen],
        threads: 1,
        tcp: TcpLimits { connections: 10, idle: Duration::from_secs(2) },
        nsid: b"n0".to_vec(),
        cookie_secret: None,
        http: Vec::new(),
        redirect_status: 302,
        limit: RateLimit { responses: 0, slip: 0, signatures: 0 },
        world: world("first"),
        version: 1,
    }
}

/// Nodes of two regions, of which `n0` answers queries.
fn regions(settings: &mut Settings, listen: SocketAddr) {
    if settings.name == "n0" {
        settings.dns = Some(dns(listen));
    }
    let peers = settings.peering.iter_mut().flat_map(|peering| &mut peering.peers);
    for (at, peer) in (0u8..).zip(peers) {
        peer.region = if at < 2 { "eu" } else { "us" }.into();
        peer.public = vec![Ipv4Addr::new(192, 0, 2, at).into()];
    }
}

/// Asks for records. Returns the code and the last byte of each record's data, sorted.
async fn ask(server: SocketAddr, name: &str, kind: u8) -> (u8, Vec<u8>) {
    let name: Name = name.parse().unwrap();
    let head = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let query = [&head, name.wire(), &[0, kind, 0, 1]].concat();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&query, server).await.unwrap();
    let mut answer = [0; 512];
    within(socket.recv(&mut answer)).await.unwrap();
    let mut rest = &answer[query.len()..];
    let mut last = Vec::new();
    for _ in 0..answer[7] {
        // Owners are pointers here.
        let length = 12 + usize::from(rest[11]);
        last.push(rest[length - 1]);
        rest = &rest[length..];
    }
    last.sort_unstable();
    (answer[3] & 15, last)
}

/// Waits until `www` is answered with these nodes.
async fn answered(server: SocketAddr, nodes: &[u8]) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (code, found) = ask(server, "www.cdn.test", 1).await;
        if code == 0 && found == nodes {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{found:?} instead of {nodes:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_drain_or_die_leave_the_answers_and_a_region_stands_in() {
    let (origin, server) = (Origin::start().await, reserve(1)[0]);
    let mut cluster = Cluster::start(4, origin.address, |settings| regions(settings, server)).await;
    answered(server, &[0, 1]).await;
    cluster.kill(1);
    answered(server, &[0]).await;
    let fields = [("Content-Type", "application/json"), ("Content-Length", "0")];
    let drain = async |path: &str| {
        let to = cluster.node(0).addresses.admin.unwrap();
        Wire::saying(to, head_of("POST", path, &fields)).await.answer().await
    };
    assert_eq!(drain("/drain").await.status, 200);
    answered(server, &[2, 3]).await;
    assert_eq!(drain("/drain?undo").await.status, 200);
    answered(server, &[0]).await;
    cluster.revive(1).await;
    answered(server, &[0, 1]).await;
    assert!(metric(cluster.node(0), "levada_dns_queries_total").await >= 5.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_replaces_zones_and_refuses_other_addresses() {
    let (origin, server) = (Origin::start().await, reserve(1)[0]);
    let mut cluster = Cluster::start(2, origin.address, |settings| regions(settings, server)).await;
    assert_eq!(ask(server, "text.cdn.test", 16).await, (0, vec![b't']));
    let change = |settings: &mut Settings| {
        let dns = settings.dns.as_mut().unwrap();
        (dns.world, dns.version) = (world("second"), 2);
    };
    let reloaded = cluster.reload(0, change).await;
    assert_eq!((reloaded.status, reloaded.text().contains("[dns]")), (200, true));
    assert_eq!(ask(server, "text.cdn.test", 16).await, (0, vec![b'd']));
    let elsewhere = reserve(1);
    let refused =
        cluster.reload(0, |settings| settings.dns.as_mut().unwrap().listen = elsewhere).await;
    assert!(refused.status == 422 && refused.text().contains("[dns]"), "{}", refused.text());
    assert_eq!(ask(server, "none.cdn.test", 1).await.0, 3);
}

/// Asks for a path of a routed name as this client, over a trusted proxy.
async fn asked_over(wire: &mut Wire, path: &str, client: &str) -> Answer {
    let fields = [("Host", "go.video.cdn.test:8080"), ("X-Forwarded-For", client)];
    wire.send(head_of("GET", path, &fields)).await;
    wire.answer().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_client_is_sent_to_the_node_that_dns_would_give_it() {
    let addresses = reserve(3);
    let (origin, authority) = (Origin::start().await, secure::Authority::new());
    let certificate = authority.issue(&["go.video.cdn.test"]);
    let settings = |settings: &mut Settings| {
        regions(settings, addresses[0]);
        settings.trusted = vec![TrustedProxies {
            addresses: "127.0.0.0/8".parse().unwrap(),
            proxy_protocol: false,
        }];
        if let Some(dns) = &mut settings.dns {
            let plain = HttpListener { address: addresses[1], tls: Vec::new(), alone: false };
            let tls = vec![certificate.clone()];
            dns.http = vec![plain, HttpListener { address: addresses[2], tls, alone: false }];
        }
    };
    let mut cluster = Cluster::start(3, origin.address, settings).await;
    answered(addresses[0], &[0, 1]).await;
    let mut wire = Wire::to(addresses[1]).await;
    let location = "http://n2.video.cdn.test:8080/x?a=1";
    let far = loop {
        let far = asked_over(&mut wire, "/x?a=1", "203.0.113.9").await;
        // Another region stands in until this one has answered the server.
        if far.field("location").starts_with("http://n2.") {
            break far;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((far.status, far.field("location").as_str()), (302, location));
    assert_eq!(ask(addresses[0], "n2.video.cdn.test", 1).await, (0, vec![2]));
    assert_eq!(ask(addresses[0], "n9.video.cdn.test", 1).await, (0, Vec::new()));
    let json = asked_over(&mut wire, "/x?format=json", "203.0.113.9").await;
    assert_eq!(json.field("content-type"), "application/json");
    assert_eq!(json.text(), r#"{"location":"http://n2.video.cdn.test:8080/x"}"#);
    let unknown = Wire::saying(addresses[1], head_of("GET", "/", &[])).await.answer().await;
    assert_eq!((unknown.status, unknown.text().as_str()), (404, ""));

    let mut second = None;
    for path in (0..50).map(|number| format!("/{number}")) {
        let location = asked_over(&mut wire, &path, "198.51.100.1").await.field("location");
        assert!(location.starts_with("http://n0.") || location.starts_with("http://n1."));
        second = second.or(location.starts_with("http://n1.").then_some(path));
    }
    let second = second.expect("both nodes of the region get paths");
    cluster.kill(1);
    answered(addresses[0], &[0]).await;
    let other = asked_over(&mut wire, &second, "198.51.100.1").await.field("location");
    assert!(other.starts_with("http://n0."), "{other}");
    let (name, path) = ("go.video.cdn.test", authority.path());
    let stream = secure::connect(addresses[2], name, &path, &["http/1.1"], None).await;
    let far = asked_over(&mut Wire::over(stream.unwrap()), "/x", "203.0.113.9").await;
    assert_eq!(far.field("location"), "https://n2.video.cdn.test:8080/x");
    assert!(metric(cluster.node(0), "levada_dns_redirects_total").await >= 4.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn network_is_of_the_region_whose_nodes_are_near_it() {
    let (origin, server) = (Origin::start().await, reserve(1)[0]);
    let cluster = Cluster::start(3, origin.address, |settings| regions(settings, server)).await;
    answered(server, &[0, 1]).await;
    // The default region is another one, and no table has this client.
    let mut client = Wire::to(cluster.client(2)).await;
    client.send(head_of("GET", "/x", &[])).await;
    assert_eq!(client.answer().await.status, 200);
    // The node looks at the connection when it rests.
    answered(server, &[2]).await;
    drop(client);
}
