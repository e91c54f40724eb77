//! The event queue, ordered by time and then by the order of scheduling.
//!
//! A wheel of slots of a quarter of a millisecond each, as in Brown's calendar queue (CACM 1988): an
//! event is appended to the slot of its time, and a slot is sorted when the wheel reaches it. So an
//! event costs the same, however many are pending. Events beyond the wheel wait in a tree.
//!
//! ```text
//! far (tree)  ...... | slot  slot  slot  ...  slot | near (sorted) -> next
//!                      about four seconds            this slot
//! ```

use std::{cmp::Reverse, collections::BTreeMap};

use levada_types::Timestamp;

/// Pending events. `E` should be small, because entries are moved often.
#[derive(Debug)]
pub struct Agenda<E> {
    /// The events of the current slot and of those before it, the next one last.
    near: Vec<Entry<E>>,
    slots: Vec<Vec<Entry<E>>>,
    /// One bit per slot: set when the slot is not empty.
    occupied: [u64; SLOTS / 64],
    /// The events beyond the wheel, by time and then by the order of scheduling.
    far: BTreeMap<(Timestamp, u64), E>,
    /// The number of the slot that `near` holds, counted from the beginning of time.
    current: u64,
    /// The number of events that were ever scheduled beyond the wheel.
    distant: u64,
}

/// A slot is 2^18 ns long.
const SLOT_BITS: u32 = 18;
const SLOTS: usize = 1 << 14;

impl<E> Default for Agenda<E> {
    /// Without events, at the beginning of time.
    fn default() -> Self {
        Self {
            near: Vec::new(),
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            occupied: [0; SLOTS / 64],
            far: BTreeMap::new(),
            current: 0,
            distant: 0,
        }
    }
}

impl<E: Copy> Iterator for Agenda<E> {
    type Item = (Timestamp, E);

    /// Takes out the next event.
    #[inline]
    fn next(&mut self) -> Option<(Timestamp, E)> {
        if self.near.is_empty() {
            self.turn(Timestamp(u64::MAX));
        }
        self.near.pop().map(|entry| (entry.time, entry.event))
    }
}

impl<E: Copy> Agenda<E> {
    /// Size of a pending event, in bytes.
    pub const BYTES_PER_EVENT: usize = size_of::<Entry<E>>();

    /// The time of the next event, if it is due by `until`. The wheel turns no further than that, so
    /// that what is scheduled from then on finds its own slot.
    #[inline]
    pub fn next_time(&mut self, until: Timestamp) -> Option<Timestamp> {
        if self.near.is_empty() {
            self.turn(until);
        }
        self.near.last().map(|entry| entry.time).filter(|time| *time <= until)
    }

    /// Schedules `event` for `time`, after the events that were scheduled for that time before.
    #[inline]
    pub fn schedule(&mut self, time: Timestamp, event: E) {
        let slot = slot(time);
        if slot <= self.current {
            let place = self.near.partition_point(|other| other.time > time);
            self.near.insert(place, Entry { time, event });
        } else if slot - self.current < SLOTS as u64 {
            self.append(Entry { time, event });
        } else {
            self.far.insert((time, self.distant), event);
            self.distant += 1;
        }
    }

    #[inline]
    fn append(&mut self, entry: Entry<E>) {
        let place = slot(entry.time) as usize % SLOTS;
        self.slots[place].push(entry);
        self.occupied[place / 64] |= 1 << (place % 64);
    }

    /// Turns the wheel to the next slot that is not empty, if it begins by `until`.
    fn turn(&mut self, until: Timestamp) {
        let next_far = self.far.first_key_value().map(|((time, _), _)| slot(*time));
        let next = self.next_occupied().or(next_far).filter(|next| *next <= slot(until));
        let Some(next) = next else { return };
        self.current = next;
        // The wheel covers later times now: move events from the tree into it. They were scheduled
        // before all events that the wheel gets for these times from now on.
        while let Some(first) = self.far.first_entry()
            && slot(first.key().0) - next < SLOTS as u64
        {
            let ((time, _), event) = first.remove_entry();
            self.append(Entry { time, event });
        }
        let place = next as usize % SLOTS;
        self.occupied[place / 64] &= !(1 << (place % 64));
        // The last one is taken first, and the sort leaves events of the same time in their order.
        self.near.extend(self.slots[place].drain(..).rev());
        self.near.sort_by_key(|entry| Reverse(entry.time));
    }

    /// The next slot after the current one that is not empty, once around.
    fn next_occupied(&self) -> Option<u64> {
        let here = self.current as usize % SLOTS;
        let words = SLOTS / 64;
        // The word of the current slot is read twice: first for the slots after it, last for the
        // slots before it.
        for turn in 0..=words {
            let word = (here / 64 + turn) % words;
            let after = !0u64 << (here % 64) << 1;
            let bits = self.occupied[word]
                & match turn {
                    0 => after,
                    _ if turn == words => !after,
                    _ => !0,
                };
            if bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                return Some(self.current + ((place + SLOTS - here) % SLOTS) as u64);
            }
        }
        None
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    time: Timestamp,
    event: E,
}

fn slot(time: Timestamp) -> u64 {
    time.0 >> SLOT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_types::Rng;

    #[test]
    fn events_come_by_time_then_by_scheduling() {
        // The spreads lie within a slot, within the wheel, and far beyond it.
        for spread in [1_000, 100_000_000, 1_000_000_000_000] {
            let mut agenda = Agenda::default();
            let mut rng = Rng::new(1);
            let mut expected = Vec::new();
            for number in 0..10_000 {
                let time = Timestamp(rng.below(spread) as u64);
                agenda.schedule(time, number);
                expected.push((time, number));
            }
            expected.sort_unstable();
            let seen: Vec<_> = agenda.collect();
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn what_is_scheduled_meanwhile_finds_its_place() {
        let (mut agenda, mut rng) = (Agenda::default(), Rng::new(2));
        let mut pending = std::collections::BTreeSet::new();
        let mut now = 0;
        for number in 0..200_000u32 {
            // Most events are near, some are far ahead, and now and then the queue runs empty.
            let ahead = [900, 3_000_000, 40_000_000, 5_000_000_000, 60_000_000_000][rng.below(5)];
            let time = Timestamp(now + rng.below(ahead) as u64);
            agenda.schedule(time, number);
            pending.insert((time, number));
            let take = if number % 1_000 == 999 { usize::MAX } else { rng.below(3) };
            for _ in 0..take.min(pending.len()) {
                assert_eq!(
                    agenda.next_time(Timestamp(u64::MAX)),
                    pending.first().map(|first| first.0)
                );
                let next = agenda.next();
                assert_eq!(next, pending.pop_first());
                now = next.unwrap().0.0;
            }
        }
    }
}
