//! The locality-only strategies of the LARD paper: LB and LB/GC.
//!
//! LB divides the targets among the nodes by hash (ASPLOS'98 Sec. 2.2). LB/GC (Sec. 4) is an ideal:
//! the front-end models every node's cache, and manages all of them as one global cache with one
//! replacement order. A cached target goes to the node that caches it. Any other target replaces
//! the globally oldest one, at its node. Neither strategy considers load.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use levada_types::{Key, Request, weigh};

use crate::lard::TARGETS;
use crate::modulo::Modulo;
use crate::per_node::Roster;
use crate::{
    Candidates, Cluster, Deployment, Kind, Need, NodeIndex, Parameter, Parameters, Pick,
    PickContext, PickReason, Policy, PolicyEntry, Setting, Tracked,
};

pub(crate) const ENTRIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "lb",
        paper: "ASPLOS'98 Sec. 2.2",
        summary: "objects divided among the nodes by hash, whatever the load (as modulo)",
        keyed: true,
        needs: &[],
        parameters: &[],
        build: |_: &Parameters, _: &Deployment| Box::new(Modulo),
    },
    PolicyEntry {
        name: "lb/gc",
        paper: "ASPLOS'98 Sec. 4",
        summary: "the node that caches the object according to a model of all caches; else the node with the oldest object",
        keyed: false,
        needs: &[Need::GlobalCache, Need::Size],
        parameters: &[
            Parameter {
                name: "cache_bytes",
                kind: Kind::Integer(1, 1 << 50),
                default: Setting::Integer(32 << 20),
                unit: "bytes",
                help: "The memory cache of one node (ASPLOS'98 Sec. 3.2: 32 MB).",
            },
            TARGETS,
        ],
        build: |parameters: &Parameters, _: &Deployment| {
            let integer = |name| parameters.integer(name).expect("it has a default");
            Box::new(GlobalCache {
                cache_bytes: integer("cache_bytes"),
                roster: Roster::default(),
                clock: 0,
                nodes: Vec::new(),
                targets: integer(TARGETS.name) as usize,
                slots: HashMap::default(),
                objects: Vec::new(),
                free: Vec::new(),
                base: Modulo,
            })
        },
    },
];

/// The modelled content of all caches: per node a list of objects from the least to the most
/// recently used.
#[derive(Clone)]
struct GlobalCache {
    cache_bytes: u64,
    roster: Roster,
    /// Counts uses. The use number of an object tells its age.
    clock: u64,
    nodes: Vec<NodeCache>,
    /// The most objects that are remembered.
    targets: usize,
    /// The index of a target in `objects`. Never iterated over.
    slots: HashMap<Key, u32, BuildHasherDefault<Mix>>,
    objects: Vec<ModelledObject>,
    /// Free indices of `objects`.
    free: Vec<u32>,
    /// Serves objects that cannot be cached: of unknown size, or larger than a cache.
    base: Modulo,
}

#[derive(Clone, Copy)]
struct NodeCache {
    bytes: u64,
    oldest: u32,
    newest: u32,
    /// The last use of the oldest object. Stored here because every miss reads it of all nodes.
    oldest_use: u64,
}

impl NodeCache {
    const EMPTY: Self = Self { bytes: 0, oldest: NONE, newest: NONE, oldest_use: u64::MAX };
}

#[derive(Clone, Copy)]
struct ModelledObject {
    key: Key,
    node: NodeIndex,
    size: u64,
    last_use: u64,
    older: u32,
    newer: u32,
}

/// The index that means no object.
const NONE: u32 = u32::MAX;

