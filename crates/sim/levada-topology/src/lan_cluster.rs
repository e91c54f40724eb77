//! A cluster in one room behind a switch, where the redirector is the front-end (ASPLOS'98 Sec. 2,
//! WWW10 Sec. 5). Network times are small compared with the servers' times.

use std::time::Duration;

use levada_policy::{Kind, Parameter, Parameters, Setting};

use super::{
    Entry, Link, PlaceIndex, Role, Shape, Topology,
    access::{QUEUE, SERVER_MBPS, whole},
    star::{CLIENT_LATENCY, CLIENT_MBPS, LATENCY, QUEUE_PACKETS, around_one_redirector},
};

pub(super) const ENTRY: Entry = Entry {
    name: "lan_cluster",
    source: "ASPLOS'98 Sec. 2, WWW10 Sec. 5",
    summary: "servers behind one switch, which is the redirector; clients in the same network",
    parameters: &[
        SERVER_LATENCY,
        Parameter { default: SMALL, ..CLIENT_LATENCY },
        SERVER_MBPS,
        Parameter { default: Setting::Number(1000.0), ..CLIENT_MBPS },
        QUEUE_PACKETS,
        FRONT_ENDS,
    ],
    build,
};

/// A switched 100 Mbit/s network of the papers' years.
const SMALL: Setting = Setting::Duration(Duration::from_micros(50));

const SERVER_LATENCY: Parameter = Parameter {
    name: "server_latency",
    kind: LATENCY,
    default: SMALL,
    unit: "",
    help: "How long a bit is under way between a server and the switch.",
};

const FRONT_ENDS: Parameter = Parameter {
    name: "front_ends",
    kind: Kind::Integer(1, 1024),
    default: Setting::Integer(1),
    unit: "front-ends",
    help: "Front-ends, each with its own clients; with several, each is a redirector beside the switch.",
};

fn build(shape: &Shape, parameters: &Parameters) -> Topology {
    let one = around_one_redirector(shape, parameters, "switch", SERVER_LATENCY);
    match whole(parameters, FRONT_ENDS) {
        1 => one,
        several => with_front_ends(one, several),
    }
}

/// The cluster with front-ends between clients and switch; clients are dealt to them in turn.
fn with_front_ends(mut topology: Topology, count: usize) -> Topology {
    let switch = 0;
    topology.places[switch as usize].role = Role::Router;
    let front_ends: Vec<_> =
        (0..count).map(|n| topology.place(format!("front-end-{n}"), Role::Redirector)).collect();
    let is_client = |place: PlaceIndex, topology: &Topology| {
        topology.places[place as usize].role == Role::Client
    };
    let of_clients: Vec<usize> =
        (0..topology.links.len()).filter(|n| is_client(topology.links[*n].a, &topology)).collect();
    for (link, front_end) in of_clients.into_iter().zip(front_ends.iter().cycle()) {
        topology.links[link].b = *front_end;
    }
    topology.links.extend(front_ends.into_iter().map(|front_end| Link {
        a: front_end,
        b: switch,
        latency_ns: 1,
        bits_per_second: BACKPLANE,
        queue_packets: QUEUE,
    }));
    topology
}

/// Bits per second between a front-end and the switch: no limit, as within one machine.
const BACKPLANE: u64 = 1_000_000_000_000;
