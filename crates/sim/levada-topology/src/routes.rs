//! Shortest paths by latency between clients, redirectors and servers.
//!
//! Not all pairs are stored: most places are leaves on one router, so that router and the link are
//! enough. Among the other places, there is one tree of shortest paths (Dijkstra 1959) for each
//! router with servers and for each redirector. With 64 servers behind 8 routers and 64,000 clients
//! behind 12 redirectors, that is 20 trees of 36 places.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Link, PlaceIndex, Role, Topology};

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop(u32);

impl Hop {
    const NONE: Self = Self(u32::MAX);

    /// The link `link`, from its end `a` to its end `b` or, `backward`, the other way.
    pub const fn new(link: u32, backward: bool) -> Self {
        Self(link << 1 | backward as u32)
    }

    /// The number of the link in [`Topology::links`].
    pub const fn link(self) -> usize {
        (self.0 >> 1) as usize
    }

    /// A unique number for each direction of each link: twice the link's number, plus one for the
    /// direction from `b` to `a`.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The other direction.
    pub const fn back(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// The reason for missing routes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The topology has no client, no redirector or no server.
    #[error("no place has the role `{}`: give it to at least one", .0.as_str())]
    Missing(Role),
    /// A place cannot reach another.
    #[error(
        "`{from}` cannot reach `{to}`: add links (only routers and redirectors let others' packets pass)"
    )]
    NoWay {
        /// The start of the missing path.
        from: String,
        /// The end of the missing path.
        to: String,
    },
    /// The trees would take too much memory.
    #[error(
        "{trees} places with servers or redirectors among {places} are too many to keep routes for: put more servers behind one router, or use fewer routers"
    )]
    TooMany {
        /// Trees of shortest paths.
        trees: usize,
        /// Places in each.
        places: usize,
    },
}

/// The largest number of stored hops for all trees together: half a gigabyte.
const MAX_KEPT: usize = 1 << 27;

/// Shortest paths by latency.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// The hub of each leaf, and its link to the hub; other places are their own hub and have no
    /// such link.
    hubs: Vec<Hub>,
    /// Latency and ends of the links.
    links: Vec<Link>,
    /// For each place that is the root of a tree, the number of the tree.
    trees: Vec<u32>,
    /// For each place that is no leaf, its number in a tree.
    inner: Vec<u32>,
    /// For each tree and inner place, the hop towards the root; [`Hop::NONE`] at the root.
    toward: Vec<Hop>,
    inner_count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Hub {
    place: PlaceIndex,
    /// From the leaf to its hub.
    access: Option<Hop>,
}

const NONE: u32 = u32::MAX;

impl Routes {
    pub(super) fn new(topology: &Topology) -> Result<Self, RouteError> {
        let hops = outgoing(topology);
        let hubs = hubs(topology, &hops);
        let mut routes = Self {
            trees: vec![NONE; hubs.len()],
            inner: vec![NONE; hubs.len()],
            links: topology.links.clone(),
            toward: Vec::new(),
            inner_count: 0,
            hubs,
        };
        for place in 0..routes.hubs.len() {
            if routes.hubs[place].access.is_none() {
                routes.inner[place] = routes.inner_count as u32;
                routes.inner_count += 1;
            }
        }
        routes.grow_trees(topology, &hops)?;
        Ok(routes)
    }

    /// Appends the hops from `from` to `to`. One of them must be a server or a redirector, or have
    /// the same hub as one.
    ///
    /// # Panics
    /// If neither is: paths between clients are not stored.
    pub fn path(&self, from: PlaceIndex, to: PlaceIndex, path: &mut Vec<Hop>) {
        if from == to {
            return;
        }
        let (start, end) = (self.hubs[from as usize], self.hubs[to as usize]);
        // If one is the hub of the other, only that access link is between them.
        path.extend(start.access);
        if self.trees[end.place as usize] != NONE {
            self.climb(start.place, end.place, |hop| path.push(hop));
        } else {
            let begun = path.len();
            self.climb(end.place, start.place, |hop| path.push(hop.back()));
            path[begun..].reverse();
        }
        path.extend(end.access.map(Hop::back));
    }

    /// The latency from `from` to `to`, in nanoseconds; it is the same in both directions.
    ///
    /// # Panics
    /// As [`Routes::path`].
    pub fn latency_ns(&self, from: PlaceIndex, to: PlaceIndex) -> u64 {
        if from == to {
            return 0;
        }
        let (start, end) = (self.hubs[from as usize], self.hubs[to as usize]);
        let mut sum = 0;
        let mut add = |hop: Hop| sum += self.links[hop.link()].latency_ns;
        start.access.into_iter().chain(end.access).for_each(&mut add);
        if self.trees[end.place as usize] != NONE {
            self.climb(start.place, end.place, add);
        } else {
            self.climb(end.place, start.place, add);
        }
        sum
    }

    /// The router of a leaf; any other place itself. Places with the same hub have the same path to
    /// all others, except for their own link.
    pub fn hub(&self, place: PlaceIndex) -> PlaceIndex {
        self.hubs[place as usize].place
    }

    /// The hop from a leaf to its hub; `None` for other places.
    pub fn access(&self, place: PlaceIndex) -> Option<Hop> {
        self.hubs[place as usize].access
    }

    /// The number of stored hops, for all trees together.
    pub fn kept(&self) -> usize {
        self.toward.len()
    }

    /// The nearest of `redirectors`, the first of several: it chooses the servers for a client's
    /// requests.
    pub fn nearest(&self, client: PlaceIndex, redirectors: &[PlaceIndex]) -> Option<PlaceIndex> {
        redirectors.iter().copied().min_by_key(|redirector| self.latency_ns(client, *redirector))
    }

