//! The nodes of this moment. Their keeper makes a new value when anything changes.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::{Deref, DerefMut},
    sync::Arc,
};

use levada_policy::{Node as PolicyNode, NodeIndex, rendezvous};
use levada_types::{Key, hash64, weigh};

use super::Networks;

/// A node, as its health checks see it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeState {
    /// Its name.
    pub name: Arc<str>,
    /// Its region.
    pub region: Arc<str>,
    /// Its addresses for clients.
    pub v4: Vec<Ipv4Addr>,
    /// The same in IPv6.
    pub v6: Vec<Ipv6Addr>,
    /// Its capacity, relative to other nodes.
    pub weight: f64,
    /// Whether it answers and serves clients.
    pub ready: bool,
    /// Whether it is being emptied.
    pub draining: bool,
    /// The part of its capacity that is in use, in 0..=1.
    pub load: f64,
}

/// The regions that tables name, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions(Vec<Arc<str>>);

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Version 4.
    V4 = 0,
    /// Version 6.
    V6 = 1,
}

/// The most nodes of an answer.
pub const MOST_NODES: usize = 16;

/// Nodes for an answer, the first one best.
#[derive(Clone, Copy, Debug, Default)]
pub struct Picked {
    nodes: [NodeIndex; MOST_NODES],
    count: usize,
}

/// The nodes of all regions.
pub struct Nodes {
    states: Vec<NodeState>,
    hashed: Vec<PolicyNode>,
    /// Whether all nodes have one weight.
    even: bool,
    names: HashMap<Arc<str>, u32>,
    /// Nodes by their names as labels of DNS.
    labels: HashMap<Box<[u8]>, u32>,
    /// By region and family.
    pools: Vec<[Pool; 2]>,
    /// The regions near networks of clients, as nodes have measured.
    distances: Arc<Networks>,
}

/// The nodes of a region that have addresses of a family.
#[derive(Default)]
struct Pool {
    /// The ones that can be answered.
    good: Vec<NodeIndex>,
    /// All of them.
    all: Vec<NodeIndex>,
}

/// Below this load a node is not passed over,
const BUSY: f64 = 0.5;
/// and above it only when it has as many times the mean load of the nodes of its region (consistent hashing with
/// bounded loads, Mirrokni, Thorup and Zadimoghaddam, SODA'18).
const BOUND: f64 = 1.25;

