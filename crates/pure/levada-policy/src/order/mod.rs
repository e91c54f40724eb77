//! The hash order of a key: all nodes, from the node that is responsible for the key to the last
//! resort.
//!
//! An order depends on names and weights only. So it is computed once per key, as deep as the
//! longest walk, and kept in a [`cache`] until the membership changes. The walk itself checks
//! health and slow start: a change of health never invalidates an order, and a node that comes back
//! gets its keys back.

mod cache;
mod hrw;
mod ring;

pub(crate) use hrw::first_of;
pub use hrw::rendezvous;

use levada_types::Key;

use crate::{
    Candidates, Cluster, Deployment, Kind, NodeIndex, Parameter, Parameters, Setting,
    shared::SharedTable,
};
pub(crate) use cache::scale;
use cache::{Cache, Place};
use hrw::Hrw;
use ring::Ring;

/// The method that derives an order from a key and the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Highest random weight: by `hash(url, server)`, descending.
    Hrw,
    /// Clockwise around the circle of consistent hashing; every node appears once.
    Ring,
    /// The servers closest to a number of evenly spaced points of the circle (R-CHash), then
    /// clockwise.
    Spread,
}

impl Method {
    /// The method that the parameter [`ORDER`] selects.
    pub(crate) fn named(parameters: &Parameters) -> Self {
        if parameters.choice(ORDER.name) == "ring" { Self::Ring } else { Self::Hrw }
    }
}

/// The orders of all keys under one method.
#[derive(Clone)]
pub(crate) struct Order {
    method: Method,
    points: u64,
    depth: usize,
    table: SharedTable<OrderTable>,
    cache: Cache,
    // The result of `first`; the field keeps its allocation.
    set: Vec<NodeIndex>,
}

impl Order {
    /// Walks usually need the first `depth` nodes; under [`Method::Spread`] `depth` is also the
    /// number of points. Circles read the parameter [`POINTS`]; all methods read [`ORDER_CACHE`].
    pub(crate) fn new(
        method: Method,
        depth: usize,
        parameters: &Parameters,
        deployment: &Deployment,
    ) -> Self {
        let points = match method {
            Method::Hrw => 0,
            Method::Ring | Method::Spread => given(parameters, &POINTS),
        };
        let entries = given(parameters, &ORDER_CACHE) / u64::from(deployment.shards);
        let cache = Cache::new(entries as usize);
        Self { method, points, depth, table: SharedTable::new(), cache, set: Vec::new() }
    }

    /// The set of `key`: the first `count` nodes of its walk, but at most the nodes that the order
    /// itself includes in the set (for R-CHash, the distinct servers closest to the points).
    pub(crate) fn first(&mut self, key: Key, cluster: &Cluster, count: usize) -> &[NodeIndex] {
        let mut set = std::mem::take(&mut self.set);
        set.clear();
        let mut walk = self.walk(key, cluster);
        let count = count.min(walk.spread());
        if !walk.append_cached(count, &mut set) {
            set.extend(walk.take(count));
        }
        self.set = set;
        &self.set
    }

    /// The walk of `key` to the end of the set of `count` nodes that begins at `first`, and the place
    /// of `first` in it. Without `first`, or if `first` does not accept the key, the set begins at
    /// place 0.
    pub(crate) fn walk_through(
        &mut self,
        key: Key,
        cluster: &Cluster,
        first: Option<NodeIndex>,
        count: usize,
    ) -> (&[NodeIndex], usize) {
        let Some(first) = first.filter(|node| cluster.accepts(*node, key)) else {
            return (self.first(key, cluster, count), 0);
        };
        let mut set = std::mem::take(&mut self.set);
        set.clear();
        let mut walk = self.walk(key, cluster);
        let cached = walk.cached_position(first);
        let start = match cached {
            Some(start) if walk.append_cached(start + count, &mut set) => start,
            _ => {
                set.extend(walk.by_ref().take_while(|node| *node != first));
                let start = set.len();
                set.push(first);
                set.extend(walk.take(count.saturating_sub(1)));
                start
            }
        };
        self.set = set;
        (&self.set, start)
    }

