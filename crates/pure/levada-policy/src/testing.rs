//! Tiny worlds for the tests of policies.

use std::collections::BTreeMap;

use levada_types::{Key, Request, Rng, Timestamp};

use crate::{Cluster, LoadTable, Node, NodeIndex, ParameterValue, Pick, PickContext, Policy};

/// `count` nodes that are up, warm, near and of weight 1.
pub(crate) fn nodes(count: usize) -> Vec<Node> {
    (0..count).map(|i| Node::new(&format!("node-{i}"))).collect()
}

/// The idle cluster of `nodes`.
pub(crate) fn cluster(nodes: Vec<Node>) -> Cluster {
    let loads = LoadTable::new(nodes.len());
    Cluster::new(nodes, loads)
}

/// A cluster with one node per entry of `loads`, with these outstanding requests.
pub(crate) fn loaded(loads: &[u32]) -> Cluster {
    let cluster = cluster(nodes(loads.len()));
    set_loads(&cluster, loads);
    cluster
}

/// Sets the outstanding requests of every node.
pub(crate) fn set_loads(cluster: &Cluster, loads: &[u32]) {
    for (node, load) in (0..).zip(loads) {
        cluster.loads().set(NodeIndex(node), *load);
    }
}

/// The policy `name` with these parameters, in a default deployment.
pub(crate) fn policy(name: &str, given: &[(&str, ParameterValue)]) -> Box<dyn Policy> {
    let given: BTreeMap<_, _> = given.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    crate::build(name, &given, &crate::Deployment::default()).expect(name)
}

/// A policy with its time and its random generator.
pub(crate) struct World {
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) now: Timestamp,
    pub(crate) rng: Rng,
}

impl World {
    pub(crate) fn new(name: &str, given: &[(&str, ParameterValue)]) -> Self {
        Self { policy: policy(name, given), now: Timestamp::ZERO, rng: Rng::new(1) }
    }

    pub(crate) fn at_secs(&mut self, seconds: u64) -> &mut Self {
        self.now = Timestamp::from_secs(seconds);
        self
    }

    pub(crate) fn pick(&mut self, request: &Request, cluster: &Cluster) -> Option<Pick> {
        let mut context = PickContext { now: self.now, rng: &mut self.rng };
        self.policy.pick(request, cluster, &mut context)
    }

    /// The node for a request for object `key`.
    pub(crate) fn node(&mut self, key: u64, cluster: &Cluster) -> u32 {
        self.pick(&Request::new(Key(key)), cluster).expect("a node is up").node.0
    }

    /// The number of picks of each node in `count` requests for different objects.
    pub(crate) fn spread(&mut self, count: u64, cluster: &Cluster) -> Vec<u32> {
        let mut picks = vec![0; cluster.len()];
        for key in 0..count {
            picks[self.node(key, cluster) as usize] += 1;
        }
        picks
    }
}
