//! Miniature caches of a sample of the objects, one for each algorithm: which would have the most hits.
//!
//! An object is in the sample if the hash of its key is below a threshold, with all its requests
//! (Waldspurger et al., Efficient MRC Construction with SHARDS, FAST 2015), and every cache is
//! smaller by the same share (Waldspurger et al., Miniature Simulations, USENIX ATC 2017). The
//! threshold follows the number of sampled objects, so that the memory is bounded.

use super::{Eviction, EvictionEntry, Handle};
use levada_types::{Key, weigh};
use std::collections::HashMap;

/// The hash of the sample is another one than those that choose nodes and parts of a store.
const SEED: u64 = 0xa076_1d64_78bd_642f;

/// The most objects of the sample: one for so many bytes of the cache, within bounds.
const BYTES_PER_OBJECT: u64 = 16 << 10;
const OBJECTS: std::ops::RangeInclusive<u64> = 64..=4096;

/// A smaller cache has no sample: it would take too much of it.
const LEAST_CAPACITY: u64 = 256 << 10;

/// Sampled requests between two judgements.
pub(super) const PERIOD: u32 = 1024;

/// In so many periods at first, the sample may have all objects. Later it has half of them at most, so
/// that a hit in a small cache costs no more than in a large one.
const WHOLE_PERIODS: u32 = 16;

/// The part of the counts that a judgement keeps: about the last 16 periods count.
const KEPT: f64 = 0.9375;

/// Requests and bytes, the recent ones in full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: f64,
    pub(super) bytes: f64,
}

impl Counts {
    fn add(&mut self, bytes: f64) {
        self.requests += 1.0;
        self.bytes += bytes;
    }

    /// Adds the counts of a period, which begin again from zero.
    fn take(&mut self, recent: &mut Self) {
        let Self { requests, bytes } = std::mem::take(recent);
        self.requests = self.requests * KEPT + requests;
        self.bytes = self.bytes * KEPT + bytes;
    }
}

/// A cache of the sample.
pub(super) struct Shadow {
    pub(super) entry: &'static EvictionEntry,
    eviction: Box<dyn Eviction>,
    pub(super) hits: Counts,
    /// The hits of this period, and of the one that ended last.
    recent: Counts,
    pub(super) period: Counts,
    pub(super) lead: Lead,
}

/// By how much a cache leads another one: the sums of the differences of each period, and of their
/// squares, with the weight of the periods.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lead {
    sum: f64,
    squares: f64,
    periods: f64,
}

impl Lead {
    pub(super) fn add(&mut self, difference: f64) {
        self.sum = self.sum * KEPT + difference;
        self.squares = self.squares * KEPT + difference * difference;
        self.periods = self.periods * KEPT + 1.0;
    }

    /// The least lead in a period that is likely: the mean less its standard error, times `errors`.
    pub(super) fn sure(self, errors: f64) -> f64 {
        let mean = self.sum / self.periods;
        let variance = (self.squares / self.periods - mean * mean).max(0.0);
        mean - errors * (variance / (self.periods - 1.0).max(0.5)).sqrt()
    }
}

/// An object of the sample, and the number of caches that hold it; none for a free slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: Key,
    holders: u8,
}

pub(super) struct Shadows {
    /// The capacity of the whole cache.
    capacity: u64,
    /// Objects with a hash below it are in the sample.
    threshold: u64,
    pub(super) caches: Vec<Shadow>,
    pub(super) all: Counts,
    /// The requests of this period.
    recent: Counts,
    until_judgement: u32,
    periods: u32,
    /// Slots are the handles of all caches. The map is never iterated, so that decisions do not
    /// depend on its seed.
    index: HashMap<Key, u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    victims: Vec<Handle>,
}

