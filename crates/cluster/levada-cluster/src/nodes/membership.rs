//! One generation of the cluster.

use std::{
    borrow::Cow,
    sync::{Arc, Weak},
    time::Duration,
};

use levada_policy::{Cluster, LoadTable, Node as ClusterNode, NodeIndex, distances};
use levada_tls::secret::Secrets;
use levada_types::{Key, Timestamp};
use levada_upstream::{HealthCheck, Server};

use crate::nodes::{Member, Peer, Peering, Peers, WatchedPeer};

/// The nodes of the cluster, this one among them. An index is valid only in the generation that it comes from. Policies
/// choose among the nodes of one region, mostly this node's.
pub struct Membership {
    pub(crate) generation: Arc<Generation>,
    /// The nodes of each region as policies see them; those of this node's region come first.
    clusters: Vec<Cluster>,
}

/// The part that changes of health leave alone.
pub(crate) struct Generation {
    me: NodeIndex,
    /// All nodes, region by region.
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) settings: Peering,
    pub(crate) check: Arc<HealthCheck>,
    /// This node's region comes first, even if an observer is the only one there.
    regions: Vec<Region>,
}

/// The nodes of a region.
struct Region {
    name: Arc<str>,
    /// The index of its first node among all nodes.
    first: usize,
    nodes: Vec<ClusterNode>,
    /// The requests that this node has sent to each of them.
    loads: Arc<LoadTable>,
}

/// The index of the node that an observer is: there is none.
const NOBODY: NodeIndex = NodeIndex(u32::MAX);

impl Region {
    fn new(name: Arc<str>, first: usize, peers: &[Peer]) -> Self {
        let nodes = peers.iter().map(node).collect();
        Self { name, first, nodes, loads: LoadTable::new(peers.len()) }
    }
}

impl Generation {
    /// The nodes of `settings`, which are `members` in the same order: region by region, that of the node `name` first.
    /// This node is that one, unless an observer has made it.
    pub(crate) fn new(name: &str, settings: Peering, members: Vec<Arc<Member>>) -> Self {
        let me = settings.peers.iter().position(|peer| peer.name == name);
        let own = settings.region_of(name);
        let here = settings.peers.iter().take_while(|peer| peer.region == own).count();
        let (near, far) = settings.peers.split_at(here);
        let mut regions = vec![Region::new(own, 0, near)];
        let mut first = here;
        for peers in far.chunk_by(|a, b| a.region == b.region) {
            regions.push(Region::new(peers[0].region.clone(), first, peers));
            first += peers.len();
        }
        Self {
            me: me.map_or(NOBODY, |me| NodeIndex(me as u32)),
            members,
            check: Arc::new(settings.health.clone()),
            settings,
            regions,
        }
    }

    /// Lets the counts of requests that began under `before` go on here. Returns the tables that they were in.
    pub(crate) fn take_over(&self, before: &Self) -> Vec<Weak<LoadTable>> {
        let gone = Region::new(Arc::default(), 0, &[]);
        let goes_on = |old: &Region| {
            let same = self.regions.iter().find(|region| region.name == old.name);
            let new = same.unwrap_or(&gone);
            let place = |node: &ClusterNode| {
                let place = new.nodes.iter().position(|other| other.name == node.name)?;
                Some(NodeIndex(place as u32))
            };
            old.loads.hand_over(&new.loads, old.nodes.iter().map(place).collect());
            Arc::downgrade(&old.loads)
        };
        before.regions.iter().map(goes_on).collect()
    }

    /// The nodes of a region with their present health and distances.
    fn seen(&self, region: &Region, now: Timestamp) -> Cluster {
        let of_region = region.first..region.first + region.nodes.len();
        let (peers, members) = (&self.settings.peers[of_region.clone()], &self.members[of_region]);
        let known = peers.iter().zip(members);
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
        let nodes = (region.first as u32..).zip(&region.nodes).zip(members).zip(distances);
        Cluster::new(nodes.map(seen).collect(), region.loads.clone())
    }
}

impl Membership {
    pub(crate) fn new(generation: Arc<Generation>, now: Timestamp) -> Self {
        let seen = |region| generation.seen(region, now);
        let clusters = generation.regions.iter().map(seen).collect();
        Self { generation, clusters }
    }

    /// This node. The index of an observer is that of no node.
    pub fn me(&self) -> NodeIndex {
        self.generation.me
    }

    /// The nodes of this node's region as policies see them.
    pub fn cluster(&self) -> &Cluster {
        &self.clusters[0]
    }

