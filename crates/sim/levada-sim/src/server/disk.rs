//! The disk tier of a server's cache: an eviction algorithm of levada-cache, in the room that a node's disk tier has
//! for records of a node's length.
//!
//! A document that comes from the origin goes into the memory, and to the disk by a queue of bounded length. One
//! that only the disk has is read from there into the memory. Hits in memory are unknown to the disk tier.

use std::collections::VecDeque;

use levada_cache::{
    disk_room::{record_room, room_for_records, write_queue},
    eviction::{Keyed, find_eviction},
};
use levada_types::{Key, Timestamp};

use crate::scenario::Cache;

/// The bytes of a record in addition to the body: its header, and the head of a usual response.
const HEAD: u64 = 270;

pub(crate) struct DiskTier {
    held: Keyed,
    largest: u64,
    /// Bytes that may wait to be written, and those that do, with the times at which they will be.
    queue: u64,
    queued: u64,
    writes: VecDeque<(Timestamp, u64)>,
}

impl DiskTier {
    /// The empty tier, where the scenario has one.
    pub(crate) fn new(cache: &Cache) -> Option<Self> {
        let eviction = find_eviction(&cache.eviction).expect("it was checked");
        Some(Self {
            held: Keyed::new((eviction.build)(room_for_records(cache.disk?.0))),
            largest: cache.max_object.map_or(u64::MAX, |size| size.0),
            queue: write_queue(cache.memory.0),
            queued: 0,
            writes: VecDeque::new(),
        })
    }

    /// Whether it has the document. This is no use of it.
    pub(crate) fn holds(&self, key: Key) -> bool {
        self.held.contains(key)
    }

    /// Looks a document up. Finding it counts as a hit.
    pub(crate) fn find(&mut self, key: Key) -> bool {
        self.held.contains(key) && self.held.request(key, 0)
    }

    /// Gets a document that is written, or will be.
    pub(crate) fn put(&mut self, key: Key, size: u64) {
        if size <= self.largest && !self.held.contains(key) {
            self.held.request(key, record_room(size + HEAD));
        }
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.held.remove(key);
    }

    /// Whether more may wait to be written.
    pub(crate) fn takes(&mut self, now: Timestamp) -> bool {
        while let Some((done, bytes)) = self.writes.front()
            && *done <= now
        {
            self.queued -= bytes;
            self.writes.pop_front();
        }
        self.queued < self.queue
    }

    /// So many bytes will be written at `done`.
    pub(crate) fn will_write(&mut self, done: Timestamp, bytes: u64) {
        self.queued += bytes;
        self.writes.push_back((done, bytes));
    }

    /// The process ends. What waited counts as written.
    pub(crate) fn forget_queue(&mut self) {
        self.queued = 0;
        self.writes.clear();
    }
}
