//! Downloads whose route moves: two servers at one address, and a router between them and the client.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use levada_client::{Client, ClientSettings, DisconnectReason, DownloadProgress, GetReport};
use levada_net::{
    lab::{self, Access, Host, Network},
    wire::{Shape, Wire},
};

use crate::{
    A, Case,
    server::{Asked, Reply, Server, Then, content, file},
};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const LENGTH: usize = 6_000_000;

struct World {
    client: Host,
    router: Host,
    servers: Vec<Server>,
    _wires: Vec<Wire>,
    _hosts: Vec<Host>,
    _network: Network,
}

impl World {
    /// A client behind 20 Mbit/s and 20 ms, so that a busy machine has two seconds for the moves; both
    /// servers answer alike.
    fn new(answer: impl Fn(&Asked) -> Reply + Clone + Send + Sync + 'static) -> Self {
        let mut network = Network::new(1);
        let (client, router) = (network.host("client").unwrap(), network.host("router").unwrap());
        let hosts = vec![network.host("a").unwrap(), network.host("b").unwrap()];
        let delay = Duration::from_millis(10);
        let link = Shape { rate: Some(20_000_000), delay, queue: 500, ..Shape::default() };
        let (mut wires, mut servers) = (Vec::new(), Vec::new());
        for (net, host) in (0..).zip([&client, &hosts[0], &hosts[1]]) {
            let end = |end: u8| Access::at(Ipv4Addr::new(10, 0, net, end));
            let far = if net == 0 { end(2).sending(link).receiving(link) } else { end(2) };
            let near = Access { router: true, ..end(1) };
            wires.push(network.join(&[(host, far), (&router, near)]).unwrap());
            host.ip(&[&format!("route add default via 10.0.{net}.1")]).unwrap();
        }
        router.forward().unwrap();
        for host in &hosts {
            host.ip(&[&format!("addr add {ADDRESS}/32 dev lo")]).unwrap();
            let listener = host.namespace().run(|| TcpListener::bind((ADDRESS, 80))).unwrap();
            servers.push(Server::behind(listener.unwrap(), answer.clone()));
        }
        let world =
            Self { client, router, servers, _wires: wires, _hosts: hosts, _network: network };
        world.lead_to(1);
        world
    }

    fn lead_to(&self, server: u8) {
        let route = format!("route replace {ADDRESS}/32 via 10.0.{server}.2");
        self.router.ip(&[&route]).unwrap();
    }

    /// A download during which the route moves twice.
    fn download(&self, case: &Case) -> GetReport {
        self.download_with_moves(case, &[2_000_000, 4_000_000])
    }

    /// A download during which the route moves as soon as so many bytes are on disk, and the other server was asked.
    fn download_with_moves(&self, case: &Case, moves: &[u64]) -> GetReport {
        let (progress, over) = (DownloadProgress::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let moves = scope.spawn(|| {
                let until = |done: &dyn Fn() -> bool| {
                    while !done() && !over.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                };
                for (&held, server) in moves.iter().zip([2, 1].into_iter().cycle()) {
                    until(&|| progress.held() >= held);
                    let asked = || self.servers[usize::from(server) - 1].asked().len();
                    let before = asked();
                    self.lead_to(server);
                    // A route that is back before a packet has met it has not moved.
                    until(&|| asked() > before);
                }
            });
            let (report, result) = self
                .client
                .namespace()
                .run(|| {
                    let runtime = tokio::runtime::Runtime::new().unwrap();
                    runtime.block_on(async {
                        let client = Client::new(ClientSettings::default()).unwrap();
                        client.get(&case.request, &progress).await
                    })
                })
                .unwrap();
            over.store(true, Relaxed);
            moves.join().unwrap();
            result.unwrap_or_else(|error| panic!("{error}: {report:#?}"));
            report
        })
    }
}

fn case() -> Case {
    Case::of(format!("http://{ADDRESS}/file").parse().unwrap())
}

fn lanes(report: &GetReport) -> usize {
    report.connections.iter().map(|c| c.lane).collect::<BTreeSet<_>>().len()
}

#[test]
fn download_goes_on_over_several_connections_after_a_move() {
    if levada_skip::possible(lab::possible()).is_none() {
        return;
    }
    let bytes = content(LENGTH, 1);
    let whole = bytes.clone();
    let world = World::new(move |asked| Reply(file(asked, &whole, A).0, Then::Go));
    for (spreads, length) in [(true, None), (false, None), (true, Some(LENGTH as u64))] {
        world.lead_to(1);
        let mut case = case();
        (case.request.spreads, case.request.length) = (spreads, length);
        let report = world.download(&case);
        case.assert_whole(&bytes);
        assert_eq!(lanes(&report) > 1, spreads, "{report:#?}");
        let is_reset = |reason| matches!(reason, DisconnectReason::Reset);
        assert!(report.connections.iter().any(|c| is_reset(c.ended)), "{report:#?}");
        assert_eq!((report.restarts, report.discarded), (0, 0));
        // No byte came twice.
        let sum: u64 = report.connections.iter().map(|c| c.bytes).sum();
        assert_eq!(sum, LENGTH as u64);
    }
    assert!(world.servers.iter().all(|server| server.asked().len() > 1));
}

#[test]
fn move_before_windows_are_open_is_followed_by_all_connections() {
    if levada_skip::possible(lab::possible()).is_none() {
        return;
    }
    let bytes = content(LENGTH, 1);
    let whole = bytes.clone();
    let world = World::new(move |asked| Reply(file(asked, &whole, A).0, Then::Go));
    let case = case();
    let report = world.download_with_moves(&case, &[1]);
    case.assert_whole(&bytes);
    assert!(lanes(&report) > 2, "{report:#?}");
    // Few ranges: a short one costs a round trip in which its connection brings nothing.
    let asked: usize = world.servers.iter().map(|server| server.asked().len()).sum();
    assert!(asked <= 60, "{asked} requests");
}

#[test]
fn server_that_misbehaves_after_a_move_gets_no_wrong_byte_into_the_file() {
    if levada_skip::possible(lab::possible()).is_none() {
        return;
    }
    let bytes = content(LENGTH, 1);
    for misbehaviour in ["429", "425", "416", "whole", "elsewhere", "other tag"] {
        let whole = bytes.clone();
        let world = World::new(move |asked| {
            let right = || Reply(file(asked, &whole, A).0, Then::Go);
            let head = |head: &str| {
                let head = format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n");
                Reply(head.into_bytes(), Then::Go)
            };
            let Some((start, _)) = asked.range() else { return right() };
            let is_every_other = asked.number % 2 == 1;
            match misbehaviour {
                "429" | "425" if is_every_other => head(&format!("{misbehaviour} No")),
                "416" if is_every_other => {
                    head(&format!("416 No\r\nContent-Range: bytes */{LENGTH}"))
                }
                "whole" => Reply(file(&Asked::default(), &whole, A).0, Then::Go),
                "elsewhere" if is_every_other => {
                    let range = ("Range".to_owned(), format!("bytes={}-", start + 1));
                    let other = Asked { fields: vec![range], ..asked.clone() };
                    Reply(file(&other, &whole, A).0, Then::Go)
                }
                // `If-Range` of another node's tag: the whole file.
                "other tag" => Reply(file(asked, &whole, "\"b\"").0, Then::Go),
                _ => right(),
            }
        });
        let mut case = case();
        // The last lane may get the 429 as well.
        case.request.retries = 100;
        let report = world.download(&case);
        case.assert_whole(&bytes);
        assert!(report.discarded <= LENGTH as u64, "{misbehaviour}: {report:#?}");
    }
}
