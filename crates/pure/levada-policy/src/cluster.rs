//! The view of the cluster that policies decide on: membership, health, load and distance.

use std::sync::Arc;

use levada_types::{Key, hash64, weigh};

use crate::LoadTable;

/// The index of a node in the cluster's list. Stable for the life of one [`Cluster`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// The index as a subscript.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// One node, as policies see it.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name from which hash orders are computed. Moving a node to another address moves no key.
    pub name: Arc<str>,
    /// [`hash64`] of the name.
    pub hash: u64,
    /// Relative capacity, above 0; 1 is usual.
    pub weight: f64,
    /// Round-trip time to the node relative to that of the nearest node, at least 1 (OSDI'02 Sec.
    /// 3.5).
    pub distance: f64,
    /// Whether requests may be sent there.
    pub up: bool,
    /// The part of its share, in 0..=1, that a node in slow start receives; 1 if it is not in slow
    /// start.
    pub ramp: f64,
}

impl Node {
    /// A node that is up, warm, near and of weight 1.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            hash: hash64(name.as_bytes()),
            weight: 1.0,
            distance: 1.0,
            up: true,
            ramp: 1.0,
        }
    }

    /// The weight for policies that repeat a node by weight: rounded, at least 1.
    pub(crate) fn repetitions(&self) -> u64 {
        self.weight.round().max(1.0) as u64
    }
}

/// Everything that a policy may know of the nodes. The driver makes a new one when membership,
/// health or weights change; loads change at any time, in the shared [`LoadTable`].
#[derive(Clone, Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    loads: Arc<LoadTable>,
    global: Option<Arc<LoadTable>>,
    membership: u64,
    up: Vec<NodeIndex>,
    ramping: bool,
    request_costs: Box<[f32]>,
    even: bool,
    uniform: bool,
    weight_up: f64,
    capacity_up: f64,
    turns: Box<[u64]>,
}

impl Cluster {
    /// The cluster of `nodes`. `loads` counts their outstanding requests, by index.
    ///
    /// # Panics
    /// When `loads` has another number of nodes, which is a mistake of the driver.
    pub fn new(nodes: Vec<Node>, loads: Arc<LoadTable>) -> Self {
        assert_eq!(nodes.len(), loads.len(), "one load per node");
        let membership = nodes
            .iter()
            .fold(nodes.len() as u64, |sum, n| weigh(Key(sum ^ n.weight.to_bits()), n.hash));
        let up = (0u32..).zip(&nodes).filter(|(_, n)| n.up).map(|(i, _)| NodeIndex(i)).collect();
        let ramping = nodes.iter().any(|n| n.up && n.ramp < 1.0);
        let request_costs = nodes.iter().map(request_cost).collect();
        let even = nodes.iter().all(|n| n.weight == 1.0);
        let weight_up = nodes.iter().filter(|n| n.up).map(|n| n.weight).sum();
        let capacity_up = nodes.iter().filter(|n| n.up).map(capacity).sum();
        let turns = if even { Box::default() } else { turns(&nodes) };
        Self {
            nodes,
            loads,
            global: None,
            membership,
            up,
            ramping,
            request_costs,
            even,
            uniform: even && !ramping,
            weight_up,
            capacity_up,
            turns,
        }
    }

    /// The same cluster with the load of every node over all redirectors (OSDI'02, FDR-Global).
    pub fn with_global_loads(mut self, global: Arc<LoadTable>) -> Self {
        assert_eq!(self.nodes.len(), global.len(), "one load per node");
        self.global = Some(global);
        self
    }

    /// The same cluster with the `tried` nodes marked as down: a retry uses this view.
    pub fn without(&self, tried: &[NodeIndex]) -> Self {
        let mut nodes = self.nodes.clone();
        for node in tried {
            nodes[node.get()].up = false;
        }
        let mut rest = Self::new(nodes, self.loads.clone());
        rest.global.clone_from(&self.global);
        rest
    }

