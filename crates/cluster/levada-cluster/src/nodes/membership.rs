//! One generation of the cluster.

use std::{sync::Arc, time::Duration};

use levada_policy::{Cluster, LoadTable, Node as ClusterNode, NodeIndex, distances};
use levada_tls::secret::Secrets;
use levada_types::{Key, Timestamp};
use levada_upstream::{HealthCheck, Server};

use crate::nodes::{Member, Peer, Peering, WatchedPeer};

/// The nodes of the cluster, this one among them. An index is valid only in the generation that it comes from. Policies
/// choose among the nodes of this node's region.
pub struct Membership {
    pub(crate) generation: Arc<Generation>,
    cluster: Cluster,
}

/// The part that changes of health leave alone.
pub(crate) struct Generation {
    me: NodeIndex,
    /// All nodes. Those of this node's region come first, as many as `nodes` has.
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) settings: Peering,
    pub(crate) check: Arc<HealthCheck>,
    pub(crate) loads: Arc<LoadTable>,
    nodes: Vec<ClusterNode>,
    region: Arc<str>,
}

/// The index of the node that an observer is: there is none.
const NOBODY: NodeIndex = NodeIndex(u32::MAX);

impl Generation {
    /// The nodes of `settings`, which are `members` in the same order: those of one region first, the node `name` among
    /// them, which is this one, unless an observer has made it.
    pub(crate) fn new(name: &str, settings: Peering, members: Vec<Arc<Member>>) -> Self {
        let me = settings.peers.iter().position(|peer| peer.name == name);
        let region = settings.region_of(name);
        let nodes = nodes(name, &settings);
        Self {
            me: me.map_or(NOBODY, |me| NodeIndex(me as u32)),
            region,
            members,
            check: Arc::new(settings.health.clone()),
            loads: LoadTable::new(nodes.len()),
            settings,
            nodes,
        }
    }

    /// Where the node of this name is, if it is of this node's region.
    pub(crate) fn place(&self, name: &str) -> Option<NodeIndex> {
        let near = self.nodes.iter().position(|node| *node.name == *name)?;
        Some(NodeIndex(near as u32))
    }

    /// The nodes with their present health and distances.
    fn nodes(&self, now: Timestamp) -> Vec<ClusterNode> {
        let known = self.settings.peers.iter().zip(&self.members).take(self.nodes.len());
        let distances = distances(known.map(|(peer, member)| (peer.rtt, member.measured_trip())));
        let seen =
            |(((at, node), member), distance): (((u32, &ClusterNode), &Arc<Member>), f64)| {
                let (health, is_me) = (&member.server.health, NodeIndex(at) == self.me);
                ClusterNode {
                    distance,
                    up: is_me || health.is_up(),
                    ramp: if is_me { 1.0 } else { health.ramp(self.settings.slow_start, now) },
                    ..node.clone()
                }
            };
        (0..).zip(&self.nodes).zip(&self.members).zip(distances).map(seen).collect()
    }
}

impl Membership {
    pub(crate) fn new(generation: Arc<Generation>, now: Timestamp) -> Self {
        let cluster = Cluster::new(generation.nodes(now), generation.loads.clone());
        Self { generation, cluster }
    }

    /// This node. The index of an observer is that of no node.
    pub fn me(&self) -> NodeIndex {
        self.generation.me
    }

    /// The nodes as policies see them.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Requests that this node has sent to each node and that are not finished.
    pub fn loads(&self) -> &Arc<LoadTable> {
        &self.generation.loads
    }

    /// A node.
    pub fn member(&self, node: NodeIndex) -> &Arc<Member> {
        &self.generation.members[node.get()]
    }

    /// The nodes of this node's region with their indices.
    pub fn members(&self) -> impl Iterator<Item = (NodeIndex, &Arc<Member>)> {
        self.all().take(self.generation.nodes.len())
    }

