//! An emulated Web server: the CPU, disk and memory of ASPLOS'98 Sec. 3.1, driven by the caller's clock.
//!
//! The worlds of the simulator have their own servers. This machine is independent of them, so that a
//! back-end of `levada lab` can answer each request at the time that it computes. It reads no clock, so
//! its times are exact even if the caller is late; lateness does not accumulate.
//!
//! ```text
//! take       the CPU sets the connection up, and computes what a service has to
//! connected  a file: in memory, on its way from the disk, or to be read; a service: its own disk work
//! block      44 KB have been read: the transfers that wait for them go on, the disk reads the next
//! transmit   the CPU hands a block to the network; after the last one the request is answered
//! close      the CPU takes the connection down
//! ```
//!
//! The CPU works in slices, so that a long computation does not delay a page (WWW10 Sec. 4.1). A block
//! takes less than a slice: files alone are served first come, first served, as in ASPLOS'98.

mod idle;

use std::{
    collections::{BTreeMap, btree_map::Entry as Place},
    time::Duration,
};

use levada_cache::eviction::{EvictionEntry, Keyed};
use levada_cap::resource::{Resource, SliceEnd};
use levada_types::{Key, Timestamp};
use serde::{Deserialize, Serialize};

use self::idle::Idle;
use crate::{
    scenario::Servers,
    server::{BLOCK, Cost, block_bytes, blocks},
    slab::Slab,
};

/// The hardware of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// Speed of the CPU; 1 is that of ASPLOS'98, a Pentium II of 300 MHz.
    pub cpu: f64,
    /// Speed of the disk; 1 is that of ASPLOS'98: 28 ms, and 410 us for every 4 KB.
    pub disk: f64,
    /// The longest time that one request has the CPU while others wait.
    pub slice: Duration,
    /// With fewer requests than this, the machine counts as idle.
    pub few: u32,
}

impl Default for Hardware {
    /// The machine of ASPLOS'98; 40 % of its T_low are 10 requests.
    fn default() -> Self {
        Self { cpu: 1.0, disk: 1.0, slice: Duration::from_millis(10), few: 10 }
    }
}

/// The work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A file.
    File {
        /// Its identity.
        key: Key,
        /// Its size.
        bytes: u64,
    },
    /// The answer of a program.
    Service {
        /// Its CPU time.
        cpu: Duration,
        /// Its disk time.
        disk: Duration,
        /// The size of the answer.
        bytes: u64,
    },
}

/// A block of an answer has been handed to the network. `J` names the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered<J> {
    /// The name of the request.
    pub job: J,
    /// The time: not later than the time given to the machine.
    pub at: Timestamp,
    /// Bytes of the answer so far.
    pub bytes: u64,
    /// Whether it is the last block: the request is answered.
    pub whole: bool,
}

/// Totals of a machine since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The time of these totals, in nanoseconds.
    pub at: u64,
    /// Requests answered.
    pub answered: u64,
    /// Files found in memory.
    pub hits: u64,
    /// Files that were read from disk.
    pub misses: u64,
    /// Nanoseconds that the CPU worked.
    pub cpu: u64,
    /// Nanoseconds that the disk worked.
    pub disk: u64,
    /// Nanoseconds with few requests.
    pub idle: u64,
}

impl Usage {
    /// The difference to `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            at: self.at - before.at,
            answered: self.answered - before.answered,
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            cpu: self.cpu - before.cpu,
            disk: self.disk - before.disk,
            idle: self.idle - before.idle,
        }
    }
}

/// A machine at work.
pub struct Machine<J> {
    cost: Cost,
    cpu: SlicedStation<u32>,
    disk: SlicedStation<DiskJob>,
    memory: Keyed,
    jobs: Slab<Job<J>>,
    /// Files on their way from the disk.
    reads: BTreeMap<Key, FileRead>,
    idle: Idle,
    answered: u64,
    hits: u64,
    misses: u64,
}

