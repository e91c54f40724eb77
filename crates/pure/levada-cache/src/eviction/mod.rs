//! Eviction algorithms: the order in which objects leave a full cache.
//!
//! The edge's store and the simulator call the same code. An algorithm identifies an object by a
//! [`Handle`], the index of the owner's slot for it, and keeps its own state in arrays with this
//! index. No operation allocates once the arrays have grown, and only the ghost queue of S3-FIFO and
//! the sample of `auto` look up keys.
//!
//! To add an algorithm, add one file with its `ENTRY` and one line in [`EVICTIONS`].

mod algorithm;
mod auto;
mod choice;
mod gds;
mod gdsf;
mod greedy_dual;
mod keyed;
mod lru;
mod queue;
mod s3fifo;
mod shadows;
mod sieve;

pub use algorithm::{Eviction, EvictionEntry, Handle, HeldObject, TooLarge};
pub use choice::{Candidate, Choice, Switch};
pub use keyed::Keyed;

/// All algorithms.
pub const EVICTIONS: &[EvictionEntry] = &[
    lru::ENTRY,
    gds::ENTRY,
    gds::PACKETS,
    gdsf::ENTRY,
    gdsf::PACKETS,
    s3fifo::ENTRY,
    sieve::ENTRY,
    auto::ENTRY,
    auto::BYTES,
];

/// The algorithm that is used if the configuration names none.
pub const DEFAULT_EVICTION: &EvictionEntry = &gdsf::ENTRY;

/// The algorithm with this name.
pub fn find_eviction(name: &str) -> Option<&'static EvictionEntry> {
    EVICTIONS.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod steps {
    //! The notation for the step tables of the algorithms' tests.

    use super::{EvictionEntry, Handle};
    use levada_types::Key;

    /// Runs steps such as `a4` (insert `a` with 4 bytes), `a` (hit) and `-a` (remove), and returns
    /// the victims of each insertion.
    pub(crate) fn play(entry: &EvictionEntry, capacity: u64, steps: &str) -> String {
        let mut eviction = (entry.build)(capacity);
        let mut shown = Vec::new();
        for step in steps.split(' ') {
            let (removed, name) = step.strip_prefix('-').map_or((false, step), |name| (true, name));
            let handle = Handle(u32::from(name.as_bytes()[0] - b'a'));
            match name[1..].parse() {
                Ok(bytes) => {
                    let mut victims = Vec::new();
                    let key = Key(u64::from(handle.0));
                    let fits = eviction.insert(handle, key, bytes, &mut victims).is_ok();
                    let gone = victims.iter().map(|v| char::from(b'a' + v.0 as u8)).collect();
                    shown.push(match (fits, victims.is_empty()) {
                        (false, _) => "!".to_owned(),
                        (true, true) => ".".to_owned(),
                        (true, false) => gone,
                    });
                }
                Err(_) if removed => assert!(eviction.remove(handle)),
                Err(_) => eviction.touch(handle),
            }
        }
        shown.join(" ")
    }
}
