//! One redirector in the middle, servers and clients around it, with equal links for each kind: the
//! smallest world in which a figure can be computed by hand.

use std::time::Duration;

use levada_policy::{Kind, Parameter, Parameters, Setting};
use levada_types::Rng;

use super::{
    Entry, Link, Role, Shape, Topology,
    access::{MEGABIT, QUEUE, SERVER_MBPS, number, slow_ones, whole},
};

pub(super) const ENTRY: Entry = Entry {
    name: "star",
    source: "none; for figures that can be worked out by hand",
    summary: "one redirector with servers and clients around it, each by a link of its own, all alike",
    parameters: &[SERVER_LATENCY, CLIENT_LATENCY, SERVER_MBPS, CLIENT_MBPS, QUEUE_PACKETS],
    build,
};

const SERVER_LATENCY: Parameter = Parameter {
    name: "server_latency",
    kind: LATENCY,
    default: Setting::Duration(Duration::from_millis(2)),
    unit: "",
    help: "How long a bit is under way on a server's link.",
};

pub(super) const CLIENT_LATENCY: Parameter = Parameter {
    name: "client_latency",
    kind: LATENCY,
    default: Setting::Duration(Duration::from_millis(20)),
    unit: "",
    help: "How long a bit is under way on a client's link.",
};

pub(super) const CLIENT_MBPS: Parameter = Parameter {
    name: "client_mbps",
    kind: Kind::Number(0.001, 1e6),
    default: Setting::Number(10.0),
    unit: "Mbit/s",
    help: "The bandwidth of a client's link.",
};

pub(super) const QUEUE_PACKETS: Parameter = Parameter {
    name: "queue",
    kind: Kind::Integer(1, 1 << 20),
    default: Setting::Integer(QUEUE as u64),
    unit: "packets",
    help: "The packets that may wait at either end of a link.",
};

pub(super) const LATENCY: Kind = Kind::Duration(Duration::ZERO, Duration::from_secs(10));

fn build(shape: &Shape, parameters: &Parameters) -> Topology {
    around_one_redirector(shape, parameters, "center", SERVER_LATENCY)
}

/// Builds servers and clients around one redirector; `server_latency` is the name of the parameter.
pub(super) fn around_one_redirector(
    shape: &Shape,
    parameters: &Parameters,
    middle: &str,
    server_latency: Parameter,
) -> Topology {
    let mut topology = Topology::default();
    let middle = topology.place(middle, Role::Redirector);
    for (role, count, latency, mbps) in [
        (Role::Server, shape.servers, server_latency, SERVER_MBPS),
        (Role::Client, shape.clients, CLIENT_LATENCY, CLIENT_MBPS),
    ] {
        let latency = parameters.duration(latency.name).as_nanos() as u64;
        for n in 0..count {
            let place = topology.place(format!("{}-{n}", role.as_str()), role);
            topology.links.push(Link {
                a: place,
                b: middle,
                latency_ns: latency,
                bits_per_second: ((number(parameters, mbps) * MEGABIT).round() as u64).max(1),
                queue_packets: whole(parameters, QUEUE_PACKETS) as u32,
            });
        }
    }
    let slow = slow_ones(shape, &mut Rng::new(shape.seed));
    for (link, _) in topology.links.iter_mut().zip(slow).filter(|(_, slow)| *slow) {
        link.bits_per_second = shape.slow_bits_per_second;
    }
    topology
}
