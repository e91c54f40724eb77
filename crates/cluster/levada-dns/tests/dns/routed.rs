//! Routed names: regions by network, health, fall-back, federations, changes under way.

use std::{
    net::UdpSocket,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_dns::{
    World,
    route::{DeepZones, Federations, NodeState, Regions, Tables, coverage_zones},
    wire::Name,
    zone::{Routed, Routing, Zone, ZoneFile},
};

use crate::support::{Running, ZONE, identity, node, query, routing, world, zone};

const COVERAGE: &str = r#"{"coverageZones": {
    "eu": {"network": ["198.51.100.0/25"], "network6": ["2001:db8:e::/48"]},
    "us": {"network": ["203.0.113.0/24", "198.51.100.64/26"]}}}"#;
const DEEP: &str =
    r#"{"deepCoverageZones": {"isp": {"network": ["203.0.113.128/25"], "caches": ["us-2"]}}}"#;
const FEDERATIONS: &str = r#"{"response": [{"deliveryService": "fed", "mappings": [
    {"cname": "cache.isp.test.", "ttl": 90, "resolve4": ["198.51.100.16/28"]}]}]}"#;

fn tables() -> Tables {
    let mut regions = Regions::new(["eu", "us", "ap"]);
    Tables {
        coverage: coverage_zones(COVERAGE.as_bytes(), &mut regions).unwrap(),
        deep: DeepZones::read(DEEP.as_bytes()).unwrap(),
        federations: Federations::read(FEDERATIONS.as_bytes()).unwrap(),
        regions,
        fallbacks: vec![vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1]],
        ..Tables::default()
    }
}

fn nodes() -> Vec<NodeState> {
    vec![
        node("eu-1", "eu", "192.0.2.1", "2001:db8::1"),
        node("eu-2", "eu", "192.0.2.2", "2001:db8::2"),
        node("us-1", "us", "192.0.2.11", ""),
        node("us-2", "us", "192.0.2.12", ""),
        node("ap-1", "ap", "192.0.2.21", "2001:db8::21"),
    ]
}

fn routed_world() -> Arc<World> {
    let tables = tables();
    let apex: Name = "a.test".parse().unwrap();
    let fed = tables.federations.service(&apex.below("edge.fed").unwrap(), &apex);
    world(
        vec![zone("a.test", ZONE, &[("www", None), ("*.live", None), ("edge.fed", fed)], None)],
        tables,
    )
}

fn running() -> Running {
    let running = Running::start(routed_world(), identity(), 10);
    running.server.set_nodes(nodes());
    running
}

/// The addresses in an answer of kdig, and its scope.
fn asked(running: &Running, line: &str) -> Option<(String, String)> {
    let short = running.kdig(&format!("{line} +short"))?;
    let whole = running.kdig(line)?;
    let scope = whole
        .lines()
        .find_map(|line| line.split_once("CLIENT-SUBNET: "))
        .map(|(_, scope)| scope.trim());
    Some((short.trim().to_owned(), scope.unwrap_or_default().to_owned()))
}

#[test]
fn client_gets_nodes_of_its_region_with_the_scope_of_the_answer() {
    let running = running();
    let eu = ["192.0.2.1", "192.0.2.2"];
    let us = ["192.0.2.11", "192.0.2.12"];
    for (subnet, nodes, scope) in [
        ("198.51.100.32/32", &eu[..], "198.51.100.32/32/26"),
        ("198.51.100.64/30", &us, "198.51.100.64/30/26"),
        ("203.0.113.1/24", &us, "203.0.113.0/24/25"),
        ("2001:db8:e::1/56", &eu, "2001:db8:e::/56/48"),
        // No table has it: the default region, as far as no table has anything.
        ("10.0.0.0/8", &eu, "10.0.0.0/8/1"),
    ] {
        let Some((answer, found)) = asked(&running, &format!("www.a.test A +subnet={subnet}"))
        else {
            return;
        };
        assert!(nodes.contains(&answer.as_str()), "{subnet}: {answer}");
        assert_eq!(found, scope);
    }
    // Without a network of the client, the resolver's address counts.
    let (answer, _) = asked(&running, "www.a.test A").unwrap();
    assert!(eu.contains(&answer.as_str()), "{answer}");
    // A client that wants no answer of its own states a network of no bits.
    let (_, scope) = asked(&running, "www.a.test A +subnet=0.0.0.0/0").unwrap();
    assert_eq!(scope, "0.0.0.0/0/0");
}