impl Policy for GlobalCache {
    fn pick(
        &mut self,
        request: &Request,
        cluster: &Cluster,
        context: &mut PickContext<'_>,
    ) -> Option<Pick> {
        if self.roster.follow(cluster).is_some() {
            self.forget_all(cluster);
        }
        let Some(size) = request.size.filter(|size| *size <= self.cache_bytes) else {
            return self.base.pick(request, cluster, context);
        };
        self.clock += 1;
        if let Some(&slot) = self.slots.get(&request.key) {
            let ModelledObject { node, size: before, .. } = self.objects[slot as usize];
            if size == before && cluster.is_up(node) {
                self.unlink(slot);
                self.link(slot);
                return Some(Pick { node, reason: PickReason::Hash, set_size: 1 });
            }
            self.remove(slot);
            if cluster.is_up(node) {
                self.store(request.key, size, node);
                return Some(Pick { node, reason: PickReason::Hash, set_size: 1 });
            }
        }
        let node = self.with_room_or_oldest(size, cluster)?;
        self.store(request.key, size, node);
        Some(Pick { node, reason: PickReason::Least, set_size: 1 })
    }

    fn candidates(&self, request: &Request, cluster: &Cluster) -> Candidates {
        let known = if self.roster.knows(cluster) { self.slots.get(&request.key) } else { None };
        let cached = known.map(|slot| self.objects[*slot as usize].node);
        let Some(node) = cached.filter(|node| cluster.is_up(*node)) else {
            return Candidates { set_size: 0, ..self.base.candidates(request, cluster) };
        };
        let others = cluster.up().iter().copied().filter(|other| *other != node);
        Candidates { order: std::iter::once(node).chain(others).collect(), set_size: 1 }
    }

    fn tracked(&self) -> Tracked {
        Tracked {
            objects: self.slots.len(),
            limit: self.targets,
            bytes: self.slots.capacity() * (size_of::<(Key, u32)>() + 1)
                + self.objects.capacity() * size_of::<ModelledObject>()
                + self.free.capacity() * size_of::<u32>(),
        }
    }
}

impl GlobalCache {
    /// The nodes of a simulation do not change. If they do, the modelled caches begin empty.
    fn forget_all(&mut self, cluster: &Cluster) {
        self.nodes = vec![NodeCache::EMPTY; cluster.len()];
        self.slots.clear();
        self.objects.clear();
        self.free.clear();
    }

    /// The node with the most room if `size` fits there, else the node with the globally oldest
    /// object.
    fn with_room_or_oldest(&self, size: u64, cluster: &Cluster) -> Option<NodeIndex> {
        let up = || cluster.up().iter().copied();
        let emptiest = up().min_by_key(|node| self.nodes[node.get()].bytes)?;
        if self.nodes[emptiest.get()].bytes + size <= self.cache_bytes {
            return Some(emptiest);
        }
        up().min_by_key(|node| self.nodes[node.get()].oldest_use)
    }

    /// Stores the object as the newest of `node`, and removes as many of the oldest as necessary.
    fn store(&mut self, key: Key, size: u64, node: NodeIndex) {
        while self.nodes[node.get()].bytes + size > self.cache_bytes {
            self.remove(self.nodes[node.get()].oldest);
        }
        if self.slots.len() == self.targets {
            let oldest = self.nodes.iter().min_by_key(|node| node.oldest_use);
            self.remove(oldest.expect("objects are on nodes").oldest);
        }
        let object = ModelledObject { key, node, size, last_use: 0, older: NONE, newer: NONE };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.objects[slot as usize] = object;
                slot
            }
            None => {
                self.objects.push(object);
                self.objects.len() as u32 - 1
            }
        };
        self.slots.insert(key, slot);
        self.link(slot);
    }

    fn remove(&mut self, slot: u32) {
        self.unlink(slot);
        self.slots.remove(&self.objects[slot as usize].key);
        self.free.push(slot);
    }

    /// Makes the object in `slot` the newest of its node, used now.
    fn link(&mut self, slot: u32) {
        let object = &mut self.objects[slot as usize];
        let cache = &mut self.nodes[object.node.get()];
        let older = std::mem::replace(&mut cache.newest, slot);
        (object.last_use, object.older, object.newer) = (self.clock, older, NONE);
        cache.bytes += object.size;
        match older {
            NONE => (cache.oldest, cache.oldest_use) = (slot, self.clock),
            older => self.objects[older as usize].newer = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let object = self.objects[slot as usize];
        let cache = &mut self.nodes[object.node.get()];
        cache.bytes -= object.size;
        match object.newer {
            NONE => cache.newest = object.older,
            newer => self.objects[newer as usize].older = object.older,
        }
        match (object.older, object.newer) {
            (NONE, NONE) => (cache.oldest, cache.oldest_use) = (NONE, u64::MAX),
            (NONE, newer) => {
                (cache.oldest, cache.oldest_use) = (newer, self.objects[newer as usize].last_use);
            }
            (older, newer) => self.objects[older as usize].newer = newer,
        }
    }
}

