use levada_topology::{Role, build};

use super::*;
use crate::Scenario;

/// A network and its agenda, without a world.
struct Net {
    flow: Flow,
    agenda: Agenda<NetworkEvent>,
    now: Timestamp,
    events: u64,
}

impl Net {
    /// One server and `clients` clients, 15 ms apart.
    fn star(clients: usize, server_mbps: f64, client_mbps: f64) -> Self {
        let scenario = Scenario::default()
            .with([
                ("topology.name", "star"),
                ("topology.server_latency", "5ms"),
                ("topology.client_latency", "10ms"),
                ("topology.server_mbps", &server_mbps.to_string()),
                ("topology.client_mbps", &client_mbps.to_string()),
            ])
            .unwrap();
        let shape = levada_topology::Shape {
            servers: 1,
            slow: 0.0,
            slow_bits_per_second: 1,
            clients,
            seed: 1,
        };
        let topology = build("star", &scenario.topology.parameters, &shape).unwrap();
        let routes = topology.routes().unwrap();
        let [servers, clients] =
            [Role::Server, Role::Client].map(|role| topology.places_of(role).collect::<Vec<_>>());
        let tcp = IdleTcp::from(&scenario.network);
        let flow = Flow::new(tcp, &topology, &routes, &servers, &clients);
        Self { flow, agenda: Agenda::default(), now: Timestamp::ZERO, events: 0 }
    }

    fn send(&mut self, transfer: u32, client: u32, bytes: u64) {
        self.flow.open(transfer, client, 0, self.now, &mut self.agenda);
        self.flow.ready(transfer, bytes, bytes, self.now, &mut self.agenda);
    }

    /// All arrivals and their times.
    fn drain(&mut self) -> Vec<(Timestamp, Arrival)> {
        let mut all = Vec::new();
        while let Some((now, event)) = self.agenda.next() {
            let mut arrivals = Vec::new();
            self.events += 1;
            self.now = now;
            self.flow.handle(event, now, &mut self.agenda, &mut arrivals);
            all.extend(arrivals.into_iter().map(|arrival| (now, arrival)));
        }
        all
    }

    /// The end of each transfer, in the order of the ends.
    fn ends(&mut self) -> Vec<(u32, f64)> {
        let over = |(now, arrival): (Timestamp, Arrival)| match arrival {
            Arrival::Acknowledged(transfer) => Some((transfer, now.as_secs_f64())),
            _ => None,
        };
        self.drain().into_iter().filter_map(over).collect()
    }
}

#[test]
fn a_transfer_alone_takes_what_tcp_takes() {
    // 1 Gbit/s: a full segment of 576 bytes takes 4,608 ns at each of the two links, a packet
    // without payload 320 ns.
    let mut net = Net::star(1, 1000.0, 1000.0);
    net.send(0, 0, 1000);
    let back = 15_000_000 + 2 * 320;
    let round_trip = 15_000_000 + 2 * 4_608 + back;
    let received = round_trip + 2 * 4_608 + 15_000_000;
    let expected = [
        (Timestamp(3 * back), Arrival::Request(0)),
        (
            Timestamp(received + back),
            Arrival::LastByte {
                transfer: 0,
                first: Timestamp(15_000_000 + 2 * 4_608),
                at: Timestamp(received),
            },
        ),
        (Timestamp(received + back), Arrival::Acknowledged(0)),
    ];
    assert_eq!(net.drain(), expected);
    assert_eq!(net.events, 2, "an event for the request, one for the response");
}

#[test]
fn a_server_that_pauses_delays_what_follows() {
    let mut net = Net::star(1, 1000.0, 1000.0);
    // The second segment could go after a round trip; the server has it a second later than that.
    net.flow.open(0, 0, 0, net.now, &mut net.agenda);
    net.flow.ready(0, 536, 1072, net.now, &mut net.agenda);
    let round_trip = 30_000_000 + 2 * 4_608 + 2 * 320;
    net.now = Timestamp(round_trip + 1_000_000_000);
    net.flow.ready(0, 536, 1072, net.now, &mut net.agenda);
    let ends = net.ends();
    assert_eq!(ends[0].1, Timestamp(2 * round_trip + 1_000_000_000).as_secs_f64());
}

#[test]
fn a_full_link_carries_what_it_can_and_shares_it_evenly() {
    // Each alone could have 20 segments per 30 ms and more, 2.9 Mbit/s; together they get 10
    // Mbit/s.
    let mut net = Net::star(40, 10.0, 100.0);
    for transfer in 0..40 {
        net.send(transfer, transfer, 1_000_000);
    }
    let ends = net.ends();
    let wire = net.flow.tcp.on_the_wire(1_000_000);
    let all = 40.0 * wire as f64 * 8.0 / 10e6;
    let (first, last) = (ends[0].1, ends[39].1);
    assert!((last / all - 1.0).abs() < 0.01, "{last} {all}");
    assert!(first / last > 0.98, "equal transfers end together: {first} {last}");
    assert!(net.events < 40 * 12, "{} events", net.events);
}

#[test]
fn a_full_link_slows_nobody_elsewhere() {
    // Two clients, one behind a link of 0.5 Mbit/s that several transfers fill.
    let mut net = Net::star(2, 100.0, 10.0);
    let slow = net.flow.paths.path(0, 0).find(|hop| net.flow.links[*hop].capacity == 1_250_000);
    net.flow.links[slow.unwrap()].capacity = 62_500;
    for transfer in 0..4 {
        net.send(transfer, 0, 100_000);
    }
    net.send(4, 1, 100_000);
    let ends = net.ends();
    let mut alone = Net::star(2, 100.0, 10.0);
    alone.send(0, 1, 100_000);
    assert_eq!(ends[0], (4, alone.ends()[0].1));
    let all = 4.0 * net.flow.tcp.on_the_wire(100_000) as f64 / 62_500.0;
    assert!((ends[4].1 / all - 1.0).abs() < 0.02, "{:?} {all}", ends[4]);
}

#[test]
fn links_count_what_they_carried() {
    let mut net = Net::star(3, 10.0, 10.0);
    for transfer in 0..3 {
        net.send(transfer, transfer, 1_000 * u64::from(transfer + 1));
    }
    net.drain();
    let wire: u64 = (1..=3).map(|n| net.flow.tcp.on_the_wire(1_000 * n)).sum();
    let server = net.flow.paths.path(0, 0).next().unwrap();
    assert_eq!(net.flow.carried(server), wire);
    assert!(net.flow.links.iter().all(|link| link.asked == 0));
}
