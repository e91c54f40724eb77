//! Where servers, redirectors and clients are, and what lies between them.
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
    /// Everything that a link ends at. A [`PlaceIndex`] counts in this list.
    pub places: Vec<Place>,
    /// Each carries both directions alike, with a queue at either end.
    pub links: Vec<Link>,
}

/// The number of a place in [`Topology::places`].
pub type PlaceIndex = u32;

/// Something that a link ends at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Unlike any other's; of servers' names hash orders are made.
    pub name: String,
    /// What happens there.
    pub role: Role,
}

/// What happens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Packets pass on.
    Router,
    /// Packets pass on, and the requests of the clients for which this is the nearest redirector
    /// are given their server.
    Redirector,
    /// Requests are answered. Nothing passes through.
    Server,
    /// Requests begin. Nothing passes through.
    Client,
}

impl Role {
    /// All of them.
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

    /// Whether what is meant for others may pass.
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
    /// How long a bit is under way.
    pub latency_ns: u64,
    /// How fast bits are put onto the wire; at least 1.
    pub bits_per_second: u64,
    /// The packets that may wait at either end; one more than that is dropped.
    pub queue_packets: u32,
}

impl Topology {
    /// A further place, and its number.
    pub fn place(&mut self, name: impl Into<String>, role: Role) -> PlaceIndex {
        self.places.push(Place { name: name.into(), role });
        self.places.len() as PlaceIndex - 1
    }

    /// The numbers of all places of one role, ascending.
    pub fn places_of(&self, role: Role) -> impl Iterator<Item = PlaceIndex> + '_ {
        (0..).zip(&self.places).filter(move |(_, place)| place.role == role).map(|(n, _)| n)
    }

    /// The routes between all clients, redirectors and servers, once everything is in order.
    ///
    /// # Errors
    /// When a client, a redirector or a server is missing, when one cannot reach another, or when
    /// there are too many routes to keep.
    pub fn routes(&self) -> Result<Routes, RouteError> {
        Routes::new(self)
    }
}

/// What a topology is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Servers to place, from 1 to [`MAX_SERVERS`].
    pub servers: usize,
    /// The part of them behind slow links, drawn by chance (OSDI'02 Sec. 5.4.1).
    pub slow: f64,
    /// What slow links carry.
    pub slow_bits_per_second: u64,
    /// Clients to place, from 1 to [`MAX_CLIENTS`].
    pub clients: usize,
    /// Where chance begins.
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
    /// Where it is from.
    pub source: &'static str,
    /// One sentence: what it looks like.
    pub summary: &'static str,
    /// What it can be told.
    pub parameters: &'static [Parameter],
    /// Makes one. `Parameters` has been checked against `parameters`.
    pub build: fn(&Shape, &Parameters) -> Topology,
}

/// Every topology that is built rather than read, in the order in which people meet them.
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
    /// There is none of this name.
    #[error("there is no topology `{0}`; there are {known}", known = names().join(", "))]
    Unknown(String),
    /// It has no such parameter.
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

/// The topology called `name`.
pub fn find_topology(name: &str) -> Option<&'static Entry> {
    TOPOLOGIES.iter().find(|entry| entry.name == name)
}

/// Builds the topology `name` with the parameters `given`.
///
/// # Errors
/// When there is no such topology, or with everything that is wrong about the parameters.
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
