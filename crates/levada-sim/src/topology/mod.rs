//! Who is where, and what lies between.

use serde::{Deserialize, Serialize};

/// Places and the links between them.
///
/// Links are two-way: `bits_per_second` each way. Requests and responses take the path of least
/// latency (of equal ones, that of the fewest links, then of the lowest place numbers).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// By number, as links name them.
    pub places: Vec<Place>,
    /// What connects them.
    pub links: Vec<Link>,
}

/// A place and what is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Its name; servers' names are what hash orders are made from.
    pub name: String,
    /// What is there.
    pub role: Role,
}

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Passes packets on.
    Router,
    /// A router that redirects the requests of the clients nearest to it.
    Redirector,
    /// Serves.
    Server,
    /// Asks.
    Client,
}

/// A link between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One end.
    pub a: u32,
    /// The other.
    pub b: u32,
    /// One way, in nanoseconds.
    pub latency_ns: u64,
    /// Each way.
    pub bits_per_second: u64,
    /// How many packets wait for it at most, each way.
    pub queue_packets: u32,
}

/// What a topology is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Servers to place, at least 1.
    pub servers: usize,
    /// Clients to place, at least 1.
    pub clients: usize,
    /// Routers with clients behind them, each a redirector; `None` as the topology has them.
    pub redirectors: Option<usize>,
    /// Routers in all, for topologies that can have any number.
    pub routers: Option<usize>,
    /// What the bandwidth of links between routers is multiplied by (OSDI'02 Sec. 5.1.4 doubles
    /// it for 128 servers).
    pub bandwidth: f64,
    /// Where chance begins.
    pub seed: u64,
}

/// A topology of the list.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name in a scenario.
    pub name: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// What it is, in a sentence.
    pub summary: &'static str,
    /// Makes one.
    pub build: fn(&Shape) -> Result<Topology, String>,
}

/// Every topology that a scenario can name; any other comes from a file.
pub const TOPOLOGIES: &[Entry] = &[];

/// The topology called `name`.
pub fn find_topology(name: &str) -> Option<&'static Entry> {
    TOPOLOGIES.iter().find(|entry| entry.name == name)
}

impl Topology {
    /// The numbers of all places of one role, ascending.
    pub fn places_of(&self, role: Role) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.places).filter(move |(_, place)| place.role == role).map(|(n, _)| n)
    }
}
