//! The memory of a policy: a node may have thousands of sites, each with servers of its own.

use std::collections::BTreeMap;

use levada_policy::{
    Cluster, Deployment, LoadTable, Node, POLICIES, PickContext, Policy, PolicyEntry, build_shards,
};
use levada_types::{Key, Request, Rng, Timestamp, hash64};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static MEMORY: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// The instances of a keyed policy, as a node has them.
const SHARDS: u32 = 16;

/// A thousand sites stay below 300 MB with this much for each.
const MOST: isize = 300_000;

/// A site that nobody has asked yet.
const MOST_UNUSED: isize = 20_000;

struct Site {
    shards: Vec<Box<dyn Policy>>,
    cluster: Cluster,
}

impl Site {
    fn new(entry: &PolicyEntry, nodes: usize) -> Self {
        let shards = if entry.keyed { SHARDS } else { 1 };
        let deployment = Deployment { shards, ..Deployment::default() };
        let shards = build_shards(entry.name, &BTreeMap::new(), &deployment).expect("defaults");
        let nodes: Vec<_> = (0..nodes).map(|n| Node::new(&format!("node-{n}"))).collect();
        let loads = LoadTable::new(nodes.len());
        let cluster = Cluster::new(nodes, loads.clone()).with_global_loads(loads);
        Self { shards, cluster }
    }

    fn ask(&mut self, objects: u64, rng: &mut Rng) {
        for object in 0..objects {
            let key = Key(hash64(&object.to_le_bytes()));
            let request = Request { size: Some(8 << 10), ..Request::new(key) };
            let shard = (key.0 >> 32) as usize % self.shards.len();
            let context = &mut PickContext { now: Timestamp::ZERO, rng };
            self.shards[shard].pick(&request, &self.cluster, context).expect("all are up");
        }
    }
}

/// The bytes that `make` leaves allocated.
fn bytes<T>(make: impl FnOnce() -> T) -> (T, isize) {
    let region = Region::new(MEMORY);
    let made = make();
    let change = region.change();
    // A block that is allocated again counts under its new size.
    let held = change.bytes_allocated as isize - change.bytes_deallocated as isize;
    (made, held)
}

// One test alone: what other tests allocate at the same time would count.
#[test]
fn thousand_sites_of_each_policy_take_300_mb_at_most() {
    let mut refused = Vec::new();
    for entry in POLICIES.iter().flat_map(|file| file.iter()) {
        for nodes in [3, 10, 50] {
            let mut rng = Rng::new(1);
            let (mut site, unused) = bytes(|| Site::new(entry, nodes));
            let ((), used) = bytes(|| site.ask(100, &mut rng));
            let (least, most) = (unused, unused + used);
            if least > MOST_UNUSED + 200 * nodes as isize || most > MOST {
                refused.push(format!("{} of {nodes} nodes: {least}, then {most}", entry.name));
            }
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}
