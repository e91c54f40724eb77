//! The interface of an eviction algorithm.

use levada_types::Key;

use super::Choice;

/// The index of an object in its owner's table. Handles are reused after removal, so an owner with
/// a free list keeps them dense and the arrays short. `u32::MAX` means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u32);

impl Handle {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An object is larger than the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// An object of the set, as its algorithm knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldObject {
    /// Its size.
    pub bytes: u64,
    /// The hits that the algorithm has counted, as far as it counts them.
    pub hits: u32,
}

/// An algorithm and the set of objects that it keeps within a number of bytes.
///
/// The same calls give the same victims. The owner calls [`Eviction::touch`] on every hit and frees
/// the bytes of every victim that a call returns.
pub trait Eviction: Send {
    /// The most bytes that the objects may take.
    fn capacity(&self) -> u64;

    /// Changes the capacity. The owner evicts what is beyond it, by [`Eviction::make_room`].
    fn set_capacity(&mut self, bytes: u64);

    /// The bytes that they take.
    fn used(&self) -> u64;

    /// The number of objects.
    fn len(&self) -> usize;

    /// Whether there are no objects.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the algorithm has allocated for its own state, in addition to the objects'
    /// bytes.
    fn overhead(&self) -> u64;

    /// The object of the set to which `handle` belongs.
    fn find(&self, handle: Handle) -> Option<HeldObject>;

    /// Whether `handle` belongs to an object of the set.
    fn contains(&self, handle: Handle) -> bool {
        self.find(handle).is_some()
    }

    /// Whether a new object competes with those that are there: the owner adds it before it evicts, and
    /// the object itself may be evicted.
    fn competes(&self) -> bool {
        false
    }

    /// The choice among several algorithms, of an algorithm that makes one.
    fn choice(&self) -> Option<Choice> {
        None
    }

    /// Records a hit. Ignores a handle that is not in the set.
    fn touch(&mut self, handle: Handle);

    /// Sets the size of the object to `bytes` and keeps its hits. The owner makes sure that there
    /// is room. Ignores a handle that is not in the set.
    fn resize(&mut self, handle: Handle, bytes: u64);

    /// Removes an object, for example after a purge; returns false if it is not in the set.
    fn remove(&mut self, handle: Handle) -> bool;

    /// Removes the object that is evicted next and returns its handle; `None` if there are no
    /// objects.
    fn evict(&mut self) -> Option<Handle>;

    /// Adds an object that is not in the set and for which there is room, or will be by
    /// [`Eviction::make_room`] if it [competes](Eviction::competes). [`Eviction::insert`] makes sure
    /// of both.
    fn add(&mut self, handle: Handle, key: Key, bytes: u64);

    /// Evicts until there is room for `bytes` more, and appends the evicted objects to `victims`.
    fn make_room(&mut self, bytes: u64, victims: &mut Vec<Handle>) {
        while self.used().saturating_add(bytes) > self.capacity() {
            let Some(victim) = self.evict() else { break };
            victims.push(victim);
        }
    }

    /// Inserts an object in place of the handle's former object, and appends to `victims` the
    /// objects that were evicted for it. The last of them may be the object itself if it
    /// [competes](Eviction::competes).
    ///
    /// # Errors
    /// When the object alone exceeds the capacity. The handle then belongs to no object.
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
        if !self.competes() {
            self.make_room(bytes, victims);
        }
        self.add(handle, key, bytes);
        self.make_room(0, victims);
        Ok(())
    }
}

/// An algorithm, as lists, documents and configurations show it.
#[derive(Clone, Copy, Debug)]
pub struct EvictionEntry {
    /// The name in a configuration.
    pub name: &'static str,
    /// The publication.
    pub paper: &'static str,
    /// One sentence that says what it evicts.
    pub summary: &'static str,
    /// Builds an instance with this capacity in bytes.
    pub build: fn(capacity: u64) -> Box<dyn Eviction>,
}

/// No two entries have one name.
impl PartialEq for EvictionEntry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
