//! The nodes, each with a policy of its own and the cluster as it sees it.

use std::{collections::BTreeMap, time::Duration};

use levada_cache::eviction::find_eviction;
use levada_policy::{
    Cluster, Deployment, LoadTable, Node, NodeIndex, Outstanding, PickContext, Policy,
    RequestOutcome, build, distances,
};
use levada_topology::RegionMap;
use levada_types::Request;

use super::{Region, Regions};
use crate::{Prepared, scenario::Policy as Chooser, server::Memory};

/// A node. Its number is its place, and the origin's place is the number of all nodes.
pub(super) struct RegionNode {
    pub(super) region: usize,
    pub(super) memory: Memory,
    /// When stored objects become stale, and the fills that revalidate them.
    pub(super) stale: BTreeMap<u32, (u64, u32)>,
    /// The choice of the node that serves a client.
    pub(super) serving: Choice,
    /// The choice of the node that asks the origin; `None` where each node does by itself.
    pub(super) shield: Option<Choice>,
}

/// A policy of one node, and the nodes that it chooses from, as this node sees them.
pub(super) struct Choice {
    policy: Box<dyn Policy>,
    cluster: Cluster,
    /// The numbers of these nodes.
    members: Vec<u32>,
}

/// The chosen node, at which a request counts as outstanding.
pub(super) type Chosen = (NodeIndex, Outstanding);

impl Choice {
    /// Chooses the node for a request. Returns its number as well.
    pub(super) fn of(&mut self, request: &Request, context: &mut PickContext<'_>) -> (u32, Chosen) {
        let pick = self.policy.pick(request, &self.cluster, context);
        let node = pick.expect("every node is up").node;
        (self.members[node.get()], (node, self.cluster.loads().begin(node)))
    }

    /// The whole answer has come, after this time: the load falls, and the policy learns.
    pub(super) fn ended(
        &mut self,
        (node, _): Chosen,
        latency: Duration,
        context: &mut PickContext<'_>,
    ) {
        let outcome = RequestOutcome { node, latency, service_time: latency, ok: true };
        if self.policy.observes() {
            self.policy.observe(&outcome, context);
        }
    }
}

/// The nodes of all regions, each with its own view of its cluster.
pub(super) fn nodes(prepared: &Prepared, regions: &Regions, map: &RegionMap) -> Vec<RegionNode> {
    let scenario = &prepared.scenario;
    let region = |(at, region): (usize, &Region)| {
        let name = region.name.clone();
        (1..=region.nodes).map(move |number| (at, Node::new(&format!("{name}-{number}"))))
    };
    let all: Vec<_> = regions.region.iter().enumerate().flat_map(region).collect();
    let eviction = find_eviction(&scenario.cache.eviction).expect("it was checked");
    let largest = scenario.cache.max_object.map_or(u64::MAX, |size| size.0);
    let choice =
        |(at, from): (usize, usize), policy: &Chooser, of_all, redirectors: Option<usize>| {
            let members: Vec<_> =
                (0..).zip(&all).filter(|(_, (region, _))| of_all || *region == from).collect();
            // A node does not probe itself.
            let trip = |(number, (other, _)): &(u32, &(usize, Node))| {
                let trip = Duration::from_nanos(map.trip(all[at].0, *other));
                (None, (*number as usize != at).then_some(trip))
            };
            let seen = members.iter().zip(distances(members.iter().map(trip)));
            let seen = seen.map(|((_, (_, node)), distance)| Node { distance, ..node.clone() });
            let deployment = Deployment {
                redirectors: redirectors.unwrap_or(members.len()) as u32,
                capacity: scenario.servers.active.saturating_add(scenario.servers.queue),
                shards: 1,
            };
            Choice {
                policy: build(&policy.name, &policy.parameters, &deployment)
                    .expect("it was checked"),
                cluster: Cluster::new(seen.collect(), LoadTable::new(members.len())),
                members: members.iter().map(|(number, _)| *number).collect(),
            }
        };
    let of = |(at, (region, _)): (usize, &(usize, Node))| {
        let of_shield =
            |shield| choice((at, shield), &regions.shield_policy, false, Some(all.len()));
        RegionNode {
            region: *region,
            memory: Memory::new((eviction.build)(scenario.cache.memory.0), largest),
            stale: BTreeMap::new(),
            serving: choice((at, *region), &scenario.policy, regions.one_cluster, None),
            shield: map.find(&regions.shield).map(of_shield),
        }
    };
    all.iter().enumerate().map(of).collect()
}
