//! A map from objects to small values with a limit on its size: the "LRU cache of mappings" that
//! the LARD paper proposes for large sites (ASPLOS'98 Sec. 2.5), with clock (second chance) in
//! place of LRU.
//!
//! ```text
//! a bucket of 16 ways      0    1    2    3    4    5   ...  15
//! keys                  [ k0 | k1 | k2 |    | k4 | k5 | ... |   ]
//! values                [ v0 | v1 | v2 |    | v4 | v5 | ... |   ]
//! used                     1    1    1    0    1    1   ...   0     one bit each
//! asked                    0    1    0    0    0    1   ...   0     again: one bit each
//!                                    ^ hand
//! ```
//!
//! A key belongs to one bucket, so a lookup reads at most its 16 ways, for any keys: the work is
//! limited, not only the memory. A full bucket evicts the next key, from its hand on, that was not
//! requested again; if all were, all marks are cleared first. A new key has not been requested
//! *again*, so a flood of keys that are requested once evicts only such keys and keeps the working
//! set. An attacker who chooses keys for one bucket evicts only the other keys of that bucket.
//!
//! A full bucket makes the table double its buckets while the limit allows it. After that one
//! bucket may evict while others have room, which is the price of limited work. A slot costs 8.5
//! bytes and the value.

use levada_types::{Key, weigh};

use crate::order::scale;

/// Described at the top of this file.
#[derive(Clone, Debug)]
pub(crate) struct ObjectTable<V> {
    limit: usize,
    len: usize,
    buckets: Vec<TableBucket<V>>,
    #[cfg(test)]
    probes: std::cell::Cell<usize>,
}

#[derive(Clone, Debug)]
struct TableBucket<V> {
    keys: [Key; WAYS],
    values: [V; WAYS],
    used: u16,
    asked: u16,
    hand: u8,
}

/// The bits of `used` and `asked`.
const WAYS: usize = 16;

