//! The work that waits for the disk: at most one item per key, bounded in bytes.
//!
//! The last word on a key counts: a removal takes the place of a write that waits, and a write that of
//! a removal. Until it is done, readers go by what waits here instead of by the file.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use levada_types::Key;

use super::record::length;

/// One thing to do.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Write this record.
    Write { head: Bytes, body: Box<[Bytes]> },
    /// Give the record that has this head another one, or remove it.
    Change { old: Bytes, new: Option<Bytes> },
    /// Remove the file, if there is one.
    Remove,
}

/// The size of a waiting item without its bytes.
const OVERHEAD: u64 = 128;

impl Work {
    fn bytes(&self) -> u64 {
        OVERHEAD
            + match self {
                Self::Write { head, body } => (head.len() + length(body)) as u64,
                Self::Change { old, new } => {
                    (old.len() + new.as_ref().map_or(0, Bytes::len)) as u64
                }
                Self::Remove => 0,
            }
    }
}

/// Which thing to do: a later one for the same key has another ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

struct WaitingWrite {
    ticket: Ticket,
    work: Work,
}

pub(super) struct WriteQueue {
    waiting: HashMap<u64, WaitingWrite>,
    /// The keys of `waiting` but the one being worked on, first come first.
    order: VecDeque<u64>,
    tickets: u64,
    bytes: u64,
    limit: u64,
}

impl WriteQueue {
    pub(super) fn new(limit: u64) -> Self {
        Self { waiting: HashMap::new(), order: VecDeque::new(), tickets: 0, bytes: 0, limit }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The work that waits for `key`.
    pub(super) fn get(&self, key: Key) -> Option<&Work> {
        self.waiting.get(&key.0).map(|waiting| &waiting.work)
    }

    /// All that waits or is being done.
    pub(super) fn all(&self) -> impl Iterator<Item = (Key, Ticket, &Work)> {
        self.waiting.iter().map(|(&key, waiting)| (Key(key), waiting.ticket, &waiting.work))
    }

    /// Whether `work` would exceed the bound, were it to wait for `key`.
    pub(super) fn is_full_for(&self, key: Key, work: &Work) -> bool {
        let instead = self.get(key).map_or(0, Work::bytes);
        self.bytes - instead + work.bytes() > self.limit
    }

    /// Whether a record of this many bytes is within the bound.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.bytes.saturating_add(OVERHEAD).saturating_add(bytes) <= self.limit
    }

    /// Puts `work` in, whatever the bound, instead of what there was to do about `key`.
    pub(super) fn push(&mut self, key: Key, work: Work) {
        self.tickets += 1;
        self.bytes += work.bytes();
        let waiting = WaitingWrite { ticket: Ticket(self.tickets), work };
        match self.waiting.insert(key.0, waiting) {
            Some(before) => self.bytes -= before.work.bytes(),
            None => self.order.push_back(key.0),
        }
    }

    /// Puts `work` in, if `ticket` is still what there is to do about `key`.
    pub(super) fn exchange(&mut self, key: Key, ticket: Ticket, work: Work) -> bool {
        let same = self.waiting.get(&key.0).is_some_and(|waiting| waiting.ticket == ticket);
        if same {
            self.push(key, work);
        }
        same
    }

    /// The next item of work. It stays visible until [`finish`](Self::finish).
    pub(super) fn start(&mut self) -> Option<(Key, Ticket, Work)> {
        let key = self.order.pop_front()?;
        self.waiting.get(&key).map(|waiting| (Key(key), waiting.ticket, waiting.work.clone()))
    }

    /// Ends what [`start`](Self::start) gave: with `again` left to be done, it waits again. A newer
    /// item of the same key comes next.
    pub(super) fn finish(&mut self, key: Key, ticket: Ticket, again: Option<Work>) {
        let newer = self.waiting.get(&key.0).is_some_and(|waiting| waiting.ticket != ticket);
        match again {
            _ if newer => {}
            Some(work) => self.push(key, work),
            None => {
                if let Some(done) = self.waiting.remove(&key.0) {
                    self.bytes -= done.work.bytes();
                }
                return;
            }
        }
        self.order.push_back(key.0);
    }

    /// The last thing that was asked for.
    pub(super) fn last(&self) -> Ticket {
        Ticket(self.tickets)
    }

    /// Whether this or something before it has not been done.
    pub(super) fn waits_for(&self, last: Ticket) -> bool {
        self.waiting.values().any(|waiting| waiting.ticket.0 <= last.0)
    }

    /// The removals that wait.
    pub(super) fn removals(&self) -> Vec<(Key, Ticket)> {
        let removals = self.all().filter(|(_, _, work)| matches!(work, Work::Remove));
        removals.map(|(key, ticket, _)| (key, ticket)).collect()
    }

    /// Takes out what has been done without [`start`](Self::start), unless something newer waits.
    pub(super) fn withdraw(&mut self, done: &[(Key, Ticket)]) {
        for (key, ticket) in done {
            if self.waiting.get(&key.0).is_some_and(|waiting| waiting.ticket == *ticket) {
                self.waiting.remove(&key.0).inspect(|done| self.bytes -= done.work.bytes());
            }
        }
        self.order.retain(|key| self.waiting.contains_key(key));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(size: usize) -> Work {
        Work::Write { head: Bytes::new(), body: [Bytes::from(vec![0; size])].into() }
    }

    #[test]
    fn last_word_on_a_key_counts() {
        let mut queue = WriteQueue::new(1000);
        queue.push(Key(1), write(10));
        queue.push(Key(2), write(20));
        queue.push(Key(1), Work::Remove);
        assert_eq!(queue.bytes(), 20 + 2 * OVERHEAD);
        let (key, ticket, work) = queue.start().unwrap();
        assert!(key == Key(1) && matches!(work, Work::Remove));
        queue.finish(key, ticket, None);
        let (key, ticket, work) = queue.start().unwrap();
        assert!(key == Key(2) && matches!(work, Work::Write { .. }));
        queue.finish(key, ticket, None);
        assert!(queue.start().is_none() && queue.is_empty());
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn what_is_asked_for_during_the_work_is_done_after_it() {
        let mut queue = WriteQueue::new(1000);
        queue.push(Key(1), write(10));
        let (key, ticket, _) = queue.start().unwrap();
        queue.push(Key(1), Work::Remove);
        assert!(queue.start().is_none(), "one thing per key at a time");
        queue.finish(key, ticket, None);
        let (key, ticket, work) = queue.start().unwrap();
        assert!(matches!(work, Work::Remove));
        queue.finish(key, ticket, Some(Work::Remove));
        let (key, ticket, _) = queue.start().unwrap();
        queue.finish(key, ticket, None);
        assert!(queue.is_empty());
    }

    #[test]
    fn bound_is_in_bytes_and_counts_what_would_be_replaced() {
        let mut queue = WriteQueue::new(1000);
        queue.push(Key(1), write(800));
        assert!(queue.is_full_for(Key(2), &write(100)));
        assert!(!queue.is_full_for(Key(1), &write(800)));
    }
}