    /// The number of nodes, up or down.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node at all.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The nodes, by index.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, node: NodeIndex) -> &Node {
        &self.nodes[node.get()]
    }

    /// The nodes that are up, ascending.
    pub fn up(&self) -> &[NodeIndex] {
        &self.up
    }

    /// Whether `node` is up.
    #[inline]
    pub fn is_up(&self, node: NodeIndex) -> bool {
        self.nodes[node.get()].up
    }

    /// Whether any node is in slow start.
    pub fn ramping(&self) -> bool {
        self.ramping
    }

    /// Whether every node has weight 1. Then loads can be compared without dividing by weight.
    #[inline]
    pub fn even(&self) -> bool {
        self.even
    }

    /// The sum of the weights of all nodes that are up.
    pub(crate) fn weight_up(&self) -> f64 {
        self.weight_up
    }

    /// Whether every node that is up has weight 1 and is warm.
    #[inline]
    pub(crate) fn uniform(&self) -> bool {
        self.uniform
    }

    /// The weight of `node` in slow start: weight x ramp, above 0.
    #[inline]
    pub(crate) fn capacity(&self, node: NodeIndex) -> f64 {
        if self.uniform { 1.0 } else { capacity(self.node(node)) }
    }

    /// The sum of the capacities of all nodes that are up.
    #[inline]
    pub(crate) fn capacity_up(&self) -> f64 {
        self.capacity_up
    }

    /// Outstanding requests from this redirector to `node`, relative to its capacity.
    #[inline]
    pub(crate) fn relative_load(&self, node: NodeIndex) -> f64 {
        f64::from(self.load(node)) / self.capacity(node)
    }

    /// Outstanding requests from this redirector to all nodes that are up.
    #[inline]
    pub(crate) fn outstanding_up(&self) -> u64 {
        if self.up.len() == self.len() {
            self.loads.total()
        } else {
            self.up.iter().map(|node| u64::from(self.load(*node))).sum()
        }
    }

    /// Prefix sums of the weights of the nodes that are up, rounded: the end of each node's part
    /// when every node is repeated by weight. Empty when all weights are 1.
    pub(crate) fn turns(&self) -> &[u64] {
        &self.turns
    }

    /// Whether `node` accepts requests for `key`: it is up, and if it is in slow start, `key`
    /// belongs to the part of the keys that it already accepts.
    ///
    /// The part grows with the ramp and never loses a key. So a node in slow start warms up key by
    /// key, and all redirectors agree on these keys
    /// (docs/decisions/0003-slow-start-under-hashing.md).
    #[inline]
    pub fn accepts(&self, node: NodeIndex, key: Key) -> bool {
        let n = &self.nodes[node.get()];
        if n.ramp >= 1.0 {
            return n.up;
        }
        // This hash differs from the one of the hash order. Otherwise a node would ramp up with
        // just the keys for which it ranks first.
        let place = weigh(Key(key.0.rotate_left(32)), !n.hash) >> 11;
        n.up && (place as f64) < n.ramp * (1u64 << 53) as f64
    }

    /// The load that one request adds to each node: 1 / (weight x ramp), infinite for a node that
    /// is down. A packed array, for policies that look at every node.
    #[inline]
    pub(crate) fn request_costs(&self) -> &[f32] {
        &self.request_costs
    }

    /// Changes when a node joins or leaves or a weight changes, not when a node goes down or comes
    /// up. Values that are derived from names and weights, such as a hash order, stay valid until
    /// it changes.
    #[inline]
    pub fn membership(&self) -> u64 {
        self.membership
    }

    /// Outstanding requests from this redirector to `node`.
    #[inline]
    pub fn load(&self, node: NodeIndex) -> u32 {
        self.loads.of(node)
    }

    /// This redirector's counts.
    pub fn loads(&self) -> &Arc<LoadTable> {
        &self.loads
    }

    /// The counts over all redirectors, if the driver has them.
    pub fn global_loads(&self) -> Option<&Arc<LoadTable>> {
        self.global.as_ref()
    }
}

fn turns(nodes: &[Node]) -> Box<[u64]> {
    let ends = nodes.iter().filter(|n| n.up).scan(0, |end, node| {
        *end += node.repetitions();
        Some(*end)
    });
    ends.collect()
}

fn request_cost(node: &Node) -> f32 {
    if node.up { (1.0 / capacity(node)) as f32 } else { f32::INFINITY }
}

/// Weight x ramp. A node at ramp 0 is the last choice, but it can be chosen: millions of requests
/// give a finite load.
fn capacity(node: &Node) -> f64 {
    const COLD: f64 = 1e-28;
    (node.weight * node.ramp).max(COLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(nodes: Vec<Node>) -> Cluster {
        let loads = LoadTable::new(nodes.len());
        Cluster::new(nodes, loads)
    }

    #[test]
    fn a_ramp_only_ever_adds_keys() {
        let at = |ramp| cluster(vec![Node { ramp, ..Node::new("a") }]);
        let (low, high) = (at(0.3), at(0.6));
        let taken = |c: &Cluster| {
            (0..10_000).filter(|&k| c.accepts(NodeIndex(0), Key(k))).collect::<Vec<_>>()
        };
        let (low, high) = (taken(&low), taken(&high));
        assert!((2_700..3_300).contains(&low.len()), "{}", low.len());
        assert!((5_700..6_300).contains(&high.len()), "{}", high.len());
        assert!(low.iter().all(|key| high.binary_search(key).is_ok()));
        assert!(taken(&at(0.0)).is_empty());
    }

    #[test]
    fn health_leaves_membership_alone() {
        let up = cluster(vec![Node::new("a"), Node::new("b")]);
        let down = up.without(&[NodeIndex(1)]);
        assert_eq!(up.membership(), down.membership());
        assert_eq!(down.up(), [NodeIndex(0)]);
        let other = cluster(vec![Node::new("a"), Node::new("c")]);
        assert_ne!(up.membership(), other.membership());
    }
}
