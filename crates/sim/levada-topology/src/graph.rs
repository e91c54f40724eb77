//! A topology as data: places and links.

use crate::routes::{RouteError, Routes};

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