/// A part with its queue, and the end of its slice.
struct SlicedStation<J> {
    queue: Resource<J>,
    end: Option<Timestamp>,
}

/// A job of the disk.
#[derive(Clone, Copy, Debug)]
enum DiskJob {
    /// The next block of a file.
    Block(Key),
    /// The disk work of this request's service.
    Service(u32),
}

/// A request, until its connection is down.
struct Job<J> {
    name: J,
    work: Work,
    stage: JobStage,
    /// The next block to transmit.
    block: u32,
    /// Whether it follows a read; otherwise the whole file is in memory.
    reading: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobStage {
    Connecting,
    Transmitting,
    /// Requests that wait for a block, or for the disk work of their service.
    Waiting,
    Closing,
}

/// A file that is being read. Requests for the same file meanwhile become followers.
struct FileRead {
    bytes: u64,
    /// Blocks read so far.
    done: u32,
    followers: Vec<u32>,
}

impl<J: Copy> Machine<J> {
    /// An idle machine with a memory for `memory` bytes of files, which evicts by `eviction`.
    pub fn new(hardware: &Hardware, eviction: &EvictionEntry, memory: u64) -> Self {
        let servers = Servers { cpu: hardware.cpu, disk: hardware.disk, ..Servers::default() };
        Self {
            cost: Cost::new(&servers, 0, 0),
            cpu: SlicedStation::new(Resource::in_slices(hardware.slice)),
            disk: SlicedStation::new(Resource::in_order()),
            memory: Keyed::new((eviction.build)(memory)),
            jobs: Slab::new(),
            reads: BTreeMap::new(),
            idle: Idle::new(hardware.few),
            answered: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// Takes a request. The caller must have called [`Self::advance`] for `now` before.
    pub fn take(&mut self, name: J, work: Work, now: Timestamp) {
        self.idle.begin(now);
        let stage = JobStage::Connecting;
        let job = self.jobs.insert(Job { name, work, stage, block: 0, reading: false });
        let computing = match work {
            Work::File { .. } => 0,
            Work::Service { cpu, .. } => nanoseconds(cpu),
        };
        self.cpu.take(job, self.cost.connection + computing, now);
    }

    /// The time of the next event, if no request arrives before.
    pub fn next_time(&self) -> Option<Timestamp> {
        [self.cpu.end, self.disk.end].into_iter().flatten().min()
    }

    /// Advances to `now` and appends the blocks sent meanwhile.
    pub fn advance(&mut self, now: Timestamp, answered: &mut Vec<Answered<J>>) {
        while let Some(time) = self.next_time().filter(|time| *time <= now) {
            if self.cpu.end == Some(time) {
                if let Some(job) = self.cpu.end_slice(time) {
                    self.cpu_done(job, time, answered);
                }
            } else if let Some(reading) = self.disk.end_slice(time) {
                match reading {
                    DiskJob::Block(key) => self.block_read(key, time),
                    DiskJob::Service(job) => self.transmit(job, time),
                }
            }
        }
    }

    /// Whether a file is in memory.
    pub fn has(&self, key: Key) -> bool {
        self.memory.contains(key)
    }

    /// The totals so far. The caller must have called [`Self::advance`] for `now` before.
    pub fn usage(&self, now: Timestamp) -> Usage {
        Usage {
            at: now.0,
            answered: self.answered,
            hits: self.hits,
            misses: self.misses,
            cpu: self.cpu.queue.busy(now),
            disk: self.disk.queue.busy(now),
            idle: self.idle.so_far(now),
        }
    }

    fn cpu_done(&mut self, job: u32, now: Timestamp, answered: &mut Vec<Answered<J>>) {
        match self.jobs[job].stage {
            JobStage::Connecting => self.connected(job, now),
            JobStage::Closing => self.jobs.remove(job),
            JobStage::Transmitting | JobStage::Waiting => self.transmitted(job, now, answered),
        }
    }

    fn connected(&mut self, job: u32, now: Timestamp) {
        self.jobs[job].stage = JobStage::Waiting;
        let (key, bytes) = match self.jobs[job].work {
            Work::Service { disk: Duration::ZERO, .. } => return self.transmit(job, now),
            Work::Service { disk, .. } => {
                return self.disk.take(DiskJob::Service(job), nanoseconds(disk), now);
            }
            Work::File { key, bytes } => (key, bytes),
        };
        if self.memory.contains(key) {
            self.memory.request(key, bytes);
            self.hits += 1;
            return self.transmit(job, now);
        }
        self.misses += 1;
        self.jobs[job].reading = true;
        match self.reads.entry(key) {
            Place::Occupied(mut read) => read.get_mut().followers.push(job),
            Place::Vacant(place) => {
                place.insert(FileRead { bytes, done: 0, followers: vec![job] });
                let first = self.cost.read(0, block_bytes(bytes, 0));
                self.disk.take(DiskJob::Block(key), first, now);
            }
        }
        self.go_on(job, now);
    }

    /// The CPU transmits the next block if it has been read; otherwise the request waits for it.
    fn go_on(&mut self, job: u32, now: Timestamp) {
        let Job { work, block, reading, .. } = self.jobs[job];
        let read = match work {
            Work::File { key, .. } if reading => self.reads.get(&key),
            _ => None,
        };
        if read.is_none_or(|read| block < read.done) {
            self.transmit(job, now);
        } else {
            self.jobs[job].stage = JobStage::Waiting;
        }
    }

    fn transmit(&mut self, job: u32, now: Timestamp) {
        self.jobs[job].stage = JobStage::Transmitting;
        let bytes = block_bytes(self.jobs[job].work.bytes(), self.jobs[job].block);
        self.cpu.take(job, self.cost.transmit(bytes), now);
    }

    /// The CPU has handed a block to the network.
    fn transmitted(&mut self, job: u32, now: Timestamp, answered: &mut Vec<Answered<J>>) {
        self.jobs[job].block += 1;
        let Job { name, work, block, .. } = self.jobs[job];
        let whole = block == blocks(work.bytes());
        let bytes = if whole { work.bytes() } else { u64::from(block) * BLOCK };
        answered.push(Answered { job: name, at: now, bytes, whole });
        if !whole {
            return self.go_on(job, now);
        }
        self.idle.end(now);
        self.answered += 1;
        self.jobs[job].stage = JobStage::Closing;
        self.cpu.take(job, self.cost.connection, now);
    }

    /// A block was read: the disk goes on, and so do the requests that wait for this block.
    fn block_read(&mut self, key: Key, now: Timestamp) {
        let Place::Occupied(mut place) = self.reads.entry(key) else { return };
        let read = place.get_mut();
        read.done += 1;
        let (done, bytes) = (read.done, read.bytes);
        let whole = done == blocks(bytes);
        let followers = match whole {
            true => place.remove().followers,
            false => read.followers.clone(),
        };
        if whole {
            self.memory.request(key, bytes);
        } else {
            let next = self.cost.read(done, block_bytes(bytes, done));
            self.disk.take(DiskJob::Block(key), next, now);
        }
        for job in followers {
            if whole {
                self.jobs[job].reading = false;
            }
            if self.jobs[job].stage == JobStage::Waiting {
                self.transmit(job, now);
            }
        }
    }
}

impl Work {
    /// The size of the answer.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } | Self::Service { bytes, .. } => *bytes,
        }
    }
}

impl<J: Copy> SlicedStation<J> {
    fn new(queue: Resource<J>) -> Self {
        Self { queue, end: None }
    }

    fn take(&mut self, job: J, work: u64, now: Timestamp) {
        if let Some(end) = self.queue.take(job, work, now) {
            self.end = Some(end);
        }
    }

    fn end_slice(&mut self, now: Timestamp) -> Option<J> {
        let SliceEnd { done, next } = self.queue.slice_ended(now);
        self.end = next;
        done
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
