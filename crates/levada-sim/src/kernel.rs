//! The event queue: what happens next, in the order of time and then of scheduling.
//!
//! A heap with four children per entry: half as deep as a binary one, and the four keys that a step
//! down compares lie side by side.

use levada_types::Timestamp;

/// Events yet to come. `E` should be small: entries are moved about.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    heap: Vec<Entry<E>>,
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    time: Timestamp,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Timestamp, u64) {
        (self.time, self.sequence)
    }
}

impl<E: Copy> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self { heap: Vec::new(), sequence: 0 }
    }

    /// The time of the next event.
    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        self.heap.first().map(|entry| entry.time)
    }

    /// `event` will happen at `time`, after whatever was scheduled for that time before.
    pub(crate) fn schedule(&mut self, time: Timestamp, event: E) {
        let entry = Entry { time, sequence: self.sequence, event };
        self.sequence += 1;
        let mut hole = self.heap.len();
        self.heap.push(entry);
        while hole > 0 {
            let parent = (hole - 1) / CHILDREN;
            if self.heap[parent].key() <= entry.key() {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = entry;
    }

    /// Takes out the next event.
    pub(crate) fn next(&mut self) -> Option<(Timestamp, E)> {
        let last = self.heap.pop()?;
        let Some(first) = self.heap.first().copied() else {
            return Some((last.time, last.event));
        };
        let mut hole = 0;
        loop {
            let children =
                hole * CHILDREN + 1..(hole * CHILDREN + 1 + CHILDREN).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child].key()) else { break };
            if last.key() <= self.heap[least].key() {
                break;
            }
            self.heap[hole] = self.heap[least];
            hole = least;
        }
        self.heap[hole] = last;
        Some((first.time, first.event))
    }
}

const CHILDREN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use levada_types::Rng;

    #[test]
    fn events_come_by_time_then_by_scheduling() {
        let mut agenda = Agenda::new();
        let mut rng = Rng::new(1);
        let mut expected = Vec::new();
        for number in 0..10_000 {
            let time = Timestamp(rng.below(1_000) as u64);
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

    #[test]
    fn what_is_scheduled_meanwhile_finds_its_place() {
        let mut agenda = Agenda::new();
        agenda.schedule(Timestamp(5), 'b');
        agenda.schedule(Timestamp(9), 'd');
        assert_eq!(agenda.next(), Some((Timestamp(5), 'b')));
        agenda.schedule(Timestamp(7), 'c');
        assert_eq!(agenda.next_time(), Some(Timestamp(7)));
        assert_eq!(agenda.next(), Some((Timestamp(7), 'c')));
        assert_eq!(agenda.next(), Some((Timestamp(9), 'd')));
        assert_eq!(agenda.next(), None);
    }
}