    /// Follows the tree of `root` from `place` up.
    fn climb(&self, mut place: PlaceIndex, root: PlaceIndex, mut visit: impl FnMut(Hop)) {
        let tree = self.trees[root as usize];
        assert!(tree != NONE, "paths are kept to servers and redirectors only");
        while place != root {
            let slot = tree as usize * self.inner_count + self.inner[place as usize] as usize;
            let hop = self.toward[slot];
            visit(hop);
            place = end_of(&self.links, hop);
        }
    }

    fn grow_trees(&mut self, topology: &Topology, hops: &Outgoing) -> Result<(), RouteError> {
        let [clients, redirectors, servers] = [Role::Client, Role::Redirector, Role::Server]
            .map(|role| topology.places_of(role).collect::<Vec<_>>());
        for (places, role) in
            [(&clients, Role::Client), (&redirectors, Role::Redirector), (&servers, Role::Server)]
        {
            if places.is_empty() {
                return Err(RouteError::Missing(role));
            }
        }
        // The root of each tree, and the places there.
        let mut targets = Vec::new();
        for target in servers.iter().chain(&redirectors) {
            let root = self.hubs[*target as usize].place;
            if self.trees[root as usize] == NONE {
                self.trees[root as usize] = targets.len() as u32;
                targets.push((root, *target));
            }
        }
        let (trees, places) = (targets.len(), self.inner_count);
        if trees.saturating_mul(places) > MAX_KEPT {
            return Err(RouteError::TooMany { trees, places });
        }
        self.toward.reserve_exact(trees * places);
        for (root, target) in targets {
            let tree = self.shortest(topology, hops, root);
            self.toward.extend(tree);
            let row = &self.toward[self.toward.len() - places..];
            for from in clients.iter().chain(&redirectors) {
                let hub = self.hubs[*from as usize].place;
                if hub != root && row[self.inner[hub as usize] as usize] == Hop::NONE {
                    let name = |place: PlaceIndex| topology.places[place as usize].name.clone();
                    return Err(RouteError::NoWay { from: name(*from), to: name(target) });
                }
            }
        }
        Ok(())
    }

    /// For each inner place, the hop towards `root`. Of equally short paths it is the one with the
    /// fewest hops, then the one by the first link.
    fn shortest(&self, topology: &Topology, hops: &Outgoing, root: PlaceIndex) -> Vec<Hop> {
        let mut toward = vec![Hop::NONE; self.inner_count];
        let mut best = vec![(u64::MAX, u32::MAX, u32::MAX); self.inner_count];
        let mut queue = BinaryHeap::new();
        best[self.inner[root as usize] as usize] = (0, 0, 0);
        queue.push(Reverse((0, 0, root)));
        while let Some(Reverse((latency, length, place))) = queue.pop() {
            let (known, known_length, _) = best[self.inner[place as usize] as usize];
            let ends_here = place != root && !topology.places[place as usize].role.passes();
            if ends_here || (latency, length) != (known, known_length) {
                continue;
            }
            for hop in hops.of(place) {
                let next = end_of(&topology.links, *hop);
                let inner = self.inner[next as usize];
                if inner == NONE || next == root {
                    continue;
                }
                let way = (
                    latency.saturating_add(topology.links[hop.link()].latency_ns),
                    length + 1,
                    hop.link() as u32,
                );
                if way < best[inner as usize] {
                    best[inner as usize] = way;
                    toward[inner as usize] = hop.back();
                    queue.push(Reverse((way.0, way.1, next)));
                }
            }
        }
        toward
    }
}

/// The hops that leave each place, in the order of the links.
struct Outgoing {
    starts: Vec<u32>,
    hops: Vec<Hop>,
}

impl Outgoing {
    fn of(&self, place: PlaceIndex) -> &[Hop] {
        let place = place as usize;
        &self.hops[self.starts[place] as usize..self.starts[place + 1] as usize]
    }
}

fn outgoing(topology: &Topology) -> Outgoing {
    let both =
        |(n, link): (u32, &Link)| [(link.a, Hop::new(n, false)), (link.b, Hop::new(n, true))];
    let mut hops: Vec<_> = (0..).zip(&topology.links).flat_map(both).collect();
    hops.sort_unstable();
    let starts = (0..=topology.places.len() as u32)
        .map(|place| hops.partition_point(|(from, _)| *from < place) as u32)
        .collect();
    Outgoing { starts, hops: hops.into_iter().map(|(_, hop)| hop).collect() }
}

/// A place with one link, to a place that forwards packets, is a leaf of that place.
fn hubs(topology: &Topology, hops: &Outgoing) -> Vec<Hub> {
    let hub_of = |place: PlaceIndex| {
        let itself = Hub { place, access: None };
        let [only] = hops.of(place) else { return itself };
        let other = end_of(&topology.links, *only);
        let passes = topology.places[other as usize].role.passes();
        // Of two places that are linked only with each other, the one that forwards packets is the
        // hub of the other; if both do, the first one is.
        let alone = hops.of(other).len() == 1;
        let mutual = alone && topology.places[place as usize].role.passes() && place < other;
        if passes && !mutual { Hub { place: other, access: Some(*only) } } else { itself }
    };
    (0..topology.places.len() as PlaceIndex).map(hub_of).collect()
}

fn end_of(links: &[Link], hop: Hop) -> PlaceIndex {
    let link = &links[hop.link()];
    if hop == Hop::new(hop.link() as u32, false) { link.b } else { link.a }
}
