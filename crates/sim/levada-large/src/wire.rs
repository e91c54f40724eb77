//! The links of a cluster as a topology, and TCP as it is today.

use std::time::Duration;

use levada_sim::{Fidelity, NetworkModel, Size, Time, packets::PacketNetwork};
use levada_topology::{Link, PlaceIndex, Role, Topology};

use crate::{Fault, Line, Settings};

/// Two Ethernet packets, the least that segmentation offload sends at once. The receiver of the packet
/// network holds 64 segments, and 64 of these fill 75 Mbit/s at 20 ms.
const SEGMENT: u32 = 2 * 1460;
/// Segments that may wait at a link: 250 packets, as the bench's wire has them.
const QUEUE: u32 = 125;
/// A link inside a host: neither its rate nor its queue limits anything.
const INSIDE: Line = Line { rate: 100_000_000_000, delay: Duration::ZERO };
const UNLIMITED: u32 = 1 << 20;

/// The network. Servers are the nodes and then the origin; clients are the nodes and then the host of
/// all clients.
pub(super) fn network(settings: &Settings, victim: usize, fault: Fault) -> PacketNetwork {
    let mut topology = Topology::default();
    let switch = topology.place("switch", Role::Redirector);
    for node in 0..settings.nodes {
        let mut line = settings.node;
        if let Fault::Slow(times) = fault
            && node == victim
        {
            line.rate /= u64::from(times.max(1));
        }
        let host = host(&mut topology, switch, &format!("node {node}"), line);
        inside(&mut topology, host, &format!("node {node} as server"), Role::Server);
        inside(&mut topology, host, &format!("node {node} as client"), Role::Client);
    }
    let origin = host(&mut topology, switch, "origin", settings.origin);
    inside(&mut topology, origin, "origin server", Role::Server);
    let clients = Line { delay: settings.client_delay, ..INSIDE };
    let clients = host(&mut topology, switch, "clients", clients);
    inside(&mut topology, clients, "client", Role::Client);
    let places = |role| topology.places_of(role).collect::<Vec<_>>();
    let routes = topology.routes().expect("every place hangs on the switch");
    let (servers, clients) = (places(Role::Server), places(Role::Client));
    PacketNetwork::new(&model(), &topology, &routes, &servers, &clients)
}

/// Linux: RFC 6928's initial window of ten packets, and no retransmission before 200 ms. Real nodes use
/// connections again and lose no SYN, so the first timeout is not the second that RFC 6298 has.
fn model() -> NetworkModel {
    NetworkModel {
        fidelity: Fidelity::Packet,
        segment: SEGMENT,
        initial_window: 5,
        window: 64,
        first_timeout: Time(Duration::from_millis(200)),
        least_timeout: Time(Duration::from_millis(200)),
        request: Size(600),
        ..NetworkModel::default()
    }
}

fn host(topology: &mut Topology, switch: PlaceIndex, name: &str, line: Line) -> PlaceIndex {
    let host = topology.place(name, Role::Router);
    topology.links.push(link(host, switch, line, QUEUE));
    host
}

fn inside(topology: &mut Topology, host: PlaceIndex, name: &str, role: Role) {
    let place = topology.place(name, role);
    topology.links.push(link(place, host, INSIDE, UNLIMITED));
}

fn link(a: PlaceIndex, b: PlaceIndex, line: Line, queue_packets: u32) -> Link {
    let latency_ns = line.delay.as_nanos() as u64;
    Link { a, b, latency_ns, bits_per_second: line.rate.max(1), queue_packets }
}