impl<V: Clone + Default> ObjectTable<V> {
    /// An empty table for at most `limit` objects, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            len: 0,
            buckets: Vec::new(),
            #[cfg(test)]
            probes: std::cell::Cell::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The bytes of memory it uses, without memory that the values point to.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<TableBucket<V>>()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.buckets.iter().flat_map(|bucket| {
            let used = (0..WAYS).filter(|way| bucket.used & bit(*way) != 0);
            used.map(|way| &bucket.values[way])
        })
    }

    /// The value of `key`. Does not count as a request.
    pub(crate) fn peek(&self, key: Key) -> Option<&V> {
        let bucket = self.buckets.get(self.home(key))?;
        self.count_probes(WAYS);
        bucket.way(key).map(|way| &bucket.values[way])
    }

    /// The value of `key`. Counts as a request for it.
    #[inline]
    pub(crate) fn ask(&mut self, key: Key) -> Option<&mut V> {
        let home = self.home(key);
        self.count_probes(WAYS);
        let bucket = self.buckets.get_mut(home)?;
        let way = bucket.way(key)?;
        bucket.asked |= bit(way);
        Some(&mut bucket.values[way])
    }

    /// Sets the value of `key`; returns the value that was evicted if the key is new and there is
    /// no room.
    pub(crate) fn insert(&mut self, key: Key, value: V) -> Option<V> {
        if let Some(known) = self.ask(key) {
            *known = value;
            return None;
        }
        while self.buckets.len() < self.most_buckets() && self.is_full(self.home(key)) {
            self.grow();
        }
        self.add(key, value)
    }

    /// Replaces every value by the result of `change`; removes values for which it returns `None`.
    pub(crate) fn update(&mut self, mut change: impl FnMut(V) -> Option<V>) {
        for bucket in &mut self.buckets {
            for way in (0..WAYS).filter(|way| bucket.used & bit(*way) != 0).collect::<Vec<_>>() {
                match change(std::mem::take(&mut bucket.values[way])) {
                    Some(value) => bucket.values[way] = value,
                    None => {
                        bucket.used &= !bit(way);
                        bucket.asked &= !bit(way);
                        self.len -= 1;
                    }
                }
            }
        }
    }

    /// The table with another limit. With a smaller limit it keeps the entries that fit if all are
    /// inserted again.
    pub(crate) fn limited_to(self, limit: usize) -> Self {
        if limit.max(1) == self.limit {
            return self;
        }
        let mut other = Self::new(limit);
        for bucket in self.buckets {
            let used = (0..WAYS).filter(|way| bucket.used & bit(*way) != 0);
            for (key, value) in used.map(|way| (bucket.keys[way], bucket.values[way].clone())) {
                other.insert(key, value);
            }
        }
        other
    }

    /// Adds a new key to its bucket, if necessary in place of another.
    fn add(&mut self, key: Key, value: V) -> Option<V> {
        let (home, ways) = (self.home(key), self.ways(self.home(key)));
        self.count_probes(WAYS);
        let bucket = &mut self.buckets[home];
        let free = (!bucket.used).trailing_zeros() as usize;
        if free < ways {
            self.len += 1;
            bucket.set(free, key, value);
            return None;
        }
        let way = bucket.victim();
        let evicted = std::mem::take(&mut bucket.values[way]);
        bucket.set(way, key, value);
        Some(evicted)
    }

    /// The bucket of `key`. Keys are mixed again, because keys of one shard, and keys of tests, are
    /// not spread over all 64 bits.
    #[inline]
    fn home(&self, key: Key) -> usize {
        scale(weigh(key, 0x9e37_79b9_7f4a_7c15), self.buckets.len())
    }

    fn is_full(&self, home: usize) -> bool {
        let bucket = self.buckets.get(home);
        bucket.is_none_or(|b| b.used.count_ones() as usize == self.ways(home))
    }

    fn most_buckets(&self) -> usize {
        self.limit.div_ceil(WAYS)
    }

    /// The number of ways that a bucket uses: when the table has all its buckets, they share
    /// `limit`.
    fn ways(&self, home: usize) -> usize {
        let most = self.most_buckets();
        if self.buckets.len() < most {
            return WAYS;
        }
        self.limit / most + usize::from(home < self.limit % most)
    }

    /// Doubles the number of buckets, up to the number that `limit` needs.
    fn grow(&mut self) {
        let count = (self.buckets.len() * 2).clamp(1, self.most_buckets());
        let mut bigger = Self::new(self.limit);
        bigger.buckets.reserve_exact(count);
        bigger.buckets.resize_with(count, TableBucket::empty);
        for bucket in std::mem::take(&mut self.buckets) {
            for (way, (key, value)) in (0..).zip(bucket.keys.into_iter().zip(bucket.values)) {
                if bucket.used & bit(way) == 0 {
                    continue;
                }
                bigger.add(key, value);
                if bucket.asked & bit(way) != 0 {
                    bigger.ask(key);
                }
            }
        }
        *self = bigger;
    }

    #[cfg(test)]
    fn count_probes(&self, slots: usize) {
        self.probes.set(self.probes.get() + slots);
    }

    #[cfg(not(test))]
    #[inline(always)]
    fn count_probes(&self, _slots: usize) {}
}

impl<V: Default> TableBucket<V> {
    fn empty() -> Self {
        let values = std::array::from_fn(|_| V::default());
        Self { keys: [Key(0); WAYS], values, used: 0, asked: 0, hand: 0 }
    }

