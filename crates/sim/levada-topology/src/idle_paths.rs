//! The paths from every server to every client: their links, and their times when idle.
//!
//! Servers and clients are attached to routers (hubs) by their own links. One list of links per
//! pair of hubs is enough, whatever the number of servers and clients.

use crate::{
    Hop, PlaceIndex, Routes, Topology,
    tcp::{HEADER, IdleTiming},
};

/// The paths from servers to clients.
#[derive(Debug)]
pub struct IdlePaths {
    segment: u32,
    servers: Vec<Endpoint>,
    clients: Vec<Endpoint>,
    /// For each hub of a server (row) and of a client (column), the links between them.
    cores: Vec<Core>,
    client_hubs: u32,
    /// The hops of all cores, one after the other.
    hops: Vec<u32>,
    longest: usize,
}

/// A server or client: its hub and its own link, if it has one.
#[derive(Clone, Copy, Debug)]
struct Endpoint {
    hub: u32,
    /// The direction of its link that responses take; [`NONE`] for none.
    access: u32,
    way: IdlePath,
}

#[derive(Clone, Copy, Debug)]
struct Core {
    begin: u32,
    end: u32,
    way: IdlePath,
}

/// The times of one or several links.
#[derive(Clone, Copy, Debug)]
struct IdlePath {
    latency: u64,
    /// Time of a bit at each of the links, summed, in units of 2^-16 ns.
    bit: u64,
    /// Time of a bit at the narrowest link.
    narrowest: u64,
}

const NONE: u32 = u32::MAX;

impl IdlePaths {
    /// Computes the paths for segments of `segment` bytes. Servers and clients have numbers in the order of the lists.
    pub fn new(
        segment: u32,
        topology: &Topology,
        routes: &Routes,
        servers: &[PlaceIndex],
        clients: &[PlaceIndex],
    ) -> Self {
        let (server_hubs, of_server) = hubs(routes, servers);
        let (client_hubs, of_client) = hubs(routes, clients);
        let (mut cores, mut hops, mut longest) = (Vec::new(), Vec::new(), 0);
        let mut path = Vec::new();
        for from in &server_hubs {
            for to in &client_hubs {
                path.clear();
                routes.path(*from, *to, &mut path);
                let begin = hops.len() as u32;
                hops.extend(path.iter().map(|hop| hop.index() as u32));
                cores.push(Core {
                    begin,
                    end: hops.len() as u32,
                    way: IdlePath::of(topology, &path),
                });
                longest = longest.max(path.len() + 2);
            }
        }
        Self {
            segment,
            servers: ends(topology, routes, servers, &of_server, |hop| hop),
            clients: ends(topology, routes, clients, &of_client, Hop::back),
            cores,
            client_hubs: client_hubs.len() as u32,
            hops,
            longest,
        }
    }

    /// The most links on a path.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The directions of links that a response takes, those of both ends first.
    #[inline]
    pub fn path(&self, server: u32, client: u32) -> impl Iterator<Item = usize> + use<'_> {
        let (from, to) = (&self.servers[server as usize], &self.clients[client as usize]);
        let core = self.core(from, to);
        let hops = &self.hops[core.begin as usize..core.end as usize];
        let own = [from.access, to.access].into_iter().filter(|hop| *hop != NONE);
        own.chain(hops.iter().copied()).map(|hop| hop as usize)
    }

    /// The times of the idle path.
    #[inline]
    pub fn timing(&self, server: u32, client: u32) -> IdleTiming {
        let (from, to) = (&self.servers[server as usize], &self.clients[client as usize]);
        let way = from.way.and(self.core(from, to).way).and(to.way);
        let full = u64::from(self.segment + HEADER) * 8;
        let (narrowest, all) = ((full * way.narrowest) >> FRACTION, (full * way.bit) >> FRACTION);
        IdleTiming {
            narrowest,
            onward: way.latency + all - narrowest,
            back: way.latency + ((u64::from(HEADER) * 8 * way.bit) >> FRACTION),
        }
    }

    fn core(&self, from: &Endpoint, to: &Endpoint) -> &Core {
        &self.cores[(from.hub * self.client_hubs + to.hub) as usize]
    }
}

impl IdlePath {
    const NOWHERE: Self = Self { latency: 0, bit: 0, narrowest: 0 };

    fn of(topology: &Topology, path: &[Hop]) -> Self {
        path.iter().fold(Self::NOWHERE, |way, hop| {
            let link = &topology.links[hop.link()];
            let bit = (1_000_000_000 << FRACTION) / link.bits_per_second;
            way.and(Self { latency: link.latency_ns, bit, narrowest: bit })
        })
    }

    fn and(self, further: Self) -> Self {
        Self {
            latency: self.latency + further.latency,
            bit: self.bit + further.bit,
            narrowest: self.narrowest.max(further.narrowest),
        }
    }
}

const FRACTION: u32 = 16;

/// The distinct hubs of places, and the hub of each place.
fn hubs(routes: &Routes, places: &[PlaceIndex]) -> (Vec<PlaceIndex>, Vec<u32>) {
    let mut distinct: Vec<_> = places.iter().map(|place| routes.hub(*place)).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let number = |place: &PlaceIndex| {
        distinct.binary_search(&routes.hub(*place)).expect("it is one of them") as u32
    };
    let numbers = places.iter().map(number).collect();
    (distinct, numbers)
}

fn ends(
    topology: &Topology,
    routes: &Routes,
    places: &[PlaceIndex],
    hubs: &[u32],
    direction: impl Fn(Hop) -> Hop,
) -> Vec<Endpoint> {
    let end = |(place, hub): (&PlaceIndex, &u32)| {
        let access = routes.access(*place);
        let way = access.map_or(IdlePath::NOWHERE, |hop| IdlePath::of(topology, &[hop]));
        let access = access.map_or(NONE, |hop| direction(hop).index() as u32);
        Endpoint { hub: *hub, access, way }
    };
    places.iter().zip(hubs).map(end).collect()
}
