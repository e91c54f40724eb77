//! The whole network against numbers computed by hand.

use std::collections::BTreeMap;

use levada_topology::{Link as Wire, Role};
use levada_types::{Rng, Timestamp};

use super::*;
use crate::network::Network;

#[derive(Clone, Copy)]
enum TestEvent {
    Network(NetworkEvent),
    /// A client opens transfer n.
    Open(u32),
}

impl From<NetworkEvent> for TestEvent {
    fn from(event: NetworkEvent) -> Self {
        Self::Network(event)
    }
}

/// Clients on the left of a link, servers on the right; servers answer at once.
struct TestNetwork {
    agenda: Agenda<TestEvent>,
    network: Network,
    /// Client, server and size of each transfer.
    transfers: Vec<(u32, u32, u64)>,
    /// The arrivals and their times.
    seen: Vec<(u64, Arrival)>,
}

const MS: u64 = 1_000_000;

/// A link with a latency in ns, a rate in bits per second, and a queue.
type Figures = (u64, u64, u32);

fn topology(clients: &[Figures], middle: Figures, servers: &[Figures]) -> Topology {
    let mut topology = Topology::default();
    let left = topology.place("left", Role::Redirector);
    let right = topology.place("right", Role::Router);
    let join = |topology: &mut Topology, a, b, (latency_ns, bits_per_second, queue_packets)| {
        topology.links.push(Wire { a, b, latency_ns, bits_per_second, queue_packets });
    };
    join(&mut topology, left, right, middle);
    for (role, hub, all) in [(Role::Client, left, clients), (Role::Server, right, servers)] {
        for (n, figures) in all.iter().enumerate() {
            let place = topology.place(format!("{}-{n}", role.as_str()), role);
            join(&mut topology, place, hub, *figures);
        }
    }
    topology
}

