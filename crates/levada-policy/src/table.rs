//! A map from objects to small values that never outgrows its limit: the "LRU cache of mappings" that
//! the LARD paper proposes for large sites (ASPLOS'98 Sec. 2.5), with clock in place of LRU.
//!
//! ```text
//! slot     0    1    2    3    4    5        linear probing from the key's home slot;
//! state  [ .  | !  | +  | .  | !  | + ]      no tombstones: a removal moves successors back
//! key    [    | k1 | k2 |    | k3 | k4 ]     . free   + not asked for since the hand passed
//! value  [    | v1 | v2 |    | v3 | v4 ]     ! asked for
//!                    ^ hand
//! ```
//!
//! A full table evicts at the clock's hand: what was asked for again since the last round stays, the
//! rest goes. A newcomer has not been asked for *again*, so a flood of keys that come once replaces
//! itself and leaves the working set alone. Keys, values and states lie apart, without padding: a
//! slot costs 9 bytes and the value, and 4 in 5 slots of a full table are used.

use levada_types::{Key, weigh};

/// See the top of this file.
#[derive(Clone, Debug)]
pub(crate) struct Table<V> {
    limit: usize,
    len: usize,
    hand: usize,
    states: Vec<State>,
    keys: Vec<Key>,
    values: Vec<V>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Free,
    Kept,
    AskedFor,
}

const FEWEST_SLOTS: usize = 16;

impl<V: Clone + Default> Table<V> {
    /// An empty table for at most `limit` objects, and at least one.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.max(1);
        Self { limit, len: 0, hand: 0, states: Vec::new(), keys: Vec::new(), values: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes of memory held, without what the values point to.
    pub(crate) fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>()
            + self.keys.capacity() * size_of::<Key>()
            + self.values.capacity() * size_of::<V>()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        let used = self.states.iter().zip(&self.values);
        used.filter(|(state, _)| **state != State::Free).map(|(_, value)| value)
    }

    /// The value of `key`, without counting as asking for it.
    pub(crate) fn peek(&self, key: Key) -> Option<&V> {
        self.slot(key).ok().map(|slot| &self.values[slot])
    }

    /// The value of `key`, which has now been asked for.
    #[inline]
    pub(crate) fn ask(&mut self, key: Key) -> Option<&mut V> {
        let slot = self.slot(key).ok()?;
        self.states[slot] = State::AskedFor;
        Some(&mut self.values[slot])
    }

    /// Sets the value of `key`; returns what had to go for it when it is new and the table is full.
    pub(crate) fn insert(&mut self, key: Key, value: V) -> Option<V> {
        if let Some(known) = self.ask(key) {
            *known = value;
            return None;
        }
        let evicted = if self.len == self.limit { Some(self.evict()) } else { None };
        if (self.len + 1) * 5 > self.states.len() * 4 {
            self.grow();
        }
        let slot = self.slot(key).expect_err("it is new");
        (self.states[slot], self.keys[slot], self.values[slot]) = (State::Kept, key, value);
        self.len += 1;
        evicted
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<V> {
        self.slot(key).ok().map(|slot| self.vacate(slot))
    }

    /// Passes every value through `change`; those for which it returns `None` are forgotten.
    pub(crate) fn update(&mut self, mut change: impl FnMut(V) -> Option<V>) {
        let before = std::mem::replace(self, Self::new(self.limit));
        let entries = before.states.into_iter().zip(before.keys).zip(before.values);
        for ((_, key), value) in entries.filter(|((state, _), _)| *state != State::Free) {
            if let Some(value) = change(value) {
                self.insert(key, value);
            }
        }
    }

    /// Where `key` is, or else the free slot where it would go (slot 0 before there are slots).
    #[inline]
    fn slot(&self, key: Key) -> Result<usize, usize> {
        if self.states.is_empty() {
            return Err(0);
        }
        let mut slot = self.home(key);
        // At most 4 in 5 slots are used, so a free one ends the walk.
        while self.states[slot] != State::Free {
            if self.keys[slot] == key {
                return Ok(slot);
            }
            slot = self.after(slot);
        }
        Err(slot)
    }

    /// The slot where the walk for `key` begins. Keys are mixed again: those of one shard, and those
    /// of tests, are not spread over all 64 bits.
    #[inline]
    fn home(&self, key: Key) -> usize {
        let place = u128::from(weigh(key, 0x9e37_79b9_7f4a_7c15));
        ((place * self.states.len() as u128) >> 64) as usize
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.states.len() { 0 } else { slot + 1 }
    }

    /// How many steps a walk takes from one slot to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.states.len() - from }
    }

