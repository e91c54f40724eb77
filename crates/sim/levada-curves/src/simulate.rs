//! Miniature simulation (Waldspurger et al., USENIX ATC'17): the eviction algorithm itself, in a cache that is
//! smaller by the rate of the sample.

use levada_cache::{
    Doorkeeper,
    eviction::{EvictionEntry, Handle},
};

use crate::{
    Admission,
    part::{Counts, Part},
};

/// The misses of a cache of `bytes`, at the scale of the part.
pub(crate) fn simulate(
    part: &Part,
    eviction: &EvictionEntry,
    admission: Admission,
    bytes: u64,
) -> Counts {
    let mut doorkeeper = match admission {
        Admission::Always => None,
        Admission::SecondHit => Some(Doorkeeper::scaled(bytes, part.rate, 0)),
    };
    let scaled = (bytes as f64 * part.rate).round() as u64;
    // As in a node, the doorkeeper takes its memory from the cache.
    let capacity = scaled.saturating_sub(doorkeeper.as_ref().map_or(0, Doorkeeper::bytes));
    let mut eviction = (eviction.build)(capacity);
    let mut victims = Vec::new();
    let mut misses = Counts::default();
    for (run, counts) in part.runs() {
        let (object, handle) = (part.object(run), Handle(run.object));
        let mut left = u64::from(run.requests);
        if object.bytes > capacity {
            misses.add(object, if counts { left } else { 0 });
            continue;
        }
        while left > 0 && !eviction.contains(handle) {
            left -= 1;
            misses.add(object, u64::from(counts));
            if doorkeeper.as_mut().is_none_or(|keeper| keeper.knows(object.key)) {
                // The object fits the capacity, so the insertion succeeds.
                let _ = eviction.insert(handle, object.key, object.bytes, &mut victims);
                victims.clear();
            }
        }
        (0..left).for_each(|_| eviction.touch(handle));
    }
    misses
}
