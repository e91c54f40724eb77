//! An entry of the list of topologies, and the size of a topology.

use levada_policy::{Parameter, Parameters};

use crate::graph::Topology;

/// The size of a topology.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Servers to place, from 1 to [`MAX_SERVERS`].
    pub servers: usize,
    /// The part of them behind slow links, chosen at random (OSDI'02 Sec. 5.4.1).
    pub slow: f64,
    /// Bandwidth of slow links, in bits per second.
    pub slow_bits_per_second: u64,
    /// Clients to place, from 1 to [`MAX_CLIENTS`].
    pub clients: usize,
    /// The seed of random numbers.
    pub seed: u64,
}

/// The most servers that a listed topology has.
pub const MAX_SERVERS: usize = 4096;
/// The most clients that a listed topology has.
pub const MAX_CLIENTS: usize = 64_000;

/// One topology of the list.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The word in a `[topology]` table.
    pub name: &'static str,
    /// Its source.
    pub source: &'static str,
    /// One sentence of description.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Builds a topology. The caller has checked `Parameters` against `parameters`.
    pub build: fn(&Shape, &Parameters) -> Topology,
}
