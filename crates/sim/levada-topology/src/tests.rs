use super::*;

const SHAPE: Shape =
    Shape { servers: 64, slow: 0.0, slow_bits_per_second: 10_000_000, clients: 1_000, seed: 2002 };

fn built(name: &str, shape: Shape) -> Topology {
    build(name, &BTreeMap::new(), &shape).unwrap()
}

fn all_of(topology: &Topology, role: Role) -> Vec<PlaceIndex> {
    topology.places_of(role).collect()
}

const MS: f64 = 1e6;

#[test]
fn every_topology_connects_whatever_its_size() {
    for entry in TOPOLOGIES {
        for (servers, clients) in [(1, 1), (8, 12), (64, 1_000), (500, 3_000)] {
            let topology = built(entry.name, Shape { servers, clients, ..SHAPE });
            let routes = topology.routes().unwrap();
            let places = Role::ALL.map(|role| all_of(&topology, role));
            let [_, redirectors, servers_there, clients_there] = &places;
            assert_eq!((servers_there.len(), clients_there.len()), (servers, clients));
            for client in clients_there {
                // Clients are attached to their redirector.
                let nearest = routes.nearest(*client, redirectors).unwrap();
                assert_eq!(nearest, routes.hub(*client), "{}", entry.name);
            }
        }
    }
}

#[test]
fn a_path_leads_from_its_beginning_to_its_end_and_takes_its_latency() {
    for entry in TOPOLOGIES {
        let topology = built(entry.name, SHAPE);
        let routes = topology.routes().unwrap();
        for server in topology.places_of(Role::Server) {
            for client in topology.places_of(Role::Client).step_by(37) {
                let (mut there, mut back) = (Vec::new(), Vec::new());
                routes.path(client, server, &mut there);
                routes.path(server, client, &mut back);
                let mut at = client;
                let mut latency = 0;
                for hop in &there {
                    let link = topology.links[hop.link()];
                    assert!(at == link.a || at == link.b);
                    assert_eq!(*hop, Hop::new(hop.link() as u32, at == link.b));
                    at = if at == link.a { link.b } else { link.a };
                    latency += link.latency_ns;
                }
                assert_eq!(at, server);
                assert_eq!(latency, routes.latency_ns(client, server));
                assert_eq!(latency, routes.latency_ns(server, client));
                let reversed: Vec<_> = there.iter().rev().map(|hop| hop.back()).collect();
                assert_eq!(back, reversed);
            }
        }
    }
}

#[test]
fn shortest_is_shortest() {
    // Bellman and Ford's relaxations, which need no queue, agree with the trees.
    let topology = built("barabasi_albert", Shape { servers: 9, clients: 30, ..SHAPE });
    let routes = topology.routes().unwrap();
    for server in topology.places_of(Role::Server) {
        let mut distances = vec![u64::MAX; topology.places.len()];
        distances[server as usize] = 0;
        for _ in 0..topology.places.len() {
            for link in &topology.links {
                for (from, to) in [(link.a, link.b), (link.b, link.a)] {
                    let way = distances[from as usize].saturating_add(link.latency_ns);
                    let best = &mut distances[to as usize];
                    *best = way.min(*best);
                }
            }
        }
        for client in topology.places_of(Role::Client) {
            assert_eq!(routes.latency_ns(client, server), distances[client as usize]);
        }
    }
}

/// The round trips of the specification: its access links are the middle of their ranges.
#[test]
fn nsfnet_t3_has_the_round_trips_of_its_specification() {
    let topology = built("nsfnet_t3", SHAPE);
    let routes = topology.routes().unwrap();
    let (client_link, server_link) = (12.5, 2.0);
    let mut trips = Vec::new();
    for redirector in topology.places_of(Role::Redirector) {
        for server in topology.places_of(Role::Server).take(8) {
            let routers = routes.latency_ns(redirector, routes.hub(server)) as f64 / MS;
            trips.push(2.0 * (client_link + routers + server_link));
        }
    }
    trips.sort_by(f64::total_cmp);
    assert_eq!(trips.len(), 12 * 8);
    let median = (trips[47] + trips[48]) / 2.0;
    let mean = trips.iter().sum::<f64>() / 96.0;
    let rounded = [trips[0], median, mean, trips[95]].map(f64::round);
    assert_eq!(rounded, [44.0, 130.0, 127.0, 214.0]);
}