#[test]
fn deep_zone_federation_wildcard_and_https_are_answered() {
    let running = running();
    let Some((deep, scope)) = asked(&running, "www.a.test A +subnet=203.0.113.200/32") else {
        return;
    };
    assert_eq!((deep.as_str(), scope.as_str()), ("192.0.2.12", "203.0.113.200/32/25"));
    let (federated, scope) =
        asked(&running, "edge.fed.a.test AAAA +subnet=198.51.100.17/32").unwrap();
    assert_eq!((federated.as_str(), scope.as_str()), ("cache.isp.test.", "198.51.100.17/32/28"));
    let (own, _) = asked(&running, "edge.fed.a.test A +subnet=198.51.100.33/32").unwrap();
    assert!(own.starts_with("192.0.2."), "{own}");
    let (below, _) = asked(&running, "x.y.live.a.test A +subnet=198.51.100.32/32").unwrap();
    assert!(below.starts_with("192.0.2."), "{below}");
    let https = running.kdig("www.a.test HTTPS +subnet=198.51.100.32/32").unwrap();
    for text in ["1 .", "alpn=h3,h2", "ipv4hint=192.0.2.", "ipv6hint=2001:db8::"] {
        assert!(https.contains(text), "{text} in {https}");
    }
    // No node of the region has an address of this family: the next region answers.
    let (far, _) = asked(&running, "www.a.test AAAA +subnet=203.0.113.1/24").unwrap();
    assert_eq!(far, "2001:db8::21");
}

#[test]
fn name_stays_on_its_node_until_the_node_is_gone_and_a_dead_region_is_left() {
    let running = running();
    let ask = || asked(&running, "www.a.test A +subnet=198.51.100.32/32").map(|(answer, _)| answer);
    let Some(first) = ask() else { return };
    assert!((0..5).all(|_| ask().unwrap() == first));
    let change = |change: &dyn Fn(&mut NodeState)| {
        let mut nodes = nodes();
        nodes.iter_mut().for_each(change);
        running.server.set_nodes(nodes);
        ask().unwrap()
    };
    let is_first = |node: &NodeState| node.v4[0].to_string() == first;
    let other = if first == "192.0.2.1" { "192.0.2.2" } else { "192.0.2.1" };
    assert_eq!(change(&|node| node.draining = is_first(node)), other);
    assert_eq!(change(&|node| node.ready = !is_first(node)), other);
    assert_eq!(change(&|node| node.load = if is_first(node) { 0.9 } else { 0.3 }), other);
    assert_eq!(change(&|node| node.load = if is_first(node) { 0.4 } else { 0.1 }), first);
    let next = change(&|node| node.ready = &*node.region != "eu");
    assert!(["192.0.2.11", "192.0.2.12"].contains(&next.as_str()), "{next}");
    assert_eq!(
        change(&|node| node.ready = false),
        first,
        "all nodes of the region rather than none"
    );
    running.server.set_nodes(Vec::new());
    let none = running.kdig("www.a.test A").unwrap();
    assert!(none.contains("status: NOERROR") && none.contains("ANSWER: 0"), "{none}");
}

#[test]
fn no_query_is_lost_while_zones_and_nodes_change() {
    let running = running();
    let done = AtomicBool::new(false);
    let message = query("www.a.test", 1);
    let answered = std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            for number in 0..200 {
                running.server.set_world(routed_world(), identity());
                let mut nodes = nodes();
                nodes[number % 5].draining = true;
                running.server.set_nodes(nodes);
            }
            done.store(true, Relaxed);
        });
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut answered = 0;
        while !done.load(Relaxed) {
            socket.send_to(&message, running.address).unwrap();
            let mut answer = [0; 512];
            socket.recv(&mut answer).expect("each query is answered");
            assert_eq!((answer[3] & 15, answer[7]), (0, 1));
            answered += 1;
        }
        changing.join().unwrap();
        answered
    });
    assert!(answered > 100, "{answered}");
}

#[test]
fn hot_name_is_spread_over_the_region_and_a_client_keeps_its_node() {
    let apex: Name = "a.test".parse().unwrap();
    let file = ZoneFile { path: Path::new("zone"), text: ZONE.as_bytes() };
    let name = apex.below("*.live").unwrap();
    let routes = vec![Routed { name, federation: None, stated: true, of_node: false }];
    // Four queries within a window of four seconds are one more node.
    let hot = Routing { hot_rate: 1, ..routing() };
    let zone = Zone::new(apex.clone(), file.records(&apex).unwrap(), routes, hot, None).unwrap();
    let running = Running::start(world(vec![zone], tables()), identity(), 10);
    running.server.set_nodes(nodes());
    let ask = |name: &str, client: u8| {
        // The network of the client, which no table has: 10.0.x.1/32.
        let subnet = [0, 8, 0, 8, 0, 1, 32, 0, 10, 0, client, 1];
        let opt = [&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12][..], &subnet].concat();
        let mut message = [query(name, 1), opt].concat();
        message[11] = 1;
        let answer = running.ask(&message).expect("an answer");
        answer[query(name, 1).len() + 15]
    };
    for cold in (0..20).map(|at| format!("n{at}.live.a.test")) {
        let first = ask(&cold, 1);
        assert_eq!([ask(&cold, 2), ask(&cold, 3)], [first; 2], "{cold}");
    }
    let pass = || (1..60).map(|client| ask("hot.live.a.test", client)).collect::<Vec<_>>();
    let is_spread = |_: &u8| {
        let all = pass();
        all.contains(&1) && all.contains(&2) && all == pass()
    };
    assert!((0..50).any(|turn| is_spread(&turn)));
}