impl TestNetwork {
    fn new(topology: &Topology, model: &NetworkModel) -> Self {
        let places = |role| topology.places_of(role).collect::<Vec<_>>();
        let routes = topology.routes().unwrap();
        let model = NetworkModel { fidelity: crate::Fidelity::Packet, ..model.clone() };
        let (servers, clients) = (places(Role::Server), places(Role::Client));
        Self {
            agenda: Agenda::default(),
            network: Network::new(&model, topology, &routes, &servers, &clients),
            transfers: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn ask(&mut self, at: u64, client: u32, server: u32, size: u64) {
        self.agenda.schedule(Timestamp(at), TestEvent::Open(self.transfers.len() as u32));
        self.transfers.push((client, server, size));
    }

    /// Plays until nothing is left or `end` is reached.
    fn play(&mut self, end: u64) {
        let mut arrivals = Vec::new();
        while let Some(now) = self.agenda.next_time(Timestamp(end)) {
            let Some((_, event)) = self.agenda.next() else { break };
            match event {
                TestEvent::Open(transfer) => {
                    let (client, server, _) = self.transfers[transfer as usize];
                    self.network.open(transfer, client, server, now, &mut self.agenda);
                }
                TestEvent::Network(event) => {
                    let until = Timestamp(u64::MAX);
                    self.network.handle(event, now, until, &mut self.agenda, &mut arrivals);
                }
            }
            for arrival in arrivals.drain(..) {
                self.seen.push((now.0, arrival));
                if let Arrival::Request(transfer) = arrival {
                    let size = self.transfers[transfer as usize].2;
                    self.network.ready(transfer, size, size, now, &mut self.agenda);
                }
            }
        }
    }

    /// The time of each transfer's last byte.
    fn last_bytes(&self) -> BTreeMap<u32, u64> {
        let last = |(at, arrival): &(u64, Arrival)| match arrival {
            Arrival::LastByte { transfer, .. } => Some((*transfer, *at)),
            _ => None,
        };
        self.seen.iter().filter_map(last).collect()
    }

    fn packets(&self) -> &PacketNetwork {
        match &self.network {
            Network::Packet(packets) => packets,
            Network::Flow(_) => panic!("these worlds are made of packets"),
        }
    }

    /// Bytes towards the clients over the middle link.
    fn carried(&self) -> u64 {
        self.network.carried(1)
    }
}

/// 8 Mbit/s: a byte takes a microsecond, a full segment with its headers 576.
const MIDDLE: Figures = (10 * MS, 8_000_000, 512);
/// Without latency, and a thousand times as fast: a byte takes a nanosecond.
const FAST: Figures = (0, 8_000_000_000, 512);

/// The delay of a full segment behind an acknowledgement: at the slow link it waits for the other's
/// 40 us, less its own time through the fast link.
const BEHIND_ACK: u64 = 40 + 40_000 - 576;

/// One transfer of `size` bytes over an idle path. Returns the times of the request at the server,
/// of the last byte at the client, and of its acknowledgement at the server.
fn alone(size: u64, model: &NetworkModel) -> [u64; 3] {
    let mut world = TestNetwork::new(&topology(&[FAST], MIDDLE, &[FAST]), model);
    world.ask(0, 0, 0, size);
    world.play(u64::MAX);
    let kinds: Vec<_> = world.seen.iter().map(|(_, arrival)| *arrival).collect();
    assert!(
        matches!(
            kinds[..],
            [Arrival::Request(0), Arrival::LastByte { .. }, Arrival::Acknowledged(0)]
        ),
        "{kinds:?}"
    );
    [0, 1, 2].map(|n| world.seen[n].0)
}

#[test]
fn an_unloaded_transfer_takes_what_can_be_worked_out() {
    // The end-to-end time of a packet of this size: two fast links and the slow one.
    let way = |bytes: u64| bytes + 1_000 * bytes + 10 * MS + bytes;
    let (bare, full) = (way(40), way(576));
    let request = bare + bare + way(340);
    let model = NetworkModel::default();
    // One segment follows the acknowledgement of the request.
    let begun = request + BEHIND_ACK;
    assert_eq!(alone(536, &model), [request, begun + full, begun + full + bare]);
    // Three: one, then two in a row, of which the second waits for the first at the slow link.
    let round = full + bare;
    assert_eq!(alone(3 * 536, &model)[1], begun + round + full + 576_000);
    // Fifteen and a half: rounds of 1, 2, 4, 8, and half a segment alone in a fifth. The first of
    // the eight clocks that round.
    assert_eq!(alone(15 * 536 + 268, &model)[1], begun + 4 * round + way(308));
    // A packet without payload ends an empty response.
    assert_eq!(alone(0, &model)[1], request + bare + 40 + 40_000 - 40);
}

/// Rounds of 1, 2, 4, 8, 16, 20, 20 ...: the window of 20 does not fill the path, whose round trip
/// of 20.7 ms holds 36 segments.
#[test]
fn a_long_transfer_goes_at_its_window_per_round_trip() {
    let segments = 31 + 20 * 100;
    let [request, last, _] = alone(segments * 536, &NetworkModel::default());
    let round_trip = 2 * (10 * MS) + (1_000 + 2) * (576 + 40);
    // Five rounds of slow start, a hundred of 20, the last of which spreads over 19 segments.
    let begun = request + BEHIND_ACK;
    let expected = begun + 104 * round_trip + (1_000 + 2) * 576 + 10 * MS + 19 * 576_000;
    assert_eq!(last, expected);
}

#[test]
fn a_window_that_fills_the_path_uses_all_of_the_link() {
    let model = NetworkModel { window: 60, ..NetworkModel::default() };
    let size = 10_000_000;
    let [request, last, _] = alone(size, &model);
    let wire = (size + size.div_ceil(536) * 40) as f64 * 1_000.0;
    // Slow start takes five round trips that are not full.
    let used = wire / (last - request) as f64;
    assert!((0.98..1.0).contains(&used), "{used}");
}

#[test]
fn delayed_acknowledgements_halve_the_packets_and_cost_the_first_round() {
    let every = NetworkModel::default();
    let second = NetworkModel { segments_per_ack: 2, ..NetworkModel::default() };
    let size = 7 * 536;
    // The first segment is alone: its acknowledgement waits 100 ms. Later rounds have pairs, and
    // windows of 2 and 3: 1, 2, then 3 segments, then the last one.
    let [_, plain, _] = alone(size, &every);
    let [_, delayed, _] = alone(size, &second);
    assert!(delayed > plain + 100 * MS && delayed < plain + 100 * MS + 45 * MS);
}

/// A trace worked out by hand. The slow link carries 8 Mbit/s with 10 ms, and on the server's side
/// three packets may wait. With an initial window of 8, segments 0 to 7 come within 5 us, while the
/// acknowledgement of the request is transmitted: 0, 1 and 2 wait, and five are lost.
#[test]
fn a_burst_into_a_short_queue_plays_out_as_by_hand() {
    let middle = (10 * MS, 8_000_000, 3);
    let model = NetworkModel { initial_window: 8, ..NetworkModel::default() };
    let mut world = TestNetwork::new(&topology(&[FAST], middle, &[FAST]), &model);
    world.ask(0, 0, 0, 9 * 536);
    world.play(u64::MAX);
    let way = |bytes: u64| 1_002 * bytes + 10 * MS;
    let request = 2 * way(40) + way(340);
    assert_eq!(world.seen[0], (request, Arrival::Request(0)));
    // 0, 1 and 2 arrive 576 us apart. ACK 1 opens the window to 9, for segment 8, which is the last.
    // It arrives after the gap: one duplicate of ACK 3. Three never come, so 3 waits for the timeout,
    // a second after the last progress.
    let ack_3 = request + BEHIND_ACK + way(576) + 2 * 576_000 + way(40);
    let again = ack_3 + 1_000 * MS;
    // From a window of one: 3; ACK 4 lets out 4 and 5; ACK 5 lets out 6 and 7, and ACK 6 lets out 8
    // once more, because it was not acknowledged. With 7 everything is received.
    let round_trip = way(576) + way(40);
    let seven = again + 2 * round_trip + way(576) + 576_000;
    assert_eq!(world.last_bytes()[&0], seven);
    assert_eq!(world.packets().dropped(), 5);
    // Nine segments, 8 twice, and two packets of the handshake.
    assert_eq!(world.carried(), (9 + 1) * 576 + 2 * 40);
}

#[test]
fn a_lost_segment_in_a_full_window_is_sent_again_at_once() {
    // A queue on the path of a long transfer overflows now and then.
    let middle = (10 * MS, 8_000_000, 12);
    let model = NetworkModel { window: 64, ..NetworkModel::default() };
    let mut world = TestNetwork::new(&topology(&[FAST], middle, &[FAST]), &model);
    world.ask(0, 0, 0, 5_000_000);
    world.play(u64::MAX);
    let dropped = world.packets().dropped();
    assert!(dropped > 10, "{dropped}");
    // The link is busy most of the time: losses are repaired within round trips, and few timeouts
    // of a second are needed. All bytes arrive nevertheless.
    let last = world.last_bytes()[&0];
    let least = (5_000_000 + 5_000_000 / 536 * 40) * 1_000;
    assert!(last < 3 * least, "{last} for {least}");
    assert!(world.carried() > 5_000_000);
}

#[test]
fn many_transfers_fill_the_link_and_all_end() {
    let middle = (10 * MS, 80_000_000, 512);
    let clients = [FAST; 50];
    let mut world =
        TestNetwork::new(&topology(&clients, middle, &[FAST; 4]), &NetworkModel::default());
    let mut rng = Rng::new(9);
    for n in 0..2_000 {
        let client = rng.below(50) as u32;
        world.ask(rng.below(1_000) as u64 * MS, client, n % 4, 1 + rng.below(20_000) as u64);
    }
    world.play(u64::MAX);
    assert_eq!(world.last_bytes().len(), 2_000);
    let acknowledged = world.seen.iter().filter(|(_, a)| matches!(a, Arrival::Acknowledged(_)));
    assert_eq!(acknowledged.count(), 2_000);
    let packets = world.packets();
    assert_eq!(packets.connections.len(), 0);
    assert!(packets.links.iter().all(|link| link.next() == NEVER));
}

#[test]
fn same_seed_same_packets() {
    let play = || {
        let middle = (10 * MS, 8_000_000, 20);
        let mut world =
            TestNetwork::new(&topology(&[FAST; 9], middle, &[FAST; 3]), &NetworkModel::default());
        let mut rng = Rng::new(4);
        for n in 0..300 {
            world.ask(rng.below(2_000) as u64 * MS, n % 9, n % 3, rng.below(30_000) as u64);
        }
        world.play(u64::MAX);
        assert!(world.packets().dropped() > 0);
        (world.seen.clone(), world.packets().events())
    };
    assert_eq!(play(), play());
}

#[test]
fn a_lost_handshake_is_tried_again() {
    // A queue of one packet before a link that takes 40 ms for a SYN: three at once, one is lost.
    let middle = (0, 8_000, 1);
    let mut world =
        TestNetwork::new(&topology(&[FAST; 3], middle, &[FAST]), &NetworkModel::default());
    for client in 0..3 {
        world.ask(0, client, 0, 10);
    }
    world.play(u64::MAX);
    let last: Vec<u64> = world.last_bytes().into_values().collect();
    assert_eq!(last.len(), 3);
    assert!(last.iter().filter(|last| **last > 3_000 * MS).count() >= 1, "{last:?}");
}

#[test]
fn a_server_that_is_slow_with_a_block_holds_nothing_back_but_that() {
    // The response comes in two parts, the second 500 ms after the first.
    let model = NetworkModel::default();
    let routes_of = topology(&[FAST], MIDDLE, &[FAST]);
    let mut world = TestNetwork::new(&routes_of, &model);
    world.ask(0, 0, 0, 0);
    let mut arrivals = Vec::new();
    let total = 5 * 536;
    let mut parts = 0;
    while let Some((now, event)) = world.agenda.next() {
        match event {
            TestEvent::Open(_) if parts == 0 => {
                parts = 1;
                world.network.open(0, 0, 0, now, &mut world.agenda);
            }
            TestEvent::Open(_) => {
                world.network.ready(0, total - 700, total, now, &mut world.agenda)
            }
            TestEvent::Network(event) => {
                let until = Timestamp(u64::MAX);
                world.network.handle(event, now, until, &mut world.agenda, &mut arrivals);
            }
        }
        for arrival in arrivals.drain(..) {
            world.seen.push((now.0, arrival));
            if arrival == Arrival::Request(0) {
                // One segment and a part of the next, which waits for its other part.
                world.network.ready(0, 700, total, now, &mut world.agenda);
                world.agenda.schedule(Timestamp(now.0 + 500 * MS), TestEvent::Open(0));
            }
        }
    }
    // Segment 0 went alone, the window is 2: 1 and 2, then 3 and 4.
    let request = world.seen[0].0;
    let way = |bytes: u64| 1_002 * bytes + 10 * MS;
    let last = request + 500 * MS + way(576) + way(40) + way(576) + 576_000;
    assert_eq!(world.last_bytes()[&0], last);
}
