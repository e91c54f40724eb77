//! The decision: federations, deep coverage zones, coverage zones, the database, distances, the default region, in
//! this order.

use std::net::IpAddr;

use levada_types::Key;

use super::{DeepZones, Family, Federation, Federations, Networks, Nodes, Picked, Regions};
use crate::{hot::Heat, zone::Route};

/// The tables that decide which region a client is of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The regions of all tables.
    pub regions: Regions,
    /// Networks that get another name.
    pub federations: Federations,
    /// Networks with nodes of their own.
    pub deep: DeepZones,
    /// Networks and their regions, by an operator's file,
    pub coverage: Networks,
    /// and by a database of addresses. Distances that were measured are with the nodes.
    pub geo: Networks,
    /// The region of all others.
    pub default_region: u16,
    /// For each region the ones that are asked, itself first.
    pub fallbacks: Vec<Vec<u16>>,
}

/// The table that had the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A federation.
    Federation,
    /// A deep coverage zone.
    DeepCoverage,
    /// A coverage zone.
    Coverage,
    /// The database.
    Geo,
    /// Distances.
    Distance,
    /// None: the default region.
    Default,
}

impl Reason {
    /// All of them, in their order.
    pub const ALL: [Self; 6] = [
        Self::Federation,
        Self::DeepCoverage,
        Self::Coverage,
        Self::Geo,
        Self::Distance,
        Self::Default,
    ];

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Federation => "federation",
            Self::DeepCoverage => "deep_coverage",
            Self::Coverage => "coverage",
            Self::Geo => "geo",
            Self::Distance => "distance",
            Self::Default => "default",
        }
    }
}

/// A question of a client.
#[derive(Clone, Copy)]
pub struct Wanted<'h> {
    /// The route of the name.
    pub route: Route,
    /// The name, and whatever else spreads its clients.
    pub key: Key,
    /// The family of addresses.
    pub family: Family,
    /// The most nodes.
    pub most: usize,
    /// How often the name is asked for, if that counts.
    pub heat: Option<Heat<'h>>,
}

/// An answer to a client.
#[derive(Clone, Debug)]
pub struct Choice<'t> {
    /// The answer.
    pub way: Way<'t>,
    /// The length of the prefix around the client's address for which it is the same.
    pub scope: u8,
    /// The table that had it.
    pub reason: Reason,
}

/// The kind of an answer.
#[derive(Clone, Debug)]
pub enum Way<'t> {
    /// Another name.
    Federation(&'t Federation),
    /// Nodes, the first one best; there may be none.
    Nodes(Picked),
}

impl Tables {
    /// The answer for a client at `address`, or in a network that begins there.
    pub fn choose(&self, nodes: &Nodes, wanted: Wanted<'_>, address: IpAddr) -> Choice<'_> {
        let Wanted { route, key, family, most, heat } = wanted;
        let address = address.to_canonical();
        // A table without an answer for the address narrows the scope too: it has one for others.
        let mut scope = 0;
        if let Some(service) = route.federation {
            let (found, within) = self.federations.find(service, address);
            scope = within;
            if let Some(federation) = found {
                return Choice {
                    way: Way::Federation(federation),
                    scope,
                    reason: Reason::Federation,
                };
            }
        }
        let (names, within) = self.deep.find(address);
        scope = scope.max(within);
        if !names.is_empty() {
            let found = nodes.named(names, family, key, most);
            if !found.is_empty() {
                return Choice { way: Way::Nodes(found), scope, reason: Reason::DeepCoverage };
            }
        }
        let (region, reason) = self.region(nodes, address, &mut scope);
        let regions = self.fallbacks.get(usize::from(region)).map_or(&[][..], |regions| regions);
        let region = nodes.region(regions, family);
        let found = region.map_or_else(Picked::default, |region| {
            let more = heat.map_or(0, |heat| heat.more(key, region));
            nodes.of_region(region, family, key, most + more).turned(address, most)
        });
        Choice { way: Way::Nodes(found), scope, reason }
    }

    /// The region of an address.
    fn region(&self, nodes: &Nodes, address: IpAddr, scope: &mut u8) -> (u16, Reason) {
        let tables = [
            (&self.coverage, Reason::Coverage),
            (&self.geo, Reason::Geo),
            (nodes.distances(), Reason::Distance),
        ];
        for (table, reason) in tables {
            let (region, within) = table.find(address);
            *scope = within.max(*scope);
            if let Some(region) = region {
                return (region, reason);
            }
        }
        (self.default_region, Reason::Default)
    }
}