    /// Requests that this node has sent to each node of its region and that are not finished.
    pub fn loads(&self) -> &Arc<LoadTable> {
        self.cluster().loads()
    }

    /// The same for a node of any region.
    pub fn outstanding(&self, node: NodeIndex) -> u32 {
        let of_region = self.generation.regions.iter().zip(&self.clusters).rev();
        let mut of_region = of_region.skip_while(|(region, _)| region.first > node.get());
        let found = of_region.next();
        found.map_or(0, |(region, seen)| seen.load(NodeIndex(node.0 - region.first as u32)))
    }

    /// Whether a node of any region is in slow start.
    pub(crate) fn ramping(&self) -> bool {
        self.clusters.iter().any(Cluster::ramping)
    }

    /// A node.
    pub fn member(&self, node: NodeIndex) -> &Arc<Member> {
        &self.generation.members[node.get()]
    }

    /// The nodes of this node's region with their indices.
    pub fn members(&self) -> impl Iterator<Item = (NodeIndex, &Arc<Member>)> {
        self.all().take(self.cluster().len())
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
        &self.generation.regions[0].name
    }

    /// The nodes of a region, for choices among them; `None` if there is no such region.
    pub(crate) fn region_nodes(self: &Arc<Self>, name: &str) -> Option<RegionNodes> {
        let at = self.generation.regions.iter().position(|region| *region.name == *name)?;
        Some(RegionNodes { members: self.clone(), at })
    }

    /// The nodes of this node's region in the order of highest random weight for `key`, whether or not they are up.
    pub(crate) fn region_in_order(&self, key: Key) -> Vec<NodeIndex> {
        levada_policy::rendezvous(key, (0..).map(NodeIndex).zip(self.cluster().nodes()))
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

    /// The nodes of this node's region, with those in these slots marked as down.
    pub fn without(self: &Arc<Self>, slots: &[usize]) -> Cluster {
        RegionNodes::own(self.clone()).without_slots(slots).into_owned()
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

/// The nodes of one region. An index is one of this region.
#[derive(Clone)]
pub(crate) struct RegionNodes {
    members: Arc<Membership>,
    at: usize,
}

impl RegionNodes {
    /// The nodes of this node's own region.
    pub(crate) fn own(members: Arc<Membership>) -> Self {
        Self { members, at: 0 }
    }

    /// The nodes as policies see them.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.members.clusters[self.at]
    }

    /// The same, with those nodes marked as down that are out.
    pub(crate) fn without(&self, is_out: impl Fn(NodeIndex) -> bool) -> Cow<'_, Cluster> {
        let all = (0..self.cluster().len() as u32).map(NodeIndex);
        let out: Vec<_> = all.filter(|node| is_out(*node)).collect();
        match out.is_empty() {
            true => Cow::Borrowed(self.cluster()),
            false => Cow::Owned(self.cluster().without(&out)),
        }
    }

    /// The same without the nodes in these slots.
    pub(crate) fn without_slots(&self, slots: &[usize]) -> Cow<'_, Cluster> {
        self.without(|node| slots.contains(&self.member(node).slot))
    }

    /// A node.
    pub(crate) fn member(&self, node: NodeIndex) -> &Arc<Member> {
        self.members.member(self.among_all(node))
    }

    /// Whether a node is this one.
    pub(crate) fn is_me(&self, node: NodeIndex) -> bool {
        self.among_all(node) == self.members.me()
    }

    /// All nodes of the cluster.
    pub(crate) fn members(&self) -> &Arc<Membership> {
        &self.members
    }

    /// The same region in the membership of this moment; `None` if it is gone.
    pub(crate) fn now(&self, peers: &Peers) -> Option<Self> {
        peers.membership().region_nodes(&self.members.generation.regions[self.at].name)
    }

    fn among_all(&self, node: NodeIndex) -> NodeIndex {
        NodeIndex(self.members.generation.regions[self.at].first as u32 + node.0)
    }
}

/// The nodes of a region, before anything is known of their health and before anything is measured.
pub fn nodes(region: &str, peering: &Peering) -> Vec<ClusterNode> {
    let of_region = || peering.peers.iter().filter(|peer| *peer.region == *region);
    let distances = distances(of_region().map(|peer| (peer.rtt, None)));
    let seen = |(peer, distance)| ClusterNode { distance, ..node(peer) };
    of_region().zip(distances).map(seen).collect()
}

fn node(peer: &Peer) -> ClusterNode {
    ClusterNode { weight: peer.weight, ..ClusterNode::new(&peer.name) }
}