    /// Computes orders from the same table as `first`, the order of another shard.
    pub(crate) fn join(&mut self, first: &Self) {
        self.table.join(&first.table);
    }

    /// Begins to read the order of `key`, for a walk that follows soon.
    #[inline]
    pub(crate) fn prefetch(&self, key: Key) {
        self.cache.prefetch(key);
    }

    /// Walks the order of `key` over the nodes of `cluster` that accept it.
    pub(crate) fn walk<'a>(&'a mut self, key: Key, cluster: &'a Cluster) -> Walk<'a> {
        if self.table.of(cluster).is_none() {
            self.cache.clear();
            let (method, points, depth) = (self.method, self.points, self.depth);
            self.table.follow(cluster, || OrderTable::new(method, points, depth, cluster));
        }
        Walk {
            place: self.cache.place(key),
            order: self,
            key,
            cluster,
            position: 0,
            unseen: cluster.up().len(),
            yielded: false,
            filter: if cluster.ramping() {
                Filter::Accepting
            } else if cluster.up().len() < cluster.len() {
                Filter::Up
            } else {
                Filter::None
            },
        }
    }

    /// The candidates for `explain`: every node that is up, in the order of `key`, nodes that
    /// accept it first.
    pub(crate) fn candidates(&self, key: Key, cluster: &Cluster, set: usize) -> Candidates {
        let (order, spread) = self.whole(key, cluster);
        let (taking, others): (Vec<_>, Vec<_>) =
            order.into_iter().filter(|n| cluster.is_up(*n)).partition(|n| cluster.accepts(*n, key));
        let responsible = if taking.is_empty() { others.len() } else { taking.len() };
        let set_size = set.min(spread).min(responsible);
        Candidates { order: [taking, others].concat(), set_size }
    }

    fn whole(&self, key: Key, cluster: &Cluster) -> (Vec<NodeIndex>, usize) {
        let fresh;
        let table = match self.table.of(cluster) {
            Some(table) => table,
            None => {
                fresh = OrderTable::new(self.method, self.points, self.depth, cluster);
                &fresh
            }
        };
        let mut order = vec![NodeIndex(0); cluster.len()];
        let spread = table.fill(key, &mut order);
        (order, spread)
    }

    /// The node at `position` of the order, up or down; `None` beyond the end.
    #[inline]
    fn nth(&mut self, key: Key, place: Place, position: usize) -> Option<NodeIndex> {
        match self.cache.known(key, place, position) {
            Some(node) => Some(node),
            None => self.work_out(key, place, position),
        }
    }

    #[inline(never)]
    fn work_out(&mut self, key: Key, place: Place, position: usize) -> Option<NodeIndex> {
        let table = self.table.known()?;
        self.cache.extend(key, place, position, self.depth, table)
    }
}

fn given(parameters: &Parameters, parameter: &Parameter) -> u64 {
    parameters.integer(parameter.name).unwrap_or_default()
}

/// A walk along one order. Yields every node that accepts the key once. If none does, because all
/// nodes that are up are in slow start, yields every node that is up.
pub(crate) struct Walk<'a> {
    order: &'a mut Order,
    key: Key,
    cluster: &'a Cluster,
    place: Place,
    position: usize,
    // Nodes that are up and not yet visited: the walk ends with the last of them.
    unseen: usize,
    yielded: bool,
    filter: Filter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Filter {
    None,
    Up,
    Accepting,
}

