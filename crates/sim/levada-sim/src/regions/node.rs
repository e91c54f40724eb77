//! The nodes, each with a policy of its own and the cluster as it sees it.

use std::{collections::BTreeMap, time::Duration};

use levada_cache::eviction::find_eviction;
use levada_policy::{Cluster, Deployment, LoadTable, Node, Policy, build, distances};
use levada_topology::RegionMap;

use super::{Region, Regions};
use crate::{Prepared, server::Memory};

/// A node. Its number is its place, and the origin's place is the number of all nodes.
pub(super) struct RegionNode {
    pub(super) region: usize,
    pub(super) memory: Memory,
    /// When stored objects become stale, and the fills that revalidate them.
    pub(super) stale: BTreeMap<u32, (u64, u32)>,
    pub(super) policy: Box<dyn Policy>,
    pub(super) cluster: Cluster,
    /// The numbers of the nodes of its cluster.
    pub(super) members: Vec<u32>,
    /// The same as policies see it, for the choice of the shield's node.
    pub(super) own: Node,
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
    let of = |(at, (region, own)): (usize, &(usize, Node))| {
        let members =
            (0..).zip(&all).filter(|(_, (other, _))| regions.one_cluster || other == region);
        let members: Vec<_> = members.collect();
        // A node does not probe itself.
        let trip = |(number, (other, _)): &(u32, &(usize, Node))| {
            let trip = Duration::from_nanos(map.trip(*region, *other));
            (None, (*number as usize != at).then_some(trip))
        };
        let seen = members.iter().zip(distances(members.iter().map(trip)));
        let seen = seen.map(|((_, (_, node)), distance)| Node { distance, ..node.clone() });
        let deployment = Deployment {
            redirectors: members.len() as u32,
            capacity: scenario.servers.active.saturating_add(scenario.servers.queue),
            shards: 1,
        };
        let loads = LoadTable::new(members.len());
        RegionNode {
            region: *region,
            memory: Memory::new((eviction.build)(scenario.cache.memory.0), largest),
            stale: BTreeMap::new(),
            policy: build(&scenario.policy.name, &scenario.policy.parameters, &deployment)
                .expect("it was checked"),
            cluster: Cluster::new(seen.collect(), loads),
            members: members.iter().map(|(number, _)| *number).collect(),
            own: own.clone(),
        }
    };
    all.iter().enumerate().map(of).collect()
}