impl Shadows {
    pub(super) fn new(capacity: u64, entries: &'static [EvictionEntry]) -> Self {
        let shadow = |entry: &'static EvictionEntry| Shadow {
            entry,
            eviction: (entry.build)(capacity),
            hits: Counts::default(),
            recent: Counts::default(),
            period: Counts::default(),
            lead: Lead::default(),
        };
        let has_sample = capacity >= LEAST_CAPACITY;
        let entries = if has_sample { entries } else { &[] };
        Self {
            capacity,
            threshold: if has_sample { u64::MAX } else { 0 },
            caches: entries.iter().map(shadow).collect(),
            all: Counts::default(),
            recent: Counts::default(),
            until_judgement: PERIOD,
            periods: 0,
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            victims: Vec::new(),
        }
    }

    /// Whether the sample has this object.
    #[inline]
    pub(super) fn has(&self, key: Key) -> bool {
        weigh(key, SEED) < self.threshold
    }

    /// The share of all objects that the sample has.
    pub(super) fn rate(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    /// The objects in any of the caches.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The allocated bytes.
    pub(super) fn overhead(&self) -> u64 {
        let places = (self.index.capacity() * 8 / 7).next_power_of_two();
        let index = places * (size_of::<(Key, u32)>() + 1);
        let slots = self.slots.capacity() * size_of::<Slot>();
        let lists = (self.free.capacity() + self.victims.capacity()) * size_of::<u32>();
        let caches = self.caches.capacity() * size_of::<Shadow>();
        let evictions = self.caches.iter().map(|cache| cache.eviction.overhead()).sum::<u64>();
        (index + slots + lists + caches) as u64 + evictions
    }

    /// Follows a change of the whole cache's capacity.
    pub(super) fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
        let scaled = (bytes as f64 * self.rate()).round() as u64;
        for cache in &mut self.caches {
            cache.eviction.set_capacity(scaled);
            cache.eviction.make_room(0, &mut self.victims);
        }
        self.drop_victims();
    }

    /// Replays a request for an object of the sample; true if it is time to judge.
    pub(super) fn request(&mut self, key: Key, bytes: u64) -> bool {
        let slot = self.slot(key);
        // Held by this request until its end.
        self.slots[slot.index()].holders += 1;
        let size = bytes as f64;
        self.recent.add(size);
        for cache in &mut self.caches {
            let eviction = &mut *cache.eviction;
            if eviction.contains(slot) {
                eviction.touch(slot);
                cache.recent.add(size);
            } else if bytes <= eviction.capacity() {
                self.slots[slot.index()].holders += 1;
                eviction.add(slot, key, bytes);
                eviction.make_room(0, &mut self.victims);
            }
        }
        self.victims.push(slot);
        self.drop_victims();
        while self.len() as u64 > most(self.capacity) {
            self.set_threshold(self.threshold >> 1);
        }
        self.until_judgement -= 1;
        self.until_judgement == 0
    }

    /// Removes an object that the cache must not have any longer.
    pub(super) fn remove(&mut self, key: Key) {
        if let Some(slot) = self.index.remove(&key) {
            self.caches.iter_mut().for_each(|cache| {
                cache.eviction.remove(Handle(slot));
            });
            self.slots[slot as usize].holders = 0;
            self.free.push(slot);
        }
    }

    /// Ends a period before it is judged: its counts join those of the periods before.
    pub(super) fn end_period(&mut self) {
        self.until_judgement = PERIOD;
        self.periods = self.periods.saturating_add(1);
        self.all.take(&mut self.recent);
        for cache in &mut self.caches {
            cache.period = cache.recent;
            cache.hits.take(&mut cache.recent);
        }
        let most_of_all = if self.periods < WHOLE_PERIODS { u64::MAX } else { u64::MAX / 2 };
        if self.threshold > most_of_all {
            self.set_threshold(most_of_all);
        } else if (self.len() as u64) < most(self.capacity) / 4 && self.threshold < most_of_all {
            self.set_threshold(self.threshold << 1 | 1);
        }
    }

    fn set_threshold(&mut self, threshold: u64) {
        self.threshold = threshold;
        for slot in 0..self.slots.len() {
            let Slot { key, holders } = self.slots[slot];
            if holders > 0 && !self.has(key) {
                self.remove(key);
            }
        }
        self.set_capacity(self.capacity);
    }

    /// The slot of an object, a new one if no cache holds it.
    fn slot(&mut self, key: Key) -> Handle {
        if let Some(&slot) = self.index.get(&key) {
            return Handle(slot);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { key, holders: 0 });
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].key = key;
        self.index.insert(key, slot);
        Handle(slot)
    }

    /// Takes a holder from each victim, and frees the slots that have none left.
    fn drop_victims(&mut self) {
        for victim in self.victims.drain(..) {
            let slot = &mut self.slots[victim.index()];
            slot.holders -= 1;
            if slot.holders == 0 {
                self.index.remove(&slot.key);
                self.free.push(victim.0);
            }
        }
    }
}

/// The most objects of the sample of a cache.
fn most(capacity: u64) -> u64 {
    (capacity / BYTES_PER_OBJECT).clamp(*OBJECTS.start(), *OBJECTS.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::EVICTIONS;
    use levada_types::Rng;

    fn requests(shadows: &mut Shadows, number: usize) {
        let mut rng = Rng::new(7);
        for _ in 0..number {
            let key = Key(rng.below(50_000) as u64);
            if shadows.has(key) && shadows.request(key, 1 + key.0 % 5000) {
                shadows.end_period();
            }
        }
    }

    #[test]
    fn sample_is_bounded_and_follows_the_capacity() {
        let mut shadows = Shadows::new(2 << 20, &EVICTIONS[..5]);
        requests(&mut shadows, 100_000);
        assert_eq!(most(2 << 20), 128);
        assert!((32..=128).contains(&shadows.len()), "{}", shadows.len());
        assert!(shadows.rate() < 0.2 && shadows.overhead() < 128 * 1024);
        let small = shadows.rate();
        shadows.set_capacity(32 << 20);
        requests(&mut shadows, 400_000);
        assert!(shadows.rate() > small && shadows.len() > 128, "{}", shadows.len());
        shadows.set_capacity(1 << 20);
        requests(&mut shadows, 100);
        assert!(shadows.len() <= 64);
        for cache in &shadows.caches {
            assert!(cache.eviction.used() <= cache.eviction.capacity());
        }
    }

    #[test]
    fn slots_without_holders_are_free() {
        let mut shadows = Shadows::new(1 << 20, &EVICTIONS[..5]);
        requests(&mut shadows, 10_000);
        let held = shadows.slots.iter().filter(|slot| slot.holders > 0).count();
        assert_eq!((held, shadows.free.len()), (shadows.len(), shadows.slots.len() - held));
        (0..50_000).for_each(|key| shadows.remove(Key(key)));
        assert_eq!((shadows.len(), shadows.free.len()), (0, shadows.slots.len()));
        assert!(shadows.caches.iter().all(|cache| cache.eviction.is_empty()));
    }
}
