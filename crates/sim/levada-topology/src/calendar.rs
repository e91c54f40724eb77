//! A calendar queue of the links' next deliveries (Brown, "Calendar Queues", CACM 31, 1988).
//!
//! Time is cut into slots of about a microsecond, and a ring of them covers the time in which packets
//! on their way arrive. A link is in the slot of its next arrival, in a list that is linked through
//! an array with one entry per link: nothing is allocated, and an insertion costs the same for any
//! number of links. Only the current slot is sorted, by time and then by link. Arrivals beyond the
//! ring wait in its last slot and are inserted again from there.

/// The calendar: see the module.
#[derive(Debug)]
pub struct Calendar {
    /// The time of each link in the calendar, and the next link in its slot.
    times: Vec<u64>,
    following: Vec<u32>,
    /// The first link of each slot of the ring, and which slots have one, by bit.
    slots: Vec<u32>,
    filled: Vec<u64>,
    /// Links in the ring.
    waiting: usize,
    /// The current slot. Every arrival up to its end is in `now`, the earliest last.
    slot: u64,
    now: Vec<(u64, u32)>,
}

/// No event.
pub const NEVER: u64 = u64::MAX;

/// A slot is 2^10 ns; the ring's 2^16 slots are 67 ms.
const SLOT_BITS: u32 = 10;
const SLOTS: u64 = 1 << 16;
const NOBODY: u32 = u32::MAX;

impl Calendar {
    /// Of so many links, none of which has a delivery.
    pub fn new(links: usize) -> Self {
        Self {
            times: vec![NEVER; links],
            following: vec![NOBODY; links],
            slots: vec![NOBODY; SLOTS as usize],
            filled: vec![0; SLOTS as usize / 64],
            waiting: 0,
            slot: 0,
            now: Vec::new(),
        }
    }

    /// The time of the next delivery.
    #[inline]
    pub fn next(&self) -> u64 {
        self.now.last().map_or(NEVER, |(time, _)| *time)
    }

    /// Takes out the link of the next delivery.
    #[inline]
    pub fn take(&mut self) -> Option<(usize, u64)> {
        let (time, link) = self.now.pop()?;
        if self.now.is_empty() {
            self.turn();
        }
        Some((link as usize, time))
    }

    /// Inserts `link`, which is not in the calendar, at `time`.
    #[inline]
    pub fn put(&mut self, link: usize, time: u64) {
        if self.now.is_empty() {
            // A calendar that is not empty has an entry in `now`.
            self.slot = time >> SLOT_BITS;
        }
        let entry = (time, link as u32);
        if time >> SLOT_BITS <= self.slot {
            let place = self.now.partition_point(|other| *other > entry);
            self.now.insert(place, entry);
        } else {
            self.times[link] = time;
            self.put_ahead(link as u32, time);
        }
    }

    fn put_ahead(&mut self, link: u32, time: u64) {
        let slot = (time >> SLOT_BITS).min(self.slot + SLOTS - 1);
        let place = (slot % SLOTS) as usize;
        self.following[link as usize] = std::mem::replace(&mut self.slots[place], link);
        self.filled[place / 64] |= 1 << (place % 64);
        self.waiting += 1;
    }

    /// Advances to the next slot with a delivery.
    fn turn(&mut self) {
        while self.now.is_empty() && self.waiting > 0 {
            let place = self.next_filled();
            self.filled[place / 64] &= !(1 << (place % 64));
            let mut link = std::mem::replace(&mut self.slots[place], NOBODY);
            let ahead = (place as u64).wrapping_sub(self.slot) % SLOTS;
            self.slot += ahead;
            while link != NOBODY {
                let following = self.following[link as usize];
                let time = self.times[link as usize];
                self.waiting -= 1;
                if time >> SLOT_BITS <= self.slot {
                    self.now.push((time, link));
                } else {
                    self.put_ahead(link, time);
                }
                link = following;
            }
        }
        self.now.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The first filled slot after the current one, round the ring.
    fn next_filled(&self) -> usize {
        let begin = ((self.slot + 1) % SLOTS) as usize;
        let words = self.filled.len();
        let first = self.filled[begin / 64] >> (begin % 64);
        if first != 0 {
            return begin + first.trailing_zeros() as usize;
        }
        let later = (begin / 64 + 1..=begin / 64 + words)
            .map(|word| word % words)
            .find(|word| self.filled[*word] != 0);
        // A link waits, so a bit is set.
        later.map_or(begin, |word| word * 64 + self.filled[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use levada_types::Rng;

    use super::*;

    #[test]
    fn links_come_by_time_and_then_by_number() {
        let mut rng = Rng::new(5);
        // From a slot to several rings.
        for reach in [3_usize, 500, 5_000, 1_000_000, 60_000_000, 400_000_000] {
            let mut calendar = Calendar::new(100);
            let mut expected = BTreeSet::new();
            let mut idle: Vec<usize> = (0..100).collect();
            let mut now = 0;
            for _ in 0..20_000 {
                if !idle.is_empty() && rng.below(2) == 0 {
                    let link = idle.swap_remove(rng.below(idle.len()));
                    let time = now + rng.below(reach) as u64;
                    calendar.put(link, time);
                    expected.insert((time, link));
                } else if let Some((link, time)) = calendar.take() {
                    assert_eq!(expected.pop_first(), Some((time, link)));
                    now = time;
                    idle.push(link);
                }
                assert_eq!(calendar.next(), expected.first().map_or(NEVER, |first| first.0));
            }
        }
    }

    #[test]
    fn what_is_due_before_the_slot_that_has_come_is_next() {
        let mut calendar = Calendar::new(3);
        calendar.put(0, 50_000_000);
        calendar.put(1, 900_000_000_000);
        calendar.put(2, 7);
        assert_eq!(calendar.take(), Some((2, 7)));
        calendar.put(2, 8);
        assert_eq!(calendar.take(), Some((2, 8)));
        assert_eq!(calendar.take(), Some((0, 50_000_000)));
        assert_eq!(calendar.take(), Some((1, 900_000_000_000)));
        assert_eq!((calendar.take(), calendar.next()), (None, NEVER));
    }
}
