//! The path of a packet: a cursor that moves along one list of links.
//!
//! Servers and clients are attached to hubs by their own links. For each pair of hubs the list has
//! the links between, in the direction of responses, with a mark on either side:
//!
//! ```text
//! MARK  hop  hop  hop  MARK  hop  hop  MARK ...
//!   ^ a response begins here and moves right; a request begins at the other mark and moves left,
//!     over the same links in their other direction
//! ```
//!
//! One list says where each packet goes next. It stays in the processor's cache, whatever the
//! number of connections.

use levada_topology::{Hop, PlaceIndex, Routes};

/// All paths: see the module.
#[derive(Debug)]
pub(super) struct Paths {
    servers: Vec<PathEnd>,
    clients: Vec<PathEnd>,
    /// For each hub of servers (row) and of clients (column), the marks around the links between
    /// them.
    between: Vec<(u32, u32)>,
    client_hubs: usize,
    steps: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct PathEnd {
    hub: u32,
    /// Its own link, in the direction of responses; [`MARK`] for none.
    own: u32,
}

/// The path of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketPath {
    /// The mark where responses begin.
    begin: u32,
    /// The mark where requests begin.
    end: u32,
    /// The link of the server, and that of the client, in the direction of responses; [`MARK`] for
    /// none.
    server: u32,
    client: u32,
}

/// The next step of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A link, by [`Hop::index`], and the cursor after it.
    Link(usize, u32),
    /// The other end.
    Arrived,
}

/// No link.
const MARK: u32 = u32::MAX;
/// The cursor of a packet on the last link of its path.
const LAST: u32 = u32::MAX;

impl Paths {
    pub(super) fn new(routes: &Routes, servers: &[PlaceIndex], clients: &[PlaceIndex]) -> Self {
        let (server_hubs, of_server) = hubs(routes, servers);
        let (client_hubs, of_client) = hubs(routes, clients);
        let (mut between, mut steps) = (Vec::new(), vec![MARK]);
        let mut path = Vec::new();
        for from in &server_hubs {
            for to in &client_hubs {
                path.clear();
                routes.path(*from, *to, &mut path);
                let begin = steps.len() as u32 - 1;
                steps.extend(path.iter().map(|hop| hop.index() as u32));
                steps.push(MARK);
                between.push((begin, steps.len() as u32 - 1));
            }
        }
        let own = |hop: Option<Hop>| hop.map_or(MARK, |hop| hop.index() as u32);
        let server = |(place, hub)| PathEnd { hub, own: own(routes.access(place)) };
        let client = |(place, hub)| PathEnd { hub, own: own(routes.access(place).map(Hop::back)) };
        Self {
            servers: servers.iter().copied().zip(of_server).map(server).collect(),
            clients: clients.iter().copied().zip(of_client).map(client).collect(),
            between,
            client_hubs: client_hubs.len(),
            steps,
        }
    }

    /// The path between a client and a server.
    pub(super) fn way(&self, client: u32, server: u32) -> PacketPath {
        let (client, server) = (self.clients[client as usize], self.servers[server as usize]);
        let pair = server.hub as usize * self.client_hubs + client.hub as usize;
        let (begin, end) = self.between[pair];
        PacketPath { begin, end, server: server.own, client: client.own }
    }

    /// The first step, from the server or from the client.
    pub(super) fn first(&self, way: &PacketPath, to_client: bool) -> Step {
        let (own, cursor) =
            if to_client { (way.server, way.begin) } else { (way.client ^ 1, way.end) };
        // Reversing the mark for none gives the mark for none.
        if own | 1 == MARK {
            self.onward(cursor, to_client).unwrap_or_else(|| self.last(way, to_client))
        } else {
            Step::Link(own as usize, cursor)
        }
    }

    /// The step between hubs after `cursor`; `None` when only the link of the end is left, which
    /// [`Paths::last`] returns.
    #[inline]
    pub(super) fn onward(&self, cursor: u32, to_client: bool) -> Option<Step> {
        let next = if to_client { cursor + 1 } else { cursor.wrapping_sub(1) };
        let hop = *self.steps.get(next as usize)?;
        let turned = if to_client { hop } else { hop ^ 1 };
        (hop != MARK).then_some(Step::Link(turned as usize, next))
    }

    /// The last step.
    pub(super) fn last(&self, way: &PacketPath, to_client: bool) -> Step {
        let own = if to_client { way.client } else { way.server ^ 1 };
        if own | 1 == MARK { Step::Arrived } else { Step::Link(own as usize, LAST) }
    }
}

/// Whether a packet with this cursor is on its first link.
pub(super) const fn is_last(cursor: u32) -> bool {
    cursor == LAST
}

/// The distinct hubs of places, and the hub of each place.
fn hubs(routes: &Routes, places: &[PlaceIndex]) -> (Vec<PlaceIndex>, Vec<u32>) {
    let mut distinct: Vec<_> = places.iter().map(|place| routes.hub(*place)).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let number =
        |place: &PlaceIndex| distinct.partition_point(|hub| *hub < routes.hub(*place)) as u32;
    let numbers = places.iter().map(number).collect();
    (distinct, numbers)
}
