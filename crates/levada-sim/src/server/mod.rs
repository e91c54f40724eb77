//! A server as Logsim has it (OSDI'02 Fig. 3): a number of active requests, the others in a queue;
//! one CPU, disks, and memory for whole files.

mod cost;
mod memory;
mod station;

pub(crate) use cost::{Cost, block_bytes, blocks};
pub(crate) use memory::{Memory, Place};
pub(crate) use station::Station;

use levada_types::Timestamp;

use crate::slab::NONE;

pub(crate) struct Server {
    pub(crate) cpu: Station,
    pub(crate) disks: Vec<Station>,
    pub(crate) memory: Memory,
    /// Requests that are being served.
    pub(crate) active: u32,
    /// Requests that wait for a place among them.
    pub(crate) waiting: Line,
    /// Requests that were finished, and those found in memory.
    pub(crate) finished: u64,
    pub(crate) hits: u64,
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
        }
    }

    /// Files are spread over the disks in turn, each whole on one.
    pub(crate) fn disk_of(&mut self, document: u32) -> &mut Station {
        let disk = document as usize % self.disks.len();
        &mut self.disks[disk]
    }

    /// How long all disks together have worked, in nanoseconds.
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
