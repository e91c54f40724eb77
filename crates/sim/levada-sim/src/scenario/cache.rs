//! Checks of the cache and its disk tier.

use levada_cache::{
    disk_room::LEAST,
    eviction::{self, EVICTIONS},
};
use levada_types::ByteSize;

use super::{Admission, Problems, Scenario};

impl Scenario {
    pub(super) fn check_cache(&self, problems: &mut Problems) {
        let (cache, elsewhere) = (&self.cache, self.cap.is_some() || self.regions.is_some());
        check_eviction("cache.eviction", &cache.eviction, problems);
        self.check_front_ends(problems);
        problems.add_if(
            elsewhere && cache.admission == Admission::SecondHit,
            "cache.admission",
            "every document is kept in `cap` and `regions`: leave it out",
        );
        problems.add_if(
            self.servers.disk_bytes_per_second == Some(0),
            "servers.disk_bytes_per_second",
            "a disk must read something; without the key it is the papers' disk",
        );
        let Some(disk) = cache.disk else { return };
        problems.add_if(
            disk.0 < LEAST.max(cache.memory.0),
            "cache.disk",
            &format!(
                "all that is in memory is on the disk, too: it must be at least `cache.memory` and {}; without \
                 the key there is no disk tier",
                ByteSize(LEAST)
            ),
        );
        problems.add_if(
            self.origin.is_none() && !elsewhere,
            "cache.disk",
            "without an origin the disks of the servers have all documents already: give `[origin]`, or leave it out",
        );
        problems.add_if(
            elsewhere,
            "cache.disk",
            "servers have memories only in `cap` and `regions`: leave it out",
        );
        problems.add_if(
            self.has_global_memory(),
            "policy.name",
            "its servers read from each other's memory, which has no tier below: choose another policy, or leave \
             `cache.disk` out",
        );
    }

    fn check_front_ends(&self, problems: &mut Problems) {
        let Some(front_ends) = &self.front_ends else { return };
        check_eviction("front_ends.eviction", &front_ends.eviction, problems);
        problems.add_if(
            front_ends.memory.0 == 0,
            "front_ends.memory",
            "without memory they hold nothing: leave `front_ends` out",
        );
        problems.add_if(
            self.cap.is_some() || self.regions.is_some(),
            "front_ends",
            "there are none in `cap` and `regions`: leave it out",
        );
        problems.add_if(
            !self.freshness.class.is_empty() || !self.freshness.purge.is_empty(),
            "front_ends",
            "nothing expires at front-ends: leave it out, or `freshness`",
        );
    }
}

fn check_eviction(key: &str, name: &str, problems: &mut Problems) {
    if eviction::find_eviction(name).is_none() {
        let known: Vec<_> = EVICTIONS.iter().map(|entry| entry.name).collect();
        problems.add(key, format!("there is no `{name}`; there are {}", known.join(", ")));
    }
}
