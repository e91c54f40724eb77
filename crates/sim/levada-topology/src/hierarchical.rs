//! A network in levels, like those of providers: a ring of core routers with some chords, regional
//! routers that are attached to one core router each, and servers or clients behind regional
//! routers. It follows the transit-stub graphs of Zegura, Calvert and Bhattacharjee, "How to Model
//! an Internetwork", INFOCOM'96, with the latencies and bandwidths of OSDI'02 (Sec. 4.2).

use levada_policy::{Kind, Parameter, Parameters, Setting};
use levada_types::Rng;

use super::{
    Entry, PlaceIndex, Role, Shape, Topology,
    access::{
        BACKBONE_QUEUE, CLIENT_MBPS_HIGH, CLIENT_MBPS_LOW, QUEUE, SERVER_MBPS, between, link,
        number, whole,
    },
    barabasi_albert::{REDIRECTORS, SITES, draw_sites},
};

pub(super) const ENTRY: Entry = Entry {
    name: "hierarchical",
    source: "INFOCOM'96",
    summary: "a ring of core routers with chords, regional routers on each, servers and clients behind those",
    parameters: &[
        CORES,
        REGIONS,
        CHORDS,
        SITES,
        REDIRECTORS,
        CORE_MBPS,
        REGIONAL_MBPS,
        SERVER_MBPS,
        CLIENT_MBPS_LOW,
        CLIENT_MBPS_HIGH,
    ],
    build,
};

const CORES: Parameter = Parameter {
    name: "cores",
    kind: Kind::Integer(1, 1000),
    default: Setting::Integer(16),
    unit: "routers",
    help: "Routers of the core.",
};

const REGIONS: Parameter = Parameter {
    name: "regions",
    kind: Kind::Integer(2, 20),
    default: Setting::Integer(2),
    unit: "routers",
    help: "Regional routers on each core router.",
};

const CHORDS: Parameter = Parameter {
    name: "chords",
    kind: Kind::Number(0.0, 10.0),
    default: Setting::Number(0.25),
    unit: "per core router",
    help: "Links between core routers besides the ring, drawn by chance.",
};

const CORE_MBPS: Parameter = Parameter {
    name: "core_mbps",
    kind: Kind::Number(0.001, 1e6),
    default: Setting::Number(2488.0),
    unit: "Mbit/s",
    help: "The bandwidth between core routers.",
};

const REGIONAL_MBPS: Parameter = Parameter {
    name: "regional_mbps",
    kind: Kind::Number(0.001, 1e6),
    default: Setting::Number(622.0),
    unit: "Mbit/s",
    help: "The bandwidth between a regional router and its core router.",
};

/// Latency, in milliseconds.
const CORE_LATENCY: (f64, f64) = (8.0, 28.0);
const REGIONAL_LATENCY: (f64, f64) = (1.0, 10.0);

fn build(shape: &Shape, parameters: &Parameters) -> Topology {
    let mut rng = Rng::new(shape.seed);
    let cores = whole(parameters, CORES);
    let regions = cores * whole(parameters, REGIONS);
    let sites = draw_sites(parameters, regions, &mut rng);
    let mut topology = Topology::default();
    for n in 0..cores {
        topology.place(format!("core-{n}"), Role::Router);
    }
    let mbps = number(parameters, CORE_MBPS);
    for (a, b) in ring_with_chords(cores, number(parameters, CHORDS), &mut rng) {
        topology.links.push(link(a, b, between(CORE_LATENCY, &mut rng), mbps, BACKBONE_QUEUE));
    }
    let mbps = number(parameters, REGIONAL_MBPS);
    for n in 0..regions {
        let role = if sites.clients.contains(&n) { Role::Redirector } else { Role::Router };
        let router = topology.place(format!("R{n}"), role);
        let core = (n % cores) as PlaceIndex;
        topology.links.push(link(router, core, between(REGIONAL_LATENCY, &mut rng), mbps, QUEUE));
    }
    sites.hang(&mut topology, shape, parameters, |n| (cores + n) as PlaceIndex);
    topology
}

/// Links between core routers, without duplicates.
fn ring_with_chords(cores: usize, chords: f64, rng: &mut Rng) -> Vec<(PlaceIndex, PlaceIndex)> {
    let pair = |a: usize, b: usize| (a.min(b) as PlaceIndex, a.max(b) as PlaceIndex);
    let mut links: Vec<_> = (1..cores).map(|n| pair(n - 1, n)).collect();
    if cores > 2 {
        links.push(pair(cores - 1, 0));
    }
    for _ in 0..(cores as f64 * chords).round() as usize {
        let chord = pair(rng.below(cores), rng.below(cores));
        if chord.0 != chord.1 && !links.contains(&chord) {
            links.push(chord);
        }
    }
    links
}
