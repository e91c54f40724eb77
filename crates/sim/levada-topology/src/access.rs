//! The access links of servers and clients, and their parameters: the same for every wide-area
//! topology.

use levada_policy::{Kind, Parameter, Parameters, Setting};
use levada_types::Rng;

use super::{Link, PlaceIndex, Role, Shape, Topology};

/// The length of all other queues (OSDI'02 Sec. 4.2).
pub(super) const QUEUE: u32 = 512;
/// The queue of a backbone link (OSDI'02 Sec. 4.2).
pub(super) const BACKBONE_QUEUE: u32 = 1024;

pub(super) const MILLISECOND: f64 = 1e6;
pub(super) const MEGABIT: f64 = 1e6;

pub(super) const SERVER_MBPS: Parameter = Parameter {
    name: "server_mbps",
    kind: Kind::Number(0.001, 1e6),
    default: Setting::Number(100.0),
    unit: "Mbit/s",
    help: "The bandwidth of a server's link.",
};

pub(super) const CLIENT_MBPS_LOW: Parameter = Parameter {
    name: "client_mbps_low",
    kind: Kind::Number(0.001, 1e6),
    default: Setting::Number(10.0),
    unit: "Mbit/s",
    help: "The least bandwidth of a client's link; each is drawn evenly between least and most.",
};

pub(super) const CLIENT_MBPS_HIGH: Parameter = Parameter {
    name: "client_mbps_high",
    kind: Kind::Number(0.001, 1e6),
    default: Setting::Number(45.0),
    unit: "Mbit/s",
    help: "The most bandwidth of a client's link.",
};

/// Latency between a server and its router, and between a client and its router, in milliseconds.
const SERVER_LATENCY: (f64, f64) = (1.0, 3.0);
const CLIENT_LATENCY: (f64, f64) = (5.0, 20.0);

/// The links of servers and of clients have separate random sequences, so that one more server does
/// not change the clients.
const SERVER_STREAM: u64 = 0x5e7e;
const CLIENT_STREAM: u64 = 0xc11e;

/// Attaches the servers to `routers` in turn.
pub(super) fn add_servers(
    topology: &mut Topology,
    shape: &Shape,
    parameters: &Parameters,
    routers: &[PlaceIndex],
) {
    let mut rng = Rng::new(shape.seed ^ SERVER_STREAM);
    let slow = slow_ones(shape, &mut rng);
    for (n, router) in (0..shape.servers).zip(routers.iter().cycle()) {
        let latency = between(SERVER_LATENCY, &mut rng);
        let server = topology.place(format!("server-{n}"), Role::Server);
        let mut link = link(server, *router, latency, number(parameters, SERVER_MBPS), QUEUE);
        if slow[n] {
            link.bits_per_second = shape.slow_bits_per_second;
        }
        topology.links.push(link);
    }
}

/// Attaches the clients to `redirectors` in turn.
pub(super) fn add_clients(
    topology: &mut Topology,
    shape: &Shape,
    parameters: &Parameters,
    redirectors: &[PlaceIndex],
) {
    let mut rng = Rng::new(shape.seed ^ CLIENT_STREAM);
    let rates = (number(parameters, CLIENT_MBPS_LOW), number(parameters, CLIENT_MBPS_HIGH));
    for (n, redirector) in (0..shape.clients).zip(redirectors.iter().cycle()) {
        let latency = between(CLIENT_LATENCY, &mut rng);
        let client = topology.place(format!("client-{n}"), Role::Client);
        topology.links.push(link(client, *redirector, latency, between(rates, &mut rng), QUEUE));
    }
}

/// A link, in the units of papers.
pub(super) fn link(a: PlaceIndex, b: PlaceIndex, ms: f64, mbps: f64, queue_packets: u32) -> Link {
    Link {
        a,
        b,
        latency_ns: (ms * MILLISECOND).round() as u64,
        bits_per_second: ((mbps * MEGABIT).round() as u64).max(1),
        queue_packets,
    }
}

/// A uniform random number between two numbers, in any order.
pub(super) fn between((low, high): (f64, f64), rng: &mut Rng) -> f64 {
    low + (high - low) * rng.unit()
}

/// `count` random numbers below `all`, ascending.
pub(super) fn sample(count: usize, all: usize, rng: &mut Rng) -> Vec<usize> {
    // Selection sampling: Knuth, TAOCP 2, 3.4.2, algorithm S.
    let mut chosen = Vec::with_capacity(count);
    for n in 0..all {
        if rng.below(all - n) < count - chosen.len() {
            chosen.push(n);
        }
    }
    chosen
}

pub(super) fn whole(parameters: &Parameters, parameter: Parameter) -> usize {
    parameters.integer(parameter.name).unwrap_or(1) as usize
}

pub(super) fn number(parameters: &Parameters, parameter: Parameter) -> f64 {
    parameters.number(parameter.name).unwrap_or(1.0)
}

pub(super) fn slow_ones(shape: &Shape, rng: &mut Rng) -> Vec<bool> {
    let mut slow = vec![false; shape.servers];
    let count = (shape.servers as f64 * shape.slow).round() as usize;
    for n in sample(count, shape.servers, rng) {
        slow[n] = true;
    }
    slow
}
