//! The places of servers, redirectors and clients, and the links and routes between them.
//!
//! A topology is data: places and the links between them. Built-in ones ([`TOPOLOGIES`]) follow from
//! parameters and a seed; a user's own is a file ([`from_json`], [`from_graphml`]). [`Routes`] has
//! the shortest paths.
//!
//! [`RegionMap`] has regions far from each other, and [`KeptConnection`] a connection between two of them.
//!
//! [`IdlePaths`] has the times of paths without congestion, [`tcp`] those of a connection over them and both ends of
//! one in a network of packets, and [`calendar`] the next deliveries of its links.
//!
//! To add a topology: one file with its `ENTRY`, one line in [`TOPOLOGIES`].

mod access;
mod barabasi_albert;
pub mod calendar;
mod entry;
mod file;
mod graph;
mod hierarchical;
mod idle_paths;
mod kept_connection;
mod lan_cluster;
mod nsfnet_t3;
mod regions;
mod routes;
mod star;
pub mod tcp;

use std::collections::BTreeMap;

use levada_policy::{ParameterError, ParameterValue, Parameters};

pub use entry::{Entry, MAX_CLIENTS, MAX_SERVERS, Shape};
pub use file::{FileError, MAX_FILE_BYTES, Problem, from_graphml, from_json, to_json};
pub use graph::{Link, Place, PlaceIndex, Role, Topology};
pub use idle_paths::IdlePaths;
pub use kept_connection::{KeptConnection, Part};
pub use regions::{RegionError, RegionMap, StatedRegion};
pub use routes::{Hop, RouteError, Routes};

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