impl Regions {
    /// These regions.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut regions = Self::default();
        for name in names {
            regions.number(name);
        }
        regions
    }

    /// The number of a region, which gets one if it has none; `None` when there are too many.
    pub fn number(&mut self, name: &str) -> Option<u16> {
        if let Some(known) = self.find(name) {
            return Some(known);
        }
        let number = u16::try_from(self.0.len()).ok().filter(|number| *number < u16::MAX - 1)?;
        self.0.push(name.into());
        Some(number)
    }

    /// The number of a region.
    pub fn find(&self, name: &str) -> Option<u16> {
        let at = self.0.iter().position(|region| **region == *name)?;
        Some(at as u16)
    }

    /// Its name.
    pub fn name(&self, number: u16) -> &str {
        self.0.get(usize::from(number)).map_or("", |name| name)
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl NodeState {
    fn has(&self, family: Family) -> bool {
        match family {
            Family::V4 => !self.v4.is_empty(),
            Family::V6 => !self.v6.is_empty(),
        }
    }

    fn is_good(&self) -> bool {
        self.ready && !self.draining
    }
}

impl Nodes {
    /// The nodes of these regions. One of another region is in no region's answers.
    pub fn new(states: Vec<NodeState>, regions: &Regions) -> Self {
        let hashed = states
            .iter()
            .map(|state| PolicyNode { weight: state.weight, ..PolicyNode::new(&state.name) })
            .collect();
        let names = states.iter().zip(0..).map(|(state, at)| (state.name.clone(), at)).collect();
        let label = |(state, at): (&NodeState, u32)| (label(&state.name).into_bytes().into(), at);
        let labels = states.iter().zip(0..).map(label).collect();
        let pool = |region: &Arc<str>| {
            [Family::V4, Family::V6].map(|family| Pool::new(&states, region, family))
        };
        let pools = regions.names().map(pool).collect();
        let even = states.windows(2).all(|pair| pair[0].weight == pair[1].weight);
        Self { hashed, even, names, labels, pools, states, distances: Arc::default() }
    }

    /// The same with distances that were measured.
    #[must_use]
    pub fn with_distances(self, distances: Arc<Networks>) -> Self {
        Self { distances, ..self }
    }

    /// The regions near networks of clients.
    pub fn distances(&self) -> &Networks {
        &self.distances
    }

    /// The node at an index.
    pub fn state(&self, node: NodeIndex) -> &NodeState {
        &self.states[node.get()]
    }

    /// All nodes.
    pub fn states(&self) -> &[NodeState] {
        &self.states
    }

    /// The node whose name is this label, in lower case.
    pub fn labelled(&self, label: &[u8]) -> Option<&NodeState> {
        self.labels.get(label).map(|at| self.state(NodeIndex(*at)))
    }

    /// The first of these regions that has a node which can be answered; if none has, the first that has any node.
    pub(super) fn region(&self, regions: &[u16], family: Family) -> Option<u16> {
        let pool = |region: &&u16| {
            self.pools.get(usize::from(**region)).map(|pools| &pools[family as usize])
        };
        let good =
            regions.iter().find(|region| pool(region).is_some_and(|pool| !pool.good.is_empty()));
        let any =
            || regions.iter().find(|region| pool(region).is_some_and(|pool| !pool.all.is_empty()));
        good.or_else(any).copied()
    }

    /// Nodes of a region for a name: at most as many, in the order of highest random weight, so that a name stays on
    /// the same ones.
    pub(super) fn of_region(&self, region: u16, family: Family, name: Key, most: usize) -> Picked {
        let Some(pools) = self.pools.get(usize::from(region)) else { return Picked::default() };
        let pool = &pools[family as usize];
        let nodes = if pool.good.is_empty() { &pool.all } else { &pool.good };
        self.first(nodes.iter().copied(), name, most)
    }

    /// The same among the nodes of these names that can be answered.
    pub(super) fn named(
        &self,
        names: &[Arc<str>],
        family: Family,
        name: Key,
        most: usize,
    ) -> Picked {
        let known = names.iter().filter_map(|name| self.names.get(name).map(|at| NodeIndex(*at)));
        let good = known.filter(|at| self.state(*at).is_good() && self.state(*at).has(family));
        self.first(good, name, most)
    }

    /// The first nodes of the order of highest random weight.
    fn first(&self, nodes: impl Iterator<Item = NodeIndex>, name: Key, most: usize) -> Picked {
        let mut picked = Picked::default();
        let most = most.min(MOST_NODES);
        if !self.even {
            let order = rendezvous(name, nodes.map(|node| (node, &self.hashed[node.get()])));
            picked.count = order.len().min(most);
            picked.nodes[..picked.count].copy_from_slice(&order[..picked.count]);
            return picked;
        }
        // With equal weights the order is that of the hashes, and needs no logarithms.
        let mut weights = [0; MOST_NODES];
        for node in nodes {
            let weight = weigh(name, self.hashed[node.get()].hash);
            let place = weights[..picked.count].partition_point(|other| *other >= weight);
            if place < most {
                picked.count = most.min(picked.count + 1);
                weights.copy_within(place..picked.count - 1, place + 1);
                picked.nodes.copy_within(place..picked.count - 1, place + 1);
                (weights[place], picked.nodes[place]) = (weight, node);
            }
        }
        picked
    }
}

/// The name of a node as a label of DNS: in lower case, up to the first dot.
pub fn label(name: &str) -> String {
    name.split('.').next().unwrap_or_default().to_ascii_lowercase()
}

impl Picked {
    /// So many of them for a client: each network of clients has a place to begin at.
    pub(super) fn turned(mut self, client: IpAddr, most: usize) -> Self {
        if self.count > most {
            let network = match client {
                IpAddr::V4(v4) => u64::from(u32::from(v4) >> 8),
                IpAddr::V6(v6) => (u128::from(v6) >> 80) as u64,
            };
            let turn = hash64(&network.to_be_bytes()) as usize % self.count;
            self.rotate_left(turn);
            self.count = most;
        }
        self
    }
}

impl Deref for Picked {
    type Target = [NodeIndex];

    fn deref(&self) -> &[NodeIndex] {
        &self.nodes[..self.count]
    }
}

impl DerefMut for Picked {
    fn deref_mut(&mut self) -> &mut [NodeIndex] {
        &mut self.nodes[..self.count]
    }
}

impl Pool {
    fn new(states: &[NodeState], region: &Arc<str>, family: Family) -> Self {
        let own = || {
            (0..)
                .map(NodeIndex)
                .zip(states)
                .filter(|(_, state)| state.region == *region && state.has(family))
        };
        let all = own().map(|(at, _)| at).collect();
        let good: Vec<_> = own().filter(|(_, state)| state.is_good()).collect();
        let mean = good.iter().map(|(_, state)| state.load).sum::<f64>() / good.len().max(1) as f64;
        let bound = BUSY.max(BOUND * mean);
        // Not all can be above the mean: some are left.
        let good =
            good.into_iter().filter(|(_, state)| state.load <= bound).map(|(at, _)| at).collect();
        Self { good, all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_equal_weights_is_that_of_the_policy() {
        let node = |at: u8, weight| NodeState {
            name: format!("n{at}").into(),
            region: "eu".into(),
            v4: vec![[192, 0, 2, at].into()],
            v6: Vec::new(),
            weight,
            ready: true,
            draining: false,
            load: 0.0,
        };
        let regions = Regions::new(["eu"]);
        let even = Nodes::new((0..9).map(|at| node(at, 2.0)).collect(), &regions);
        let uneven = Nodes::new(
            (0..9).map(|at| node(at, if at < 8 { 2.0 } else { 0.001 })).collect(),
            &regions,
        );
        for key in 0..200 {
            let pick =
                |nodes: &Nodes, most| nodes.of_region(0, Family::V4, Key(key), most).to_vec();
            let order = rendezvous(Key(key), (0..).map(NodeIndex).zip(&even.hashed));
            for most in [1, 3, 9, 16] {
                assert_eq!(pick(&even, most), order[..most.min(9)], "{key} {most}");
            }
            let light = NodeIndex(8);
            let rest: Vec<_> = order.into_iter().filter(|node| *node != light).collect();
            let found: Vec<_> =
                pick(&uneven, 16).into_iter().filter(|node| *node != light).collect();
            assert_eq!(found, rest, "{key}");
        }
    }
}