    /// The nodes of all regions with their indices; those of this node's region come first.
    pub fn all(&self) -> impl Iterator<Item = (NodeIndex, &Arc<Member>)> {
        (0..).map(NodeIndex).zip(&self.generation.members)
    }

    /// All nodes but this one.
    pub fn others(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.all().filter(|(node, _)| *node != self.me()).map(|(_, member)| member)
    }

    /// The region of this node; empty where there are none, and for an observer.
    pub fn region(&self) -> &Arc<str> {
        &self.generation.region
    }

    /// The nodes of a region that are up, in the order of highest random weight for `key`: for each object, all nodes
    /// of the cluster have the same order.
    pub fn of_region(&self, region: &str, key: Key) -> Vec<Arc<Member>> {
        let peers = self.settings().peers.iter().zip(&self.generation.members);
        let able = peers.filter(|(peer, one)| *peer.region == *region && one.server.health.is_up());
        let (nodes, able): (Vec<_>, Vec<_>) = able.map(|(peer, one)| (node(peer), one)).unzip();
        let order = levada_policy::rendezvous(key, (0..).map(NodeIndex).zip(&nodes));
        order.into_iter().map(|at| able[at.get()].clone()).collect()
    }

    /// The nodes of this node's region in the order of highest random weight for `key`, whether or not they are up.
    pub(crate) fn region_in_order(&self, key: Key) -> Vec<NodeIndex> {
        levada_policy::rendezvous(key, (0..).map(NodeIndex).zip(&self.generation.nodes))
    }

    /// The round trip to a node, stated or measured, once it is known.
    pub fn round_trip(&self, node: NodeIndex) -> Option<Duration> {
        self.settings().peers[node.get()].rtt.or_else(|| self.member(node).measured_trip())
    }

    /// The node of this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Member>> {
        self.generation.members.iter().find(|member| *member.server.name == *name)
    }

    /// The node with this slot.
    pub fn in_slot(&self, slot: usize) -> Option<(NodeIndex, &Arc<Member>)> {
        self.members().find(|(_, member)| member.slot == slot)
    }

    /// The server of a node.
    pub fn server(&self, node: NodeIndex) -> &Arc<Server> {
        &self.member(node).server
    }

    /// The cluster with the nodes in these slots marked as down.
    pub fn without(&self, slots: &[usize]) -> Cluster {
        let is_out = |(_, member): &(NodeIndex, &Arc<Member>)| slots.contains(&member.slot);
        let out: Vec<_> = self.members().filter(is_out).map(|(node, _)| node).collect();
        self.cluster.without(&out)
    }

    /// A node with its health check.
    pub fn watched(&self, member: &Arc<Member>) -> WatchedPeer {
        WatchedPeer { member: member.clone(), check: self.generation.check.clone() }
    }

    /// The number of nodes that are up, this one included.
    pub fn nodes_up(&self) -> u32 {
        let up = self.generation.members.iter().filter(|member| member.server.health.is_up());
        up.count().max(1) as u32
    }

    /// A node's URL for clients.
    pub fn client_url(&self, node: NodeIndex) -> Option<&str> {
        self.settings().peers[node.get()].client_url.as_deref()
    }

    /// The settings.
    pub fn settings(&self) -> &Peering {
        &self.generation.settings
    }

    /// The secrets of this cluster.
    pub fn secrets(&self) -> Option<&Secrets> {
        self.settings().trust.secrets()
    }
}

/// The nodes of the region of the node `name`, before anything is known of their health and before anything is
/// measured.
pub fn nodes(name: &str, peering: &Peering) -> Vec<ClusterNode> {
    let region = peering.region_of(name);
    let near = || peering.peers.iter().filter(|peer| peer.region == region);
    let distances = distances(near().map(|peer| (peer.rtt, None)));
    near().zip(distances).map(|(peer, distance)| ClusterNode { distance, ..node(peer) }).collect()
}

fn node(peer: &Peer) -> ClusterNode {
    ClusterNode { weight: peer.weight, ..ClusterNode::new(&peer.name) }
}