/// The hash of a key, which is a hash already. It is mixed once more for tests, whose keys are
/// consecutive numbers.
#[derive(Clone, Copy, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, byte| weigh(Key(sum), u64::from(*byte)));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = weigh(Key(key), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParameterValue;
    use crate::testing::{World, cluster, nodes};
    use levada_types::Rng;

    fn global(cache_bytes: i64, targets: i64) -> World {
        World::new(
            "lb/gc",
            &[
                ("cache_bytes", ParameterValue::Integer(cache_bytes)),
                ("targets", ParameterValue::Integer(targets)),
            ],
        )
    }

    fn pick(world: &mut World, (key, size): (u64, u64), cluster: &Cluster) -> (u32, PickReason) {
        let request = Request { size: Some(size), ..Request::new(Key(key)) };
        let pick = world.pick(&request, cluster).unwrap();
        (pick.node.0, pick.reason)
    }

    #[test]
    fn a_miss_replaces_the_globally_oldest() {
        use PickReason::{Hash, Least};
        let (mut world, two) = (global(100, 1_000), cluster(nodes(2)));
        // Objects are (key, size) in the order of requests, with two nodes of 100 bytes.
        let steps = [
            ((1, 60), (0, Least)), // all are empty
            ((2, 60), (1, Least)), // node 1 has more room
            ((3, 40), (0, Least)), // fits: node 0 has 1 3, node 1 has 2
            ((1, 60), (0, Hash)),  // node 0 has 3 1, node 1 has 2
            ((4, 50), (1, Least)), // 2 is the oldest of all: node 1 has 4
            ((5, 60), (0, Least)), // 3 is the oldest, 1 is removed as well: node 0 has 5
            ((4, 50), (1, Hash)),
            ((1, 60), (0, Least)), // 5 is older than 4
        ];
        for (object, expected) in steps {
            assert_eq!(pick(&mut world, object, &two), expected, "{object:?}");
        }
    }

    #[test]
    fn what_cannot_be_cached_is_divided_by_hash() {
        let (mut world, two) = (global(100, 1_000), cluster(nodes(2)));
        assert_eq!(
            [pick(&mut world, (4, 101), &two).0, pick(&mut world, (5, 101), &two).0],
            [0, 1]
        );
        assert_eq!(world.spread(10, &two), [5, 5]);
        assert_eq!(world.policy.tracked().objects, 0);
    }

    #[test]
    fn an_object_on_a_node_that_is_down_is_placed_anew() {
        let (mut world, two) = (global(100, 1_000), cluster(nodes(2)));
        assert_eq!(pick(&mut world, (1, 50), &two), (0, PickReason::Least));
        let rest = two.without(&[NodeIndex(0)]);
        assert_eq!(pick(&mut world, (1, 50), &rest), (1, PickReason::Least));
        assert_eq!(pick(&mut world, (1, 50), &two), (1, PickReason::Hash));
    }

    #[test]
    fn bytes_and_objects_stay_within_their_limits() {
        let (mut world, three, mut rng) = (global(1_000, 50), cluster(nodes(3)), Rng::new(1));
        let mut hits = 0;
        for _ in 0..20_000 {
            let key = rng.below(60) as u64;
            hits += u32::from(pick(&mut world, (key, key), &three).1 == PickReason::Hash);
            assert!(world.policy.tracked().objects <= 50);
        }
        // 50 of 60 equally likely objects are remembered.
        assert!((16_000..17_300).contains(&hits), "{hits}");
    }
}
