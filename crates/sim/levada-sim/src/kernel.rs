//! The event queue, ordered by time and then by the order of scheduling.
//!
//! A wheel of slots of a millisecond each, as in Brown's calendar queue (CACM 1988): an event is
//! appended to the slot of its time, unsorted, and only the entries of the current slot are moved
//! into a heap. The heap stays small and remains in the processor's cache, however many events are
//! pending. Events beyond the wheel wait in a second heap.
//!
//! ```text
//! far (heap)  ...... | slot  slot  slot  ...  slot | near (heap) -> next
//!                      about four seconds            this millisecond
//! ```

use levada_types::Timestamp;

/// Pending events. `E` should be small, because entries are moved often.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    near: Heap<E>,
    slots: Vec<Vec<Entry<E>>>,
    /// One bit per slot: set when the slot is not empty.
    occupied: [u64; SLOTS / 64],
    far: Heap<E>,
    /// The number of the slot that `near` holds, counted from the beginning of time.
    current: u64,
    sequence: u32,
}

/// A slot is 2^20 ns long.
const SLOT_BITS: u32 = 20;
const SLOTS: usize = 4096;

impl<E: Copy> Agenda<E> {
    /// Size of a pending event, in bytes.
    pub(crate) const BYTES_PER_EVENT: usize = size_of::<Entry<E>>();

    pub(crate) fn new() -> Self {
        Self {
            near: Heap::new(),
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            occupied: [0; SLOTS / 64],
            far: Heap::new(),
            current: 0,
            sequence: 0,
        }
    }

    /// The time of the next event.
    #[inline]
    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        self.near.first().map(|entry| entry.time)
    }

    /// Schedules `event` for `time`, after the events that were scheduled for that time before.
    #[inline]
    pub(crate) fn schedule(&mut self, time: Timestamp, event: E) {
        let entry = Entry { time, sequence: self.sequence, event };
        // The count wraps after 2^32 events. Two events of the same nanosecond on either side of
        // the wrap change places, in the same way in every run.
        self.sequence = self.sequence.wrapping_add(1);
        self.put(entry);
        if self.near.is_empty() {
            self.turn();
        }
    }

    /// Takes out the next event.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(Timestamp, E)> {
        let entry = self.near.pop()?;
        if self.near.is_empty() {
            self.turn();
        }
        Some((entry.time, entry.event))
    }

    #[inline]
    fn put(&mut self, entry: Entry<E>) {
        let slot = entry.slot();
        if slot <= self.current {
            self.near.push(entry);
        } else if slot - self.current < SLOTS as u64 {
            let place = slot as usize % SLOTS;
            self.slots[place].push(entry);
            self.occupied[place / 64] |= 1 << (place % 64);
        } else {
            self.far.push(entry);
        }
    }

    /// Turns the wheel to the next slot that is not empty. Does nothing if no event is pending.
    fn turn(&mut self) {
        let Some(slot) = self.next_occupied().or_else(|| Some(self.far.first()?.slot())) else {
            return;
        };
        self.current = slot;
        let place = slot as usize % SLOTS;
        let mut entries = std::mem::take(&mut self.slots[place]);
        self.occupied[place / 64] &= !(1 << (place % 64));
        entries.drain(..).for_each(|entry| self.near.push(entry));
        self.slots[place] = entries;
        // The wheel covers later times now: move events from the far heap into it.
        while self.far.first().is_some_and(|entry| entry.slot() - slot < SLOTS as u64) {
            if let Some(entry) = self.far.pop() {
                self.put(entry);
            }
        }
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
    sequence: u32,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Timestamp, u32) {
        (self.time, self.sequence)
    }

    fn slot(&self) -> u64 {
        self.time.0 >> SLOT_BITS
    }
}

/// A heap with four children per entry. It is half as deep as a binary heap, and the four keys that
/// a step down compares are adjacent in memory.
#[derive(Debug)]
struct Heap<E>(Vec<Entry<E>>);

const CHILDREN: usize = 4;

impl<E: Copy> Heap<E> {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn first(&self) -> Option<&Entry<E>> {
        self.0.first()
    }

    fn push(&mut self, entry: Entry<E>) {
        let heap = &mut self.0;
        let mut hole = heap.len();
        heap.push(entry);
        while hole > 0 {
            let parent = (hole - 1) / CHILDREN;
            if heap[parent].key() <= entry.key() {
                break;
            }
            heap[hole] = heap[parent];
            hole = parent;
        }
        heap[hole] = entry;
    }

    fn pop(&mut self) -> Option<Entry<E>> {
        let heap = &mut self.0;
        let last = heap.pop()?;
        let Some(first) = heap.first().copied() else { return Some(last) };
        let mut hole = 0;
        loop {
            let children = hole * CHILDREN + 1..(hole * CHILDREN + 1 + CHILDREN).min(heap.len());
            let Some(least) = children.min_by_key(|child| heap[*child].key()) else { break };
            if last.key() <= heap[least].key() {
                break;
            }
            heap[hole] = heap[least];
            hole = least;
        }
        heap[hole] = last;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_types::Rng;

    #[test]
    fn events_come_by_time_then_by_scheduling() {
        // The spreads lie within a slot, within the wheel, and far beyond it.
        for spread in [1_000, 100_000_000, 1_000_000_000_000] {
            let mut agenda = Agenda::new();
            let mut rng = Rng::new(1);
            let mut expected = Vec::new();
            for number in 0..10_000 {
                let time = Timestamp(rng.below(spread) as u64);
                agenda.schedule(time, number);
                expected.push((time, number));
            }
            expected.sort_unstable();
            let mut seen = Vec::new();
            while let Some(event) = agenda.next() {
                seen.push(event);
            }
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn what_is_scheduled_meanwhile_finds_its_place() {
        let (mut agenda, mut rng) = (Agenda::new(), Rng::new(2));
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
                assert_eq!(agenda.next_time(), pending.first().map(|first| first.0));
                let next = agenda.next();
                assert_eq!(next, pending.pop_first());
                now = next.unwrap().0.0;
            }
        }
    }
}
