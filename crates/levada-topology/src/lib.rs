//! The places of servers, redirectors and clients, and the links and routes between them.
//!
//! A topology is data: places and the links between them. Built-in ones ([`TOPOLOGIES`]) follow from
//! parameters and a seed; a user's own is a file ([`from_json`], [`from_graphml`]). [`Routes`] has
//! the shortest paths.
//!
//! To add a topology: one file with its `ENTRY`, one line in [`TOPOLOGIES`].

mod access;
mod barabasi_albert;
mod file;
mod hierarchical;
mod lan_cluster;
mod nsfnet_t3;
mod routes;
mod star;

use std::collections::BTreeMap;

use levada_policy::{Parameter, ParameterError, ParameterValue, Parameters};

pub use file::{FileError, MAX_FILE_BYTES, Problem, from_graphml, from_json, to_json};
pub use routes::{Hop, RouteError, Routes};

/// Places and the links between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The ends of links. A [`PlaceIndex`] is an index into this list.
    pub places: Vec<Place>,
    /// Links, each with the same properties in both directions and a queue at either end.
    pub links: Vec<Link>,
}

/// An index into [`Topology::places`].
pub type PlaceIndex = u32;

/// An end of links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A unique name; policies hash the names of servers.
    pub name: String,
    /// The role of the place.
    pub role: Role,
}

/// The role of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The place forwards packets.
    Router,
    /// The place forwards packets, and chooses the servers for requests of the clients whose
    /// nearest redirector it is.
    Redirector,
    /// The place answers requests. It forwards no packets.
    Server,
    /// The place sends requests. It forwards no packets.
    Client,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Router, Self::Redirector, Self::Server, Self::Client];

    /// The word in files and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Redirector => "redirector",
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    /// Whether the place forwards packets.
    pub const fn passes(self) -> bool {
        matches!(self, Self::Router | Self::Redirector)
    }
}

/// A wire between two places, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// One end.
    pub a: PlaceIndex,
    /// The other.
    pub b: PlaceIndex,
    /// Latency of the link.
    pub latency_ns: u64,
    /// Bandwidth, in bits per second; at least 1.
    pub bits_per_second: u64,
    /// Number of packets that may wait at either end; further packets are dropped.
    pub queue_packets: u32,
}

impl Topology {
    /// Adds a place and returns its index.
    pub fn place(&mut self, name: impl Into<String>, role: Role) -> PlaceIndex {
        self.places.push(Place { name: name.into(), role });
        self.places.len() as PlaceIndex - 1
    }

    /// The indices of all places of one role, ascending.
    pub fn places_of(&self, role: Role) -> impl Iterator<Item = PlaceIndex> + '_ {
        (0..).zip(&self.places).filter(move |(_, place)| place.role == role).map(|(n, _)| n)
    }

    /// The routes between all clients, redirectors and servers.
    ///
    /// # Errors
    /// If a client, a redirector or a server is missing, if one cannot reach another, or if there
    /// are too many routes to keep.
    pub fn routes(&self) -> Result<Routes, RouteError> {
        Routes::new(self)
    }
}

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

/// Every built-in topology, in the order of listings.
pub const TOPOLOGIES: &[Entry] = &[
    nsfnet_t3::ENTRY,
    star::ENTRY,
    lan_cluster::ENTRY,
    barabasi_albert::ENTRY,
    hierarchical::ENTRY,
];

/// Why a topology could not be built from a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// No topology has this name.
    #[error("there is no topology `{0}`; there are {known}", known = names().join(", "))]
    Unknown(String),
    /// The topology has no such parameter.
    #[error(
        "topology `{topology}` has no parameter `{name}`; it has {known}",
        known = parameter_names(topology)
    )]
    UnknownParameter {
        /// The topology.
        topology: &'static str,
        /// The name given.
        name: String,
    },
    /// A parameter is of another type or out of range.
    #[error(transparent)]
    Parameter(ParameterError),
}

impl BuildError {
    /// The key that is wrong.
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown(_) => "name",
            Self::UnknownParameter { name, .. } => name,
            Self::Parameter(error) => error.name(),
        }
    }
}

/// The built-in topology `name`.
pub fn find_topology(name: &str) -> Option<&'static Entry> {
    TOPOLOGIES.iter().find(|entry| entry.name == name)
}

/// Builds the topology `name` with the parameters `given`.
///
/// # Errors
/// If there is no such topology, or with all problems of the parameters.
pub fn build(
    name: &str,
    given: &BTreeMap<String, ParameterValue>,
    shape: &Shape,
) -> Result<Topology, Vec<BuildError>> {
    let entry = find_topology(name).ok_or_else(|| vec![BuildError::Unknown(name.to_owned())])?;
    let say = |error| match error {
        ParameterError::Unknown { name, .. } => {
            BuildError::UnknownParameter { topology: entry.name, name }
        }
        wrong => BuildError::Parameter(wrong),
    };
    let parameters = Parameters::check(entry.name, entry.parameters, given)
        .map_err(|errors| errors.into_iter().map(say).collect::<Vec<_>>())?;
    Ok((entry.build)(shape, &parameters))
}

fn names() -> Vec<&'static str> {
    TOPOLOGIES.iter().map(|entry| entry.name).collect()
}

fn parameter_names(topology: &str) -> String {
    let parameters = find_topology(topology).map_or(&[][..], |entry| entry.parameters);
    parameters.iter().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
