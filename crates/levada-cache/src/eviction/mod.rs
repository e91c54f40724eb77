//! What goes first when the cache is full.
//!
//! The edge's store and the simulator call the same code. An algorithm knows objects by a
//! [`Handle`], the index of the owner's slot for them, and keeps its own state in arrays of the same
//! index: no operation allocates once the arrays have grown, and none hashes a key but the ghost
//! queue of S3-FIFO.
//!
//! To add an algorithm: one file with its `ENTRY`, one line in [`EVICTIONS`].

mod gds;
mod gdsf;
mod greedy_dual;
mod keyed;
mod lru;
mod queue;
mod s3fifo;
mod sieve;

pub use keyed::Keyed;

use levada_types::Key;

/// The index of an object in its owner's table. Handles are used again after removal, so an owner
/// with a free list keeps them dense and the arrays short; `u32::MAX` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u32);

impl Handle {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An object weighs more than the cache may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// An algorithm and the set of objects that it keeps within a number of bytes.
///
/// The same calls give the same victims. The owner calls [`Eviction::touch`] on every hit and drops
/// the bytes of every victim that a call hands out.
pub trait Eviction: Send {
    /// The most bytes that the objects may weigh.
    fn capacity(&self) -> u64;

    /// The bytes that they weigh.
    fn used(&self) -> u64;

    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the algorithm has allocated for its own state, in bytes: what the weights of the objects
    /// do not say.
    fn overhead(&self) -> u64;

    /// Whether `handle` stands for an object of the set.
    fn contains(&self, handle: Handle) -> bool;

    /// Notes a hit; of an object that is not there, nothing.
    fn touch(&mut self, handle: Handle);

    /// The object weighs `bytes` from now on; what is known of its hits stays. There is room for it,
    /// which the owner sees to. Of an object that is not there, nothing.
    fn resize(&mut self, handle: Handle, bytes: u64);

    /// Takes an object out, as after a purge; false when it is not there.
    fn remove(&mut self, handle: Handle) -> bool;

    /// Takes out the object that goes first and names it; `None` when there is none.
    fn evict(&mut self) -> Option<Handle>;

    /// Puts an object in that is not there and for which there is room: [`Eviction::insert`] sees
    /// to both.
    fn add(&mut self, handle: Handle, key: Key, bytes: u64);

    /// Puts an object in, replacing what the handle stood for, and appends to `victims` what had to
    /// go for it.
    ///
    /// # Errors
    /// When the object alone exceeds the capacity. The handle then stands for nothing.
    fn insert(
        &mut self,
        handle: Handle,
        key: Key,
        bytes: u64,
        victims: &mut Vec<Handle>,
    ) -> Result<(), TooLarge> {
        self.remove(handle);
        if bytes > self.capacity() {
            return Err(TooLarge);
        }
        while self.capacity() - self.used() < bytes {
            // Something is there, since more is used than nothing.
            let Some(victim) = self.evict() else { break };
            victims.push(victim);
        }
        self.add(handle, key, bytes);
        Ok(())
    }
}

/// An algorithm as lists, documents and configurations show it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name in a configuration.
    pub name: &'static str,
    /// Who published it.
    pub paper: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Makes one for so many bytes.
    pub build: fn(capacity: u64) -> Box<dyn Eviction>,
}

/// Every algorithm there is.
pub const EVICTIONS: &[Entry] = &[
    lru::ENTRY,
    gds::ENTRY,
    gds::PACKETS,
    gdsf::ENTRY,
    gdsf::PACKETS,
    s3fifo::ENTRY,
    sieve::ENTRY,
];

/// The one that is taken when none is named.
pub const DEFAULT_EVICTION: &Entry = &gdsf::ENTRY;

/// The algorithm called `name`.
pub fn find_eviction(name: &str) -> Option<&'static Entry> {
    EVICTIONS.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod steps {
    //! What the step tables of the algorithms are written in.

    use super::{Entry, Handle};
    use levada_types::Key;

    /// Plays steps such as `a4` (insert `a` with 4 bytes), `a` (hit) and `-a` (remove) and gives
    /// the victims of each insertion.
    pub(crate) fn play(entry: &Entry, capacity: u64, steps: &str) -> String {
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
