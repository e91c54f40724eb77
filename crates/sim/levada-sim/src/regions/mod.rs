//! Nodes in regions far from each other, as docs/operate/regions.md has them: the round trips dominate.
//!
//! A scenario with a `[regions]` table is run here instead of in OSDI'02's world. Every node has a policy of its own,
//! as a real one has, and a memory; what a node takes for a request is one time. [`Regions`] has the parameters,
//! `world` is the life of a request, and `report` counts.

mod node;
mod report;
pub(crate) mod world;

use std::{collections::BTreeMap, time::Duration};

use levada_policy::Need;
use levada_topology::{MAX_SERVERS, RegionMap, StatedRegion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Time,
    scenario::{Arrivals, Policy, Problems, Scenario, Size},
};

/// Nodes in regions, and their way to the origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Regions {
    /// The region in which the origin is.
    pub origin: String,
    /// The region through which the nodes of all others ask the origin. With `""` every region asks by itself.
    pub shield: String,
    /// The policy that chooses the node of the shield that is asked, and its parameters.
    pub shield_policy: Policy,
    /// Whether the nodes of all regions are one cluster, as without `region` in their configuration: policies
    /// choose among all of them.
    pub one_cluster: bool,
    /// Time from a request to the answer of a node that has the object, within the node's region: its work, and the
    /// network there and back. Each node on the way takes as much.
    pub node_time: Time,
    /// Time that a fetch from the origin adds to it, where the origin is in the node's region.
    pub origin_time: Time,
    /// Time that a client takes for each request itself, such as a generator of load that is late.
    pub client_time: Time,
    /// Size of a response without its body.
    pub head: Size,
    /// How long objects are fresh. Stale ones are revalidated, and have not changed. By default they are always
    /// fresh.
    pub fresh: Option<Time>,
    /// Before the requests of the workload, every region requests each object of the trace once, all at the same
    /// moment, and the next object after this interval. Without it the workload meets empty memories.
    pub fill: Option<Time>,
    /// The regions.
    pub region: Vec<Region>,
}

/// A region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Region {
    /// Its name. Its nodes are called by it and a number, as in `eu-1`: hash orders follow from these names.
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// The clients' part of all requests, relative to that of the other regions.
    pub clients: f64,
    /// Round trips to other regions, such as `{ us = "80ms" }`. One of two regions states theirs.
    pub round_trips: BTreeMap<String, Time>,
}

impl Default for Region {
    fn default() -> Self {
        Self { name: String::new(), nodes: 0, clients: 1.0, round_trips: BTreeMap::new() }
    }
}

impl Default for Regions {
    fn default() -> Self {
        Self {
            origin: String::new(),
            shield: String::new(),
            shield_policy: Policy { name: "hrw".to_owned(), ..Policy::default() },
            one_cluster: false,
            node_time: Time(Duration::from_millis(1)),
            origin_time: Time(Duration::from_millis(1)),
            client_time: Time(Duration::ZERO),
            head: Size(200),
            fresh: None,
            fill: None,
            region: Vec::new(),
        }
    }
}

impl Regions {
    /// The regions with their round trips; whatever is wrong goes to `problems`.
    pub(crate) fn map(&self, problems: &mut Problems) -> Option<RegionMap> {
        let trips = |region: &Region| {
            region.round_trips.iter().map(|(to, trip)| (to.clone(), trip.0)).collect()
        };
        let trips: Vec<BTreeMap<_, _>> = self.region.iter().map(trips).collect();
        let regions = self.region.iter().zip(&trips);
        let stated =
            regions.map(|(Region { name, .. }, round_trips)| StatedRegion { name, round_trips });
        let map = RegionMap::new(&stated.collect::<Vec<_>>());
        let note = |errors: Vec<levada_topology::RegionError>| {
            errors.into_iter().for_each(|error| problems.add(place(error.region), error.what));
        };
        map.map_err(note).ok()
    }

    fn nodes(&self) -> usize {
        self.region.iter().map(|region| region.nodes).sum()
    }
}

/// Adds the problems of the `[regions]` table of `scenario` to `problems`.
pub(crate) fn check(scenario: &Scenario, regions: &Regions, problems: &mut Problems) {
    problems.add_if(
        regions.region.is_empty(),
        "regions.region",
        "there must be a region at least: write `[[regions.region]]` with `name` and `nodes`",
    );
    for (at, Region { name, nodes, clients, .. }) in regions.region.iter().enumerate() {
        let mut wrong = |wrong: bool, what: &str| {
            problems.add_if(wrong, &place(at), &format!("`{name}`: {what}"));
        };
        wrong(*nodes == 0, "a region has a node at least: set `nodes`, or leave the region out");
        wrong(!(clients.is_finite() && *clients >= 0.0), "`clients` is a part, from 0 on");
    }
    let clients = || regions.region.iter().map(|region| region.clients);
    let any = regions.region.is_empty() || clients().any(|part| part > 0.0);
    problems.add_if(
        !any,
        "regions.region",
        "no region has `clients`: set them to 1 in one at least",
    );
    problems.add_if(
        regions.nodes() > MAX_SERVERS,
        "regions.region",
        &format!("there are at most {MAX_SERVERS} nodes"),
    );
    let names: Vec<_> = regions.region.iter().map(|region| &*region.name).collect();
    let named = [("regions.origin", &regions.origin), ("regions.shield", &regions.shield)];
    for (key, name) in named {
        let is_known = names.contains(&&**name) || (name.is_empty() && key != "regions.origin");
        let what = format!("there is no region `{name}`; there are {}", names.join(", "));
        problems.add_if(!is_known && !names.is_empty(), key, &what);
    }
    problems.add_if(
        regions.one_cluster && !regions.shield.is_empty(),
        "regions.shield",
        "one cluster without regions has no shield: leave it out, or set `one_cluster = false`",
    );
    problems.add_if(
        !matches!(scenario.workload.arrivals, Arrivals::Constant | Arrivals::Recorded),
        "workload.arrivals",
        "regions are simulated at \"constant\" or \"recorded\" times",
    );
    regions.shield_policy.check("regions.shield_policy", problems);
    let policies =
        [("policy", &scenario.policy), ("regions.shield_policy", &regions.shield_policy)];
    for (place, policy) in policies {
        let one_for_all =
            [Need::GlobalLoads, Need::GlobalCache].iter().any(|need| policy.needs(*need));
        let what = "nodes that decide by themselves cannot run it";
        problems.add_if(one_for_all, &format!("{place}.name"), what);
    }
    regions.map(problems);
}

/// The key of a region.
fn place(at: usize) -> String {
    format!("regions.region.{at}")
}

#[cfg(test)]
mod tests;