impl Walk<'_> {
    /// Appends the first `count` nodes to `set` if all nodes accept all keys, and says whether it did.
    #[inline]
    fn append_cached(&mut self, count: usize, set: &mut Vec<NodeIndex>) -> bool {
        let count = count.min(self.unseen);
        if self.filter != Filter::None || count == 0 {
            return false;
        }
        self.order.nth(self.key, self.place, count - 1);
        self.order.cache.append(self.key, self.place, count, set)
    }

    /// The position of `node`, if all nodes accept all keys and the order is cached up to there.
    #[inline]
    fn cached_position(&self, node: NodeIndex) -> Option<usize> {
        let cached = || self.order.cache.position(self.key, self.place, node);
        (self.filter == Filter::None).then(cached).flatten()
    }

    /// The number of nodes that the order itself includes in the key's set. Only R-CHash limits it.
    fn spread(&mut self) -> usize {
        if self.order.method != Method::Spread || self.unseen == 0 {
            return usize::MAX;
        }
        let _ = self.order.nth(self.key, self.place, 0);
        self.order.cache.spread(self.key, self.place)
    }
}

impl Iterator for Walk<'_> {
    type Item = NodeIndex;

    #[inline]
    fn next(&mut self) -> Option<NodeIndex> {
        loop {
            if self.unseen == 0 {
                if self.yielded || self.filter != Filter::Accepting {
                    return None;
                }
                self.filter = Filter::Up;
                self.position = 0;
                self.unseen = self.cluster.up().len();
                if self.unseen == 0 {
                    return None;
                }
            }
            let node = self.order.nth(self.key, self.place, self.position)?;
            self.position += 1;
            if self.filter != Filter::None && !self.cluster.is_up(node) {
                continue;
            }
            self.unseen -= 1;
            if self.filter != Filter::Accepting || self.cluster.accepts(node, self.key) {
                self.yielded = true;
                return Some(node);
            }
        }
    }
}

/// The data from which orders of one membership are computed.
enum OrderTable {
    Hrw(Hrw),
    Ring(Ring),
    Spread(Ring, usize),
}

impl OrderTable {
    fn new(method: Method, points: u64, depth: usize, cluster: &Cluster) -> Self {
        let nodes = cluster.nodes();
        match method {
            Method::Hrw => Self::Hrw(Hrw::new(nodes)),
            Method::Ring => Self::Ring(Ring::new(nodes, points)),
            Method::Spread => Self::Spread(Ring::new(nodes, points), depth.min(nodes.len())),
        }
    }

    /// Writes the first `out.len()` nodes of the order of `key`, at most as many as there are.
    /// Returns the limit that [`Walk::spread`] describes.
    fn fill(&self, key: Key, out: &mut [NodeIndex]) -> usize {
        match self {
            Self::Hrw(hrw) => hrw.fill(key, out),
            Self::Ring(ring) => ring.clockwise(key, out),
            Self::Spread(ring, replicas) => return ring.spread(key, *replicas, out),
        }
        usize::MAX
    }

    fn nodes(&self) -> usize {
        match self {
            Self::Hrw(hrw) => hrw.nodes(),
            Self::Ring(ring) | Self::Spread(ring, _) => ring.nodes(),
        }
    }
}

/// The number of cached orders.
pub(crate) const ORDER_CACHE: Parameter = Parameter {
    name: "order_cache",
    kind: Kind::Integer(0, 1 << 24),
    default: Setting::Integer(262_144),
    unit: "objects",
    help: "The number of cached hash orders, of 32 bytes each (OSDI'02 Sec. 2.2: orders can be cached).",
};

/// The number of points on the circle.
pub(crate) const POINTS: Parameter = Parameter {
    name: "points",
    kind: Kind::Integer(1, 4096),
    default: Setting::Integer(50),
    unit: "points",
    help: "Points per server of weight 1 on the circle; OSDI'02 does not give a number. With one point per server, shares are very uneven.",
};

/// The kind of order that is walked.
pub(crate) const ORDER: Parameter = Parameter {
    name: "order",
    kind: Kind::Choice(&["hrw", "ring"]),
    default: Setting::Choice("hrw"),
    unit: "",
    help: "Highest random weight, or clockwise on the circle, where a full server's load moves to its neighbour (OSDI'02 Sec. 3.4.2).",
};

#[cfg(test)]
mod tests;
