//! A Web server of WWW10 Sec. 4.1: CPU, memory, disk and network card with a queue each, the
//! database behind it, and a cache.

use std::time::Duration;

use levada_cache::eviction::{EvictionEntry, Keyed};
use levada_types::Timestamp;

use super::resource::{Resource, SliceEnd};
use super::session::{ContentSource, Object};
use super::settings::WebServerHardware;

/// One server with its replica of the database.
pub(super) struct WebServer {
    parts: [Resource<u32>; Part::COUNT],
    cache: Keyed,
    /// Requests for cacheable objects, and the hits among them.
    pub(super) looked_up: u64,
    pub(super) found: u64,
}

/// A part of a server, with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Parses, builds responses, encrypts.
    Cpu,
    /// Reads objects in the cache.
    Memory,
    /// Reads files that are not in the cache.
    Disk,
    /// The disk of the database server, which answers queries.
    Database,
    /// Sends responses.
    Nic,
}

impl Part {
    /// Number of parts.
    pub(super) const COUNT: usize = 5;

    /// All of them.
    pub(super) const ALL: [Self; Self::COUNT] =
        [Self::Cpu, Self::Memory, Self::Disk, Self::Database, Self::Nic];
}

impl WebServer {
    /// An idle server whose cache holds `cache_bytes`.
    pub(super) fn new(
        hardware: &WebServerHardware,
        eviction: &EvictionEntry,
        cache_bytes: u64,
    ) -> Self {
        let parts = Part::ALL.map(|part| match part {
            Part::Cpu => Resource::in_slices(hardware.cpu_slice.0),
            Part::Nic => Resource::in_slices(hardware.nic_slice.0),
            Part::Memory | Part::Disk | Part::Database => Resource::in_order(),
        });
        let cache = Keyed::new((eviction.build)(cache_bytes));
        Self { parts, cache, looked_up: 0, found: 0 }
    }

    /// Queues `work` for a part. If the part was idle, returns the end of its slice.
    pub(super) fn take(
        &mut self,
        part: Part,
        session: u32,
        work: Duration,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let work = u64::try_from(work.as_nanos()).unwrap_or(u64::MAX);
        self.parts[part as usize].take(session, work, now)
    }

    /// Ends the current slice of a part.
    pub(super) fn slice_ended(&mut self, part: Part, now: Timestamp) -> SliceEnd<u32> {
        self.parts[part as usize].slice_ended(now)
    }

    /// Working time of a part, in nanoseconds.
    pub(super) fn busy(&self, part: Part, now: Timestamp) -> u64 {
        self.parts[part as usize].busy(now)
    }

    /// The part that provides the content of `object`, and the time that it takes.
    pub(super) fn read(
        &mut self,
        object: &Object,
        cacheable: bool,
        hardware: &WebServerHardware,
    ) -> (Part, Duration) {
        if cacheable {
            self.looked_up += 1;
            if self.cache.contains(object.key()) {
                self.found += 1;
                self.cache.request(object.key(), object.bytes);
                return (Part::Memory, transfer(object.bytes, hardware.memory_rate));
            }
        }
        let positioning =
            hardware.disk_controller.0 + hardware.disk_seek.0 + hardware.disk_rotation.0;
        let bytes = transfer(object.bytes, hardware.disk_rate);
        match object.source {
            ContentSource::File => (Part::Disk, positioning + bytes),
            ContentSource::LightQuery => {
                (Part::Database, positioning * hardware.light_query_reads + bytes)
            }
            ContentSource::HeavyQuery => {
                (Part::Database, positioning * hardware.heavy_query_reads + bytes)
            }
        }
    }

    /// Stores an object that was read.
    pub(super) fn store(&mut self, object: &Object) {
        self.cache.request(object.key(), object.bytes);
    }
}

/// The time that `bytes` take at `rate` bytes per second.
pub(super) fn transfer(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64)
}