    /// The way of `key`. All ways are compared, so that there is no branch to mispredict.
    #[inline]
    fn way(&self, key: Key) -> Option<usize> {
        let equal = |way: usize| u16::from(self.keys[way] == key) << way;
        let found = (0..WAYS).fold(0, |found, way| found | equal(way)) & self.used;
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    fn set(&mut self, way: usize, key: Key, value: V) {
        (self.keys[way], self.values[way]) = (key, value);
        self.used |= bit(way);
        self.asked &= !bit(way);
    }

    /// The first way from the hand on that was not requested again. If all were, the marks are
    /// cleared.
    fn victim(&mut self) -> usize {
        if self.asked == self.used {
            self.asked = 0;
        }
        let idle = self.used & !self.asked;
        let ahead = idle & (u16::MAX << self.hand);
        let way = if ahead != 0 { ahead } else { idle }.trailing_zeros() as usize;
        self.hand = ((way + 1) % WAYS) as u8;
        way
    }
}

const fn bit(way: usize) -> u16 {
    1 << way
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_types::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_a_map() {
        let (mut table, mut map, mut rng) =
            (ObjectTable::new(10_000), BTreeMap::new(), Rng::new(1));
        for step in 0..50_000u32 {
            let key = Key(rng.below(3_000) as u64);
            assert_eq!(table.insert(key, step), None);
            map.insert(key, step);
            assert_eq!(table.len(), map.len());
        }
        assert!((0..4_000).all(|key| table.peek(Key(key)) == map.get(&Key(key))));
        assert_eq!(table.values().sum::<u32>(), map.values().sum::<u32>());
    }

    #[test]
    fn another_limit_keeps_what_fits() {
        let mut table = ObjectTable::new(1_000);
        (0..500u64).for_each(|key| assert_eq!(table.insert(Key(key), key), None));
        let larger = table.limited_to(2_000);
        assert!((0..500).all(|key| larger.peek(Key(key)) == Some(&key)));
        let smaller = larger.limited_to(100);
        assert!(smaller.len() <= 100 && smaller.len() > 50, "{}", smaller.len());
    }

    #[test]
    fn a_flood_leaves_the_working_set_alone() {
        let mut table = ObjectTable::new(1_000);
        let working = (0..400).chain(0..400);
        working.for_each(|key| {
            table.insert(Key(key), 1u32);
        });
        for flood in 1_000..100_000 {
            assert!(table.ask(Key(flood % 400)).is_some());
            table.insert(Key(flood), 2);
            assert!(table.len() <= 1_000);
        }
        assert_eq!(table.len(), 1_000);
        assert!(table.bytes() <= 1_000 * 13, "{}", table.bytes());
    }

    /// The clock once ran over the whole table. It freed neighbouring slots, so walks became as
    /// long as the runs between them, and a flood of new keys cost tens of microseconds each.
    #[test]
    fn a_flood_costs_no_more_work_per_key_than_the_ways_of_a_bucket() {
        const LIMIT: u64 = 5_000;
        let (mut table, mut rng) = (ObjectTable::new(LIMIT as usize), Rng::new(1));
        for key in 0..20 * LIMIT {
            // Some keys are requested again, so that hands skip them.
            table.ask(Key(rng.below(LIMIT as usize) as u64));
            let grown = table.buckets.len() == table.most_buckets();
            table.probes.set(0);
            assert!(table.ask(Key(key)).is_none());
            table.insert(Key(key), 1u32);
            let probes = table.probes.get();
            assert!(!grown || probes <= 4 * WAYS, "{probes} for key {key}");
        }
        assert_eq!(table.len(), LIMIT as usize);
    }

    #[test]
    fn keys_that_were_chosen_for_one_bucket_evict_only_each_other() {
        let mut table = ObjectTable::new(1_600);
        (0..20_000).for_each(|key| {
            table.insert(Key(key), key);
        });
        let others: Vec<_> =
            (0..20_000).filter(|key| table.home(Key(*key)) != 3).map(Key).collect();
        let values =
            |table: &ObjectTable<u64>| others.iter().map(|k| table.peek(*k).copied()).collect();
        let before: Vec<_> = values(&table);
        for key in (20_000..60_000).map(Key).filter(|key| table.home(*key) == 3).collect::<Vec<_>>()
        {
            table.probes.set(0);
            table.insert(key, key.0);
            assert!(table.probes.get() <= 4 * WAYS);
        }
        assert_eq!(before, values(&table));
    }

    #[test]
    fn what_is_not_kept_by_an_update_is_forgotten() {
        let mut table = ObjectTable::new(1_000);
        (0..100).for_each(|key| assert_eq!(table.insert(Key(key), key), None));
        table.update(|value| (value % 2 == 0).then_some(value + 1));
        assert_eq!(table.len(), 50);
        assert!((0..100).all(|k| table.peek(Key(k)).copied() == (k % 2 == 0).then_some(k + 1)));
    }

    #[test]
    fn the_smallest_table_holds_one() {
        let mut table = ObjectTable::new(0);
        assert_eq!(table.insert(Key(1), 'a'), None);
        assert_eq!(table.insert(Key(2), 'b'), Some('a'));
        assert_eq!((table.peek(Key(1)), table.peek(Key(2))), (None, Some(&'b')));
    }
}
