//! GreedyDual-Size (Cao and Irani, USITS 1997) and its variant with frequencies.
//!
//! Every object has a value H = L + frequency * cost / size. The object with the least H is
//! evicted, and L, the "inflation", becomes that H; this ages all other objects without touching
//! them. A hit computes H again.
//!
//! A hit can only raise H, because L never falls. So a hit does not change the heap: the value of
//! an entry in the heap is a lower bound, which is corrected when the entry reaches the top. The
//! order is exact, and a hit costs one division.

use super::{Eviction, Handle, HeldObject};
use levada_types::Key;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

/// The cost of a miss.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cost {
    /// The same for all objects: gives the highest hit ratio.
    One,
    /// Packets sent and received, 2 + size / 536 (Cao and Irani, Sec. 4.1): gives the least
    /// traffic.
    Packets,
}

impl Cost {
    fn per_byte(self, bytes: u64) -> f64 {
        let size = bytes.max(1) as f64;
        match self {
            Self::One => 1.0 / size,
            Self::Packets => (2.0 + size / 536.0) / size,
        }
    }
}

/// One object.
#[derive(Clone, Copy, Debug, Default)]
struct RankedObject {
    bytes: u64,
    worth: f64,
    value: f64,
    /// The number of the last request, which breaks ties: the least recent is evicted first.
    asked: u64,
    frequency: u32,
    /// Counts the objects that used this handle. An even number means that there is none.
    generation: u32,
}

impl RankedObject {
    fn is_there(&self) -> bool {
        self.generation % 2 == 1
    }

    /// Value and last request as one number with the same order: the bits of a non-negative float
    /// have the same order as the float.
    fn order(&self) -> u128 {
        u128::from(self.value.to_bits()) << 64 | u128::from(self.asked)
    }
}

/// An entry of the heap. It is void if the handle belongs to another object now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HeapEntry {
    order: u128,
    handle: u32,
    generation: u32,
}

pub(super) struct GreedyDual {
    capacity: u64,
    cost: Cost,
    counts_frequency: bool,
    objects: Vec<RankedObject>,
    heap: BinaryHeap<Reverse<HeapEntry>>,
    inflation: f64,
    requests: u64,
    used: u64,
    count: usize,
}

impl GreedyDual {
    pub(super) fn new(capacity: u64, cost: Cost, counts_frequency: bool) -> Self {
        Self {
            capacity,
            cost,
            counts_frequency,
            objects: Vec::new(),
            heap: BinaryHeap::new(),
            inflation: 0.0,
            requests: 0,
            used: 0,
            count: 0,
        }
    }

    fn drop_object(&mut self, handle: u32) {
        let object = &mut self.objects[handle as usize];
        object.generation = object.generation.wrapping_add(1);
        self.used -= object.bytes;
        self.count -= 1;
    }

    /// Removes void entries when they outnumber the others, so that purges do not let the heap
    /// grow.
    fn tidy(&mut self) {
        if self.heap.len() > 2 * self.count + 64 {
            let objects = &self.objects;
            self.heap.retain(|Reverse(c)| objects[c.handle as usize].generation == c.generation);
        }
    }
}

impl Eviction for GreedyDual {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn len(&self) -> usize {
        self.count
    }

    fn overhead(&self) -> u64 {
        let objects = self.objects.capacity() * size_of::<RankedObject>();
        (objects + self.heap.capacity() * size_of::<HeapEntry>()) as u64
    }

    fn find(&self, handle: Handle) -> Option<HeldObject> {
        let object = self.objects.get(handle.index()).filter(|object| object.is_there())?;
        Some(HeldObject { bytes: object.bytes, hits: object.frequency - 1 })
    }

    fn touch(&mut self, handle: Handle) {
        let Some(object) = self.objects.get_mut(handle.index()).filter(|o| o.is_there()) else {
            return;
        };
        self.requests += 1;
        object.asked = self.requests;
        object.frequency = object.frequency.saturating_add(u32::from(self.counts_frequency));
        object.value = self.inflation + f64::from(object.frequency) * object.worth;
    }

    fn resize(&mut self, handle: Handle, bytes: u64) {
        let Some(object) = self.objects.get_mut(handle.index()).filter(|o| o.is_there()) else {
            return;
        };
        self.used = self.used - object.bytes + bytes;
        object.bytes = bytes;
        object.worth = self.cost.per_byte(bytes);
        object.value = self.inflation + f64::from(object.frequency) * object.worth;
        // The value may have fallen, and the heap holds lower bounds. So the old entry becomes
        // void.
        object.generation = object.generation.wrapping_add(2);
        let (order, generation) = (object.order(), object.generation);
        self.heap.push(Reverse(HeapEntry { order, handle: handle.0, generation }));
        self.tidy();
    }

    fn remove(&mut self, handle: Handle) -> bool {
        let there = self.contains(handle);
        if there {
            self.drop_object(handle.0);
            self.tidy();
        }
        there
    }

    fn evict(&mut self) -> Option<Handle> {
        loop {
            let mut top = self.heap.peek_mut()?;
            let candidate = top.0;
            let object = &self.objects[candidate.handle as usize];
            if object.generation != candidate.generation {
                PeekMut::pop(top);
            } else if object.order() != candidate.order {
                top.0.order = object.order();
            } else {
                PeekMut::pop(top);
                self.inflation = object.value;
                self.drop_object(candidate.handle);
                return Some(Handle(candidate.handle));
            }
        }
    }

    fn add(&mut self, handle: Handle, _: Key, bytes: u64) {
        if self.objects.len() <= handle.index() {
            self.objects.resize(handle.index() + 1, RankedObject::default());
        }
        self.requests += 1;
        let worth = self.cost.per_byte(bytes);
        let object = &mut self.objects[handle.index()];
        let generation = object.generation.wrapping_add(1);
        let (value, asked) = (self.inflation + worth, self.requests);
        *object = RankedObject { bytes, worth, value, asked, frequency: 1, generation };
        let order = object.order();
        self.heap.push(Reverse(HeapEntry { order, handle: handle.0, generation }));
        self.used += bytes;
        self.count += 1;
    }
}