    /// Doubles the slots, up to those that `limit` needs.
    fn grow(&mut self) {
        let most = self.limit + self.limit / 4 + 2;
        let slots = (self.states.len() * 2).max(FEWEST_SLOTS).min(most);
        let bigger = Self {
            states: vec![State::Free; slots],
            keys: vec![Key(0); slots],
            values: vec![V::default(); slots],
            ..Self::new(self.limit)
        };
        let before = std::mem::replace(self, bigger);
        let entries = before.states.into_iter().zip(before.keys).zip(before.values);
        for ((state, key), value) in entries.filter(|((state, _), _)| *state != State::Free) {
            let slot = self.slot(key).expect_err("keys differ");
            (self.states[slot], self.keys[slot], self.values[slot]) = (state, key, value);
            self.len += 1;
        }
    }

    fn evict(&mut self) -> V {
        loop {
            let slot = self.hand;
            match self.states[slot] {
                // The hand stays: a successor may have moved into the slot.
                State::Kept => return self.vacate(slot),
                State::AskedFor => self.states[slot] = State::Kept,
                State::Free => {}
            }
            self.hand = self.after(slot);
        }
    }

    /// Frees `slot` and moves back every successor whose walk would now end too early (Knuth 6.4,
    /// algorithm R).
    fn vacate(&mut self, slot: usize) -> V {
        let value = std::mem::take(&mut self.values[slot]);
        let (mut hole, mut next) = (slot, self.after(slot));
        while self.states[next] != State::Free {
            let walked = self.distance(self.home(self.keys[next]), next);
            if walked >= self.distance(hole, next) {
                self.states[hole] = self.states[next];
                self.keys[hole] = self.keys[next];
                self.values.swap(hole, next);
                hole = next;
            }
            next = self.after(next);
        }
        self.states[hole] = State::Free;
        self.len -= 1;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_types::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_a_map() {
        let (mut table, mut map, mut rng) = (Table::new(10_000), BTreeMap::new(), Rng::new(1));
        for step in 0..50_000u32 {
            let key = Key(rng.below(3_000) as u64);
            if rng.below(3) == 0 {
                assert_eq!(table.remove(key), map.remove(&key));
            } else {
                assert_eq!(table.insert(key, step), None);
                map.insert(key, step);
            }
            assert_eq!(table.len(), map.len());
        }
        assert!((0..3_000).all(|key| table.peek(Key(key)) == map.get(&Key(key))));
    }

    #[test]
    fn a_flood_leaves_the_working_set_alone() {
        let mut table = Table::new(1_000);
        for flood in 1_000..100_000 {
            let working = Key(flood % 500);
            if table.ask(working).is_none() {
                table.insert(working, 1u32);
            }
            table.insert(Key(flood), 2);
            assert!(table.len() <= 1_000);
        }
        assert!((0..500).all(|key| table.peek(Key(key)) == Some(&1)));
        assert!(table.bytes() <= 1_252 * (9 + 4), "{}", table.bytes());
    }

    #[test]
    fn what_is_not_kept_by_an_update_is_forgotten() {
        let mut table = Table::new(100);
        (0..100).for_each(|key| assert_eq!(table.insert(Key(key), key), None));
        table.update(|value| (value % 2 == 0).then_some(value + 1));
        assert_eq!(table.len(), 50);
        assert!((0..100).all(|k| table.peek(Key(k)).copied() == (k % 2 == 0).then_some(k + 1)));
    }

    #[test]
    fn the_smallest_table_holds_one() {
        let mut table = Table::new(0);
        assert_eq!(table.insert(Key(1), 'a'), None);
        assert_eq!(table.insert(Key(2), 'b'), Some('a'));
        assert_eq!((table.peek(Key(1)), table.peek(Key(2))), (None, Some(&'b')));
    }
}
