//! Large files in pieces in virtual time: `levada_fetch` over simulated nodes, links and an origin
//! (CoDeploy, WORLDS'04 Sec. 3).
//!
//! ```text
//!   origin ══ origin link ══╗
//!                        switch ══ clients (unlimited rate)
//!   N nodes ══ node link ═══╝
//! ```
//!
//! Each client downloads one file from one node. The node runs the same transfer as a real one: pieces
//! come from the nodes that HRW chooses, and a node that lacks a piece gets it from the origin while it
//! sends it on. Every byte crosses the packet network with its queues, losses and Reno.
//!
//! Nodes keep what they have stored and learned between two fetches of one [`World`], so that the second
//! fetch of a file is a cached one. The same settings and seed give the same result.
//!
//! Deliberately absent: the request for the file's head (one round trip), CPU time, eviction, and idle
//! connections that are used again. Each request opens a connection, which costs it one round trip.

mod agent;
mod cases;
mod flight;
mod run;
mod wire;

use std::{collections::BTreeSet, time::Duration};

use levada_fetch::{PieceCounts, Plan, Sources};
use levada_policy::{Cluster, Deployment, LoadTable, Node, Policy, build};
use levada_types::{Rng, Timestamp};

pub use cases::{Case, compare};
use run::Run;

/// The rate and delay of a link between a host and the switch, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Bits per second.
    pub rate: u64,
    /// One way.
    pub delay: Duration,
}

/// A cluster, a file, and the clients that want it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Nodes of the cluster, at least 2.
    pub nodes: usize,
    /// Clients that ask at the same time, spread evenly over the nodes.
    pub clients: usize,
    /// Bytes in the file.
    pub file: u64,
    /// Window, piece size and retry rules.
    pub plan: Plan,
    /// The link of each node.
    pub node: Line,
    /// The link of the origin.
    pub origin: Line,
    /// One-way delay between a client and the switch.
    pub client_delay: Duration,
    /// Chooses the nodes of the pieces and the moments at which the clients begin.
    pub seed: u64,
}

impl Default for Settings {
    /// The network of `bench/src/bin/large`: an origin at 50 Mbit/s and 40 ms, eight nodes of 100 Mbit/s
    /// at 20 ms, one client, 50 MB.
    fn default() -> Self {
        Self {
            nodes: 8,
            clients: 1,
            file: 50_000_000,
            plan: Plan::default(),
            node: Line { rate: 100_000_000, delay: Duration::from_millis(5) },
            origin: Line { rate: 50_000_000, delay: Duration::from_millis(15) },
            client_delay: Duration::from_millis(5),
            seed: 1,
        }
    }
}

/// The fault of one fetch. It affects one node, which no client asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Every node works.
    None,
    /// One node's link has its rate divided by this number from the beginning.
    Slow(u32),
    /// One node dies so long after the beginning, and its connections are reset.
    Killed(Duration),
}

/// Measurements of one fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// Mbit/s of each client; 0 for one whose transfer failed.
    pub rates: Vec<f64>,
    /// From the first client's request to the last client's last byte.
    pub took: Duration,
    /// Bytes that nodes asked the origin for.
    pub origin_bytes: u64,
    /// The sum over all transfers.
    pub counts: PieceCounts,
    /// How often a node became too slow for another to ask it for even one piece.
    pub left_out: u64,
}

impl Fetched {
    /// The mean rate of the clients in Mbit/s.
    pub fn rate(&self) -> f64 {
        self.rates.iter().sum::<f64>() / self.rates.len().max(1) as f64
    }
}

/// The nodes with the pieces that they store and what they know of each other.
pub struct World {
    settings: Settings,
    stored: Vec<BTreeSet<flight::Name>>,
    sources: Vec<Sources>,
    cluster: Cluster,
    policy: Box<dyn Policy>,
    rng: Rng,
    now: Timestamp,
}

/// Between two fetches of a world.
const PAUSE: Duration = Duration::from_secs(1);

impl World {
    /// Nodes that store nothing.
    ///
    /// # Panics
    /// Never: the policy exists.
    pub fn new(settings: Settings) -> Self {
        let nodes: Vec<_> = (0..settings.nodes).map(|n| Node::new(&format!("n{n}"))).collect();
        let policy = build("hrw", &Default::default(), &Deployment::default());
        Self {
            stored: vec![BTreeSet::new(); settings.nodes],
            sources: (0..settings.nodes)
                .map(|own| Sources::new(settings.nodes, Some(own)))
                .collect(),
            cluster: Cluster::new(nodes, LoadTable::new(settings.nodes)),
            policy: policy.expect("hrw is registered and has no required parameter"),
            rng: Rng::new(settings.seed),
            now: BEGINNING,
            settings,
        }
    }

    /// All clients fetch the file once.
    pub fn fetch(&mut self, fault: Fault) -> Fetched {
        let (fetched, end) = Run::new(self, fault).play();
        self.now = end + PAUSE;
        fetched
    }
}

/// Time zero means "never" in some states, so a world begins later.
const BEGINNING: Timestamp = Timestamp::from_secs(1);

#[cfg(test)]
mod tests;