#[test]
fn nsfnet_t3_has_the_links_of_the_paper() {
    let topology = built("nsfnet_t3", SHAPE);
    // "Nearly 1,100 nodes": 16 + 20 routers, 64 servers, 1,000 clients.
    assert_eq!((topology.places.len(), topology.links.len()), (1_100, 20 + 20 + 64 + 1_000));
    let kind = |link: &Link| {
        let role = topology.places[link.a as usize].role;
        (role, link.a < 16)
    };
    for link in &topology.links {
        let (latency, mbps, queue) = match kind(link) {
            (_, true) => (8.0..=28.0, 2488.0..=2488.0, 1024),
            (Role::Server, _) => (1.0..=3.0, 100.0..=100.0, 512),
            (Role::Client, _) => (5.0..=20.0, 10.0..=45.0, 512),
            _ => (1.0..=10.0, 622.0..=622.0, 512),
        };
        assert!(latency.contains(&(link.latency_ns as f64 / MS)), "{link:?}");
        assert!(mbps.contains(&(link.bits_per_second as f64 / 1e6)), "{link:?}");
        assert_eq!(link.queue_packets, queue);
    }
    let routes = topology.routes().unwrap();
    let mut behind = BTreeMap::new();
    for server in topology.places_of(Role::Server) {
        *behind.entry(&*topology.places[routes.hub(server) as usize].name).or_insert(0) += 1;
    }
    let names = ["R0", "R1", "R10", "R15", "R19", "R7", "R8", "R9"];
    assert_eq!(behind.into_iter().collect::<Vec<_>>(), names.map(|name| (name, 8)));
}

#[test]
fn slow_servers_and_faster_uplinks_are_what_was_asked_for() {
    let given = [("bandwidth".to_owned(), ParameterValue::Integer(2))].into();
    let topology = build("nsfnet_t3", &given, &Shape { slow: 0.3, ..SHAPE }).unwrap();
    let with = |mbps: u64| {
        topology.links.iter().filter(|link| link.bits_per_second == mbps * 1_000_000).count()
    };
    // 19 of 64; the rest as before.
    assert_eq!((with(100), with(4976), with(1244)), (64 - 19, 20, 20));
    let slow = topology.links.iter().filter(|link| {
        topology.places[link.a as usize].role == Role::Server && link.bits_per_second == 10_000_000
    });
    assert_eq!(slow.count(), 19);
    for entry in TOPOLOGIES {
        let shape = Shape { slow: 0.5, slow_bits_per_second: 77, ..SHAPE };
        let links = built(entry.name, shape).links;
        assert_eq!(links.iter().filter(|link| link.bits_per_second == 77).count(), 32);
    }
}

#[test]
fn same_seed_same_topology() {
    for entry in TOPOLOGIES {
        let at = |seed| built(entry.name, Shape { seed, ..SHAPE });
        assert_eq!(at(1), at(1));
        let by_chance = !matches!(entry.name, "star" | "lan_cluster");
        assert_eq!(at(1) != at(2), by_chance, "{}", entry.name);
    }
}

#[test]
fn more_servers_leave_the_clients_as_they_are() {
    let clients = |servers| {
        let topology = built("nsfnet_t3", Shape { servers, ..SHAPE });
        let of_client = |link: &&Link| topology.places[link.a as usize].role == Role::Client;
        let links = topology.links.iter().filter(of_client);
        links.map(|link| (link.b, link.latency_ns, link.bits_per_second)).collect::<Vec<_>>()
    };
    assert_eq!(clients(8), clients(128));
}

#[test]
fn many_clients_cost_a_hub_each_and_no_paths() {
    let shape = Shape { servers: MAX_SERVERS, clients: MAX_CLIENTS, ..SHAPE };
    let topology = built("nsfnet_t3", shape);
    let routes = topology.routes().unwrap();
    assert_eq!(routes.kept(), 20 * 36);
    assert_eq!(topology.places.len(), 36 + MAX_SERVERS + MAX_CLIENTS);
}

#[test]
fn two_places_alone_find_each_other() {
    let mut topology = Topology::default();
    let roles = [Role::Client, Role::Redirector, Role::Server];
    let [client, redirector, server] = roles.map(|role| topology.place(role.as_str(), role));
    for (a, b) in [(client, redirector), (redirector, server)] {
        topology.links.push(Link { a, b, latency_ns: 5, bits_per_second: 1, queue_packets: 1 });
    }
    assert_eq!(topology.routes().unwrap().latency_ns(client, server), 10);
    topology.places[redirector as usize].role = Role::Client;
    assert_eq!(topology.routes().unwrap_err(), RouteError::Missing(Role::Redirector));
}

#[test]
fn what_a_topology_does_not_take_is_refused_with_what_it_takes() {
    let given = |pairs: &[(&str, i64)]| {
        pairs.iter().map(|(name, n)| ((*name).to_owned(), ParameterValue::Integer(*n))).collect()
    };
    let errors = build("star", &given(&[("sites", 3), ("queue", 0)]), &SHAPE).unwrap_err();
    let said: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "topology `star` has no parameter `sites`; it has server_latency, client_latency, server_mbps, client_mbps, queue",
            "`queue` must be a whole number from 1 to 1048576, not 0",
        ]
    );
    let errors = build("sun", &given(&[]), &SHAPE).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "there is no topology `sun`; there are nsfnet_t3, star, lan_cluster, barabasi_albert, hierarchical"
    );
}
