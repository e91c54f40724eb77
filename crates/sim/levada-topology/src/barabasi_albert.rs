//! Routers whose degrees follow a power law, as the Internet's do: Barabasi and Albert, "Emergence of
//! Scaling in Random Networks", Science 286 (1999).
//!
//! Routers are added one after the other, and each links to `attach` earlier routers, chosen in
//! proportion to their number of links. The share of routers with degree k then falls as k to the
//! power of -3. Servers and clients are attached to random routers; no router has both.

use levada_policy::{Kind, Parameter, Parameters, Setting};
use levada_types::Rng;

use super::{
    Entry, PlaceIndex, Role, Shape, Topology,
    access::{
        BACKBONE_QUEUE, CLIENT_MBPS_HIGH, CLIENT_MBPS_LOW, SERVER_MBPS, add_clients, add_servers,
        between, link, number, sample, whole,
    },
};

pub(super) const ENTRY: Entry = Entry {
    name: "barabasi_albert",
    source: "Science 286 (1999)",
    summary: "routers whose degrees follow a power law, servers and clients behind some of them",
    parameters: &[
        ROUTERS,
        ATTACH,
        SITES,
        REDIRECTORS,
        ROUTER_MBPS,
        SERVER_MBPS,
        CLIENT_MBPS_LOW,
        CLIENT_MBPS_HIGH,
    ],
    build,
};

const ROUTERS: Parameter = Parameter {
    name: "routers",
    kind: Kind::Integer(8, 20_000),
    default: Setting::Integer(100),
    unit: "routers",
    help: "Routers of the network.",
};

const ATTACH: Parameter = Parameter {
    name: "attach",
    kind: Kind::Integer(1, 7),
    default: Setting::Integer(2),
    unit: "links",
    help: "To how many earlier routers each new one links.",
};

pub(super) const SITES: Parameter = Parameter {
    name: "sites",
    kind: Kind::Integer(1, 4096),
    default: Setting::Integer(8),
    unit: "routers",
    help: "Routers that have servers; at most half of those there are.",
};

pub(super) const REDIRECTORS: Parameter = Parameter {
    name: "redirectors",
    kind: Kind::Integer(1, 4096),
    default: Setting::Integer(12),
    unit: "routers",
    help: "Routers that have clients and a redirector; at most half of those there are.",
};

const ROUTER_MBPS: Parameter = Parameter {
    name: "router_mbps",
    kind: Kind::Number(0.001, 1e6),
    default: Setting::Number(2488.0),
    unit: "Mbit/s",
    help: "The bandwidth between routers.",
};

/// Latency between routers, in milliseconds: the values of OSDI'02's backbone and regional links.
const LATENCY: (f64, f64) = (1.0, 28.0);

fn build(shape: &Shape, parameters: &Parameters) -> Topology {
    let mut rng = Rng::new(shape.seed);
    let routers = whole(parameters, ROUTERS);
    let sites = draw_sites(parameters, routers, &mut rng);
    let mut topology = Topology::default();
    for n in 0..routers {
        let role = if sites.clients.contains(&n) { Role::Redirector } else { Role::Router };
        topology.place(format!("R{n}"), role);
    }
    let mbps = number(parameters, ROUTER_MBPS);
    for (a, b) in grow(routers, whole(parameters, ATTACH), &mut rng) {
        topology.links.push(link(a, b, between(LATENCY, &mut rng), mbps, BACKBONE_QUEUE));
    }
    sites.hang(&mut topology, shape, parameters, |n| n as PlaceIndex);
    topology
}

/// The links in order. Each router is in `ends` once for each of its links, so that a uniform
/// choice from `ends` is proportional to degree.
fn grow(routers: usize, attach: usize, rng: &mut Rng) -> Vec<(PlaceIndex, PlaceIndex)> {
    let mut links = Vec::new();
    let mut ends: Vec<PlaceIndex> = Vec::new();
    let add = |links: &mut Vec<_>, ends: &mut Vec<_>, a, b| {
        links.push((a, b));
        ends.extend([a, b]);
    };
    // The first `attach` + 1 routers are fully linked.
    for a in 1..=attach as PlaceIndex {
        for b in 0..a {
            add(&mut links, &mut ends, a, b);
        }
    }
    let mut chosen: Vec<PlaceIndex> = Vec::new();
    for new in attach as PlaceIndex + 1..routers as PlaceIndex {
        chosen.clear();
        while chosen.len() < attach {
            let old = ends[rng.below(ends.len())];
            if !chosen.contains(&old) {
                chosen.push(old);
            }
        }
        for old in &chosen {
            add(&mut links, &mut ends, new, *old);
        }
    }
    links
}

/// The routers with servers and those with clients; none has both.
pub(super) struct Sites {
    servers: Vec<usize>,
    pub(super) clients: Vec<usize>,
}

/// Chooses the number of routers in the parameters, at most half of the routers for each kind.
pub(super) fn draw_sites(parameters: &Parameters, routers: usize, rng: &mut Rng) -> Sites {
    let half = (routers / 2).max(1);
    let servers = whole(parameters, SITES).min(half);
    let clients = whole(parameters, REDIRECTORS).min(half);
    let mut sites = Sites { servers: Vec::new(), clients: Vec::new() };
    let both = sample(servers + clients, routers, rng);
    let with_servers = sample(servers, both.len(), rng);
    for (n, router) in both.into_iter().enumerate() {
        let kind = with_servers.binary_search(&n);
        if kind.is_ok() { &mut sites.servers } else { &mut sites.clients }.push(router);
    }
    sites
}

impl Sites {
    /// Attaches servers and clients to the routers, whose places are in `at`.
    pub(super) fn hang(
        &self,
        topology: &mut Topology,
        shape: &Shape,
        parameters: &Parameters,
        at: impl Fn(usize) -> PlaceIndex,
    ) {
        let places = |routers: &[usize]| routers.iter().map(|n| at(*n)).collect::<Vec<_>>();
        add_servers(topology, shape, parameters, &places(&self.servers));
        add_clients(topology, shape, parameters, &places(&self.clients));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_follow_the_power_law() {
        let routers = 20_000;
        for attach in [1, 2, 4] {
            let mut degrees = vec![0_usize; routers];
            for (a, b) in grow(routers, attach, &mut Rng::new(7)) {
                degrees[a as usize] += 1;
                degrees[b as usize] += 1;
            }
            assert_eq!(degrees.iter().min(), Some(&attach));
            // Exactly (Bollobas et al. 2001): the share of degree at least k is
            // m (m + 1) / (k (k + 1)), with m links per new router.
            for times in [2, 4, 8] {
                let k = attach * times;
                let share =
                    degrees.iter().filter(|degree| **degree >= k).count() as f64 / routers as f64;
                let law = (attach * (attach + 1)) as f64 / (k * (k + 1)) as f64;
                assert!((share / law - 1.0).abs() < 0.12, "m {attach}, k {k}: {share} for {law}");
            }
        }
    }

    #[test]
    fn no_router_is_linked_twice_with_another() {
        let mut links = grow(500, 3, &mut Rng::new(1));
        let count = links.len();
        links.sort_unstable();
        links.dedup();
        assert_eq!((links.len(), count), (count, 6 + 3 * (500 - 4)));
        assert!(links.iter().all(|(a, b)| a > b));
    }
}
