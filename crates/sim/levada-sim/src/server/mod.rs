//! A server as in Logsim (OSDI'02 Fig. 3): a limited number of active requests, a queue for the
//! others, one CPU, disks, and memory for whole files; below it a disk tier, as nodes have it.

mod cost;
mod disk;
mod memory;
mod station;

use std::collections::BTreeMap;

pub(crate) use cost::{BLOCK, Cost, block_bytes, blocks};
pub(crate) use disk::DiskTier;
pub(crate) use memory::{Memory, Place};
pub(crate) use station::Station;

use levada_cache::{Doorkeeper, Freshness, eviction::find_eviction};
use levada_types::{Key, Timestamp};

use crate::{
    scenario::{Admission, Cache, Scenario},
    slab::NONE,
};

pub(crate) struct Server {
    pub(crate) cpu: Station,
    pub(crate) disks: Vec<Station>,
    pub(crate) memory: Memory,
    /// The tier below the memory, where there is one.
    pub(crate) tier: Option<DiskTier>,
    /// Where a document is kept only when it is fetched for the second time.
    doorkeeper: Option<Doorkeeper>,
    /// Documents that expire. An entry may outlive its document; the next copy replaces it.
    pub(crate) expiring: BTreeMap<u32, Stored>,
    /// Active requests.
    pub(crate) active: u32,
    /// Requests in the queue.
    pub(crate) waiting: Line,
    /// Fills for which it waits at the origin.
    pub(crate) asking: u32,
    /// Finished requests.
    pub(crate) finished: u64,
    pub(crate) hits: u64,
    /// Whether it runs.
    pub(crate) is_up: bool,
}

/// A copy that expires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) freshness: Freshness,
    /// When it came or was confirmed last, in nanoseconds from the beginning of the run.
    pub(crate) since: i64,
    /// The fill that asks whether it has changed, or [`NONE`].
    pub(crate) renewal: u32,
}

impl Server {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let (memory, doorkeeper) = memory(&scenario.cache);
        Self {
            cpu: Station::default(),
            disks: vec![Station::default(); scenario.servers.disks as usize],
            memory,
            tier: DiskTier::new(&scenario.cache),
            doorkeeper,
            expiring: BTreeMap::new(),
            active: 0,
            waiting: Line::default(),
            asking: 0,
            finished: 0,
            hits: 0,
            is_up: true,
        }
    }

    /// The process ends: its work and its memory are lost, the disks keep their files.
    pub(crate) fn fail(&mut self, now: Timestamp, cache: &Cache) {
        self.is_up = false;
        self.cpu.stop(now);
        self.disks.iter_mut().for_each(|disk| disk.stop(now));
        (self.memory, self.doorkeeper) = memory(cache);
        match &mut self.tier {
            Some(tier) => {
                tier.forget_queue();
                self.expiring.values_mut().for_each(|stored| stored.renewal = NONE);
            }
            None => self.expiring.clear(),
        }
        self.active = 0;
        self.waiting = Line::default();
        self.asking = 0;
    }

    /// Whether a document that was fetched is kept. To be asked once a fetch.
    pub(crate) fn admits(&mut self, key: Key) -> bool {
        let Some(doorkeeper) = &mut self.doorkeeper else { return true };
        self.tier.as_ref().is_some_and(|tier| tier.holds(key)) || doorkeeper.knows(key)
    }

    /// The disk tier gets a document, unless too much waits for the disk already. Before a run, without `now`,
    /// writing takes no time.
    pub(crate) fn write(
        &mut self,
        (document, key): (u32, Key),
        size: u64,
        now: Option<Timestamp>,
        cost: &Cost,
    ) {
        let at = document as usize % self.disks.len();
        let Some(tier) = &mut self.tier else { return };
        if let Some(now) = now {
            if !tier.takes(now) {
                // A node forgets the older copy, too.
                return tier.remove(key);
            }
            tier.will_write(self.disks[at].take(now, cost.write(size)), size);
        }
        tier.put(key, size);
    }

    /// Files are spread over the disks round robin; each file is whole on one disk.
    pub(crate) fn disk_of(&mut self, document: u32) -> &mut Station {
        let disk = document as usize % self.disks.len();
        &mut self.disks[disk]
    }

    /// Working time of all disks together, in nanoseconds.
    pub(crate) fn disks_worked(&self, now: Timestamp) -> u64 {
        self.disks.iter().map(|disk| disk.worked(now)).sum()
    }
}

/// The empty memory of a server, with its doorkeeper, which takes a part of it as in a node.
fn memory(cache: &Cache) -> (Memory, Option<Doorkeeper>) {
    let eviction = find_eviction(&cache.eviction).expect("it was checked");
    let second_hit = cache.admission == Admission::SecondHit;
    let doorkeeper = second_hit.then(|| Doorkeeper::new(cache.memory.0, 0));
    let taken = doorkeeper.as_ref().map_or(0, Doorkeeper::bytes);
    let largest = cache.max_object.map_or(u64::MAX, |size| size.0.saturating_add(cache.head.0));
    let bytes = cache.memory.0.saturating_sub(taken);
    (Memory::new((eviction.build)(bytes), largest), doorkeeper)
}

/// A queue of requests, linked through the requests themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) length: u32,
}

impl Default for Line {
    fn default() -> Self {
        Self { first: NONE, last: NONE, length: 0 }
    }
}
