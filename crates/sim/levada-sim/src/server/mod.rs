//! A server as in Logsim (OSDI'02 Fig. 3): a limited number of active requests, a queue for the
//! others, one CPU, disks, and memory for whole files.

mod cost;
mod memory;
mod station;

pub(crate) use cost::{BLOCK, Cost, block_bytes, blocks};
pub(crate) use memory::{Memory, Place, Stored};
pub(crate) use station::Station;

use levada_types::Timestamp;

use crate::slab::NONE;

pub(crate) struct Server {
    pub(crate) cpu: Station,
    pub(crate) disks: Vec<Station>,
    pub(crate) memory: Memory,
    /// Active requests.
    pub(crate) active: u32,
    /// Requests in the queue.
    pub(crate) waiting: Line,
    /// Finished requests.
    pub(crate) finished: u64,
    pub(crate) hits: u64,
    /// Whether it runs.
    pub(crate) is_up: bool,
}

impl Server {
    pub(crate) fn new(disks: u32, memory: Memory) -> Self {
        Self {
            cpu: Station::default(),
            disks: vec![Station::default(); disks as usize],
            memory,
            active: 0,
            waiting: Line::default(),
            finished: 0,
            hits: 0,
            is_up: true,
        }
    }

    /// The process ends: its work and `memory` are lost, the disks keep their files.
    pub(crate) fn fail(&mut self, now: Timestamp, memory: Memory) {
        self.is_up = false;
        self.cpu.stop(now);
        self.disks.iter_mut().for_each(|disk| disk.stop(now));
        self.memory = memory;
        self.active = 0;
        self.waiting = Line::default();
    }

    /// Files are spread over the disks round robin; each file is whole on one disk.
    pub(crate) fn disk_of(&mut self, document: u32) -> &mut Station {
        let disk = document as usize % self.disks.len();
        &mut self.disks[disk]
    }

    /// Working time of all disks together, in nanoseconds.
    pub(crate) fn disks_worked(&self, now: Timestamp) -> u64 {
        self.disks.iter().map(|disk| disk.worked(now)).sum()
    }
}

/// A queue of requests, linked through the requests themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) length: u32,
}

impl Default for Line {
    fn default() -> Self {
        Self { first: NONE, last: NONE, length: 0 }
    }
}
