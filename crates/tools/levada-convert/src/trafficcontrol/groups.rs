//! Cache groups and their servers, as regions and nodes.

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr};

use super::{json::Json, name_of};
use crate::{
    ledger::{Fate, Ledger, Outcome, TAKEN, differs, left, needless},
    table::{Table, Value},
};

/// Latitude and longitude, in degrees.
pub(super) type Point = (f64, f64);

/// A cache group.
#[derive(Debug, Default)]
pub(super) struct Group {
    name: String,
    /// Its name in the fleet.
    pub(super) region: String,
    at: Option<Point>,
    /// Whether coverage zones lead to it.
    is_for_zones: bool,
    /// The cache groups that stand in for it.
    stand_ins: Vec<String>,
    /// Whether the nearest one does after them.
    to_closest: bool,
    edges: usize,
    mids: usize,
    parent: String,
    /// The address of its first edge.
    first: Option<IpAddr>,
}

/// All cache groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// Names of the nodes by those of the servers.
    pub(super) nodes: BTreeMap<String, String>,
    /// Lines with a node, its region and its address.
    pub(super) list: String,
}

impl Groups {
    /// Reads the groups of a snapshot, and what the API says about them in addition.
    pub(super) fn read(snapshot: &Json, described: &[Json], ledger: &mut Ledger) -> Self {
        let mut groups = Self::default();
        let services = snapshot.get("deliveryServices").map_or(0, |own| own.members().len());
        for (name, location) in snapshot.get("edgeLocations").map_or(&[][..], Json::members) {
            let outcome = groups.add(name, location);
            ledger.enter_line(&location.place, &format!("edgeLocations {name}"), outcome);
        }
        for (name, server) in snapshot.get("contentServers").map_or(&[][..], Json::members) {
            let own = server.get("deliveryServices").filter(|own| !own.is_empty());
            let some = own.is_some_and(|own| own.members().len() < services);
            let outcome = match groups.server(name, server) {
                Ok(Fate::Taken) if some => {
                    differs("the node serves all sites, and not its own services alone")
                }
                outcome => outcome,
            };
            ledger.enter_line(&server.place, &format!("contentServers {name}"), outcome);
        }
        for group in described {
            let name = group.member("name");
            let outcome = match groups.groups.iter_mut().find(|own| own.name == name) {
                None => needless("no server of the snapshot is in this cache group"),
                Some(own) => {
                    group.member("parentCachegroupName").clone_into(&mut own.parent);
                    match group.member("secondaryParentCachegroupName") {
                        "" => TAKEN,
                        _ => differs("the primary parent is the shield; it has no second one"),
                    }
                }
            };
            ledger.enter_line(&group.place, &format!("cachegroup {name}"), outcome);
        }
        groups
    }

    fn add(&mut self, name: &str, location: &Json) -> Outcome {
        let methods = location.texts("localizationMethods");
        let known = |method: &&str| ["CZ", "DEEP_CZ", "GEO"].contains(method);
        let stand_ins = location.get("backupLocations").filter(|own| own.get("list").is_some());
        let group = self.group(name);
        group.at = location.number("latitude").zip(location.number("longitude"));
        group.is_for_zones = methods.contains(&"CZ") || !methods.iter().any(known);
        // Without a list of its own, the closest one stands in.
        group.to_closest = stand_ins.is_none_or(|own| own.member("fallbackToClosest") == "true");
        if let Some(own) = stand_ins {
            group.stand_ins = own.texts("list").into_iter().map(str::to_owned).collect();
        }
        if group.at.is_none() {
            return differs(
                "has no coordinates: it stands in for no other one; Traffic Router leaves it out",
            );
        }
        if !group.to_closest {
            return differs("after those that stand in for it, `[dns]` takes any other region");
        }
        if group.region != name {
            return differs(format!("the region is called {}", group.region));
        }
        if !group.is_for_zones {
            return differs("coverage zones do not lead to it, but the other tables of DNS do");
        }
        TAKEN
    }

    fn server(&mut self, name: &str, server: &Json) -> Outcome {
        let kind = server.member("type");
        let is_edge = kind.starts_with("EDGE");
        if !is_edge && !kind.starts_with("MID") {
            return left("only edges and mids become nodes");
        }
        let address =
            [server.member("ip"), server.member("ip6")].into_iter().find(|own| !own.is_empty());
        let address = address.ok_or("it has no address")?;
        let address = address.split('/').next().unwrap_or_default();
        let address: IpAddr = address.parse().map_err(|_| format!("{address} is no address"))?;
        let group = [server.member("cacheGroup"), server.member("locationId")];
        let group = group.into_iter().find(|own| !own.is_empty()).ok_or("it has no cache group")?;
        let node = name_of(name, self.nodes.values().map(String::as_str));
        let group = self.group(group);
        group.edges += usize::from(is_edge);
        group.mids += usize::from(!is_edge);
        if is_edge {
            group.first.get_or_insert(address);
        }
        let region = group.region.clone();
        let _ = writeln!(self.list, "{node} {region} {address}");
        self.nodes.insert(name.to_owned(), node);
        match server.member("status") {
            "" | "ONLINE" | "REPORTED" => TAKEN,
            status => differs(format!("it is {status}: drain the node when it has joined")),
        }
    }

    /// The group of a name, made if there is none.
    fn group(&mut self, name: &str) -> &mut Group {
        let at = self.groups.iter().position(|own| own.name == name);
        let at = at.unwrap_or_else(|| {
            let region = name_of(name, self.groups.iter().map(|own| own.region.as_str()));
            let name = name.to_owned();
            self.groups.push(Group { name, region, to_closest: true, ..Group::default() });
            self.groups.len() - 1
        });
        &mut self.groups[at]
    }

    fn named(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|own| own.name == name)
    }

    /// The group that serves a zone, or why there is none: the rules of Traffic Router's method
    /// `getCoverageZoneCacheLocation`, with all servers up.
    pub(super) fn of_zone(&self, name: &str, at: Option<Point>) -> Result<&Group, &'static str> {
        if let Some(group) = self.named(name) {
            if group.at.is_some() && !group.is_for_zones {
                return Err("its cache group is not for coverage zones");
            }
            let mut stand_ins = group.stand_ins.iter().filter_map(|other| self.named(other));
            let good = |group: &&Group| group.edges > 0 && group.is_for_zones;
            if let Some(group) = Some(group).filter(|own| own.edges > 0).or(stand_ins.find(good)) {
                return Ok(group);
            }
            if !group.to_closest {
                return Err("its cache group has no servers, nor have those that stand in for it");
            }
        }
        let at = at.ok_or("no cache group with servers has its name, and it has no coordinates")?;
        let nearest = self.by_distance(at).find(|group| group.is_for_zones);
        nearest.ok_or("no cache group is for coverage zones")
    }

    /// The groups with edges, the nearest first.
    pub(super) fn by_distance(&self, at: Point) -> impl Iterator<Item = &Group> {
        let with_distance = |group| Some((distance(at, Group::edge_at(group)?), group));
        let mut found: Vec<_> = self.groups.iter().filter_map(with_distance).collect();
        found.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        found.into_iter().map(|(_, group)| group)
    }

    /// `fleet.toml`.
    pub(super) fn fleet(&self, name: &str) -> String {
        let fleet = Table::from_iter([("name", name.into())]);
        let mut text = format!("[fleet]\n{fleet}");
        for group in self.groups.iter().filter(|group| group.edges + group.mids > 0) {
            let mut region = Table::from_iter([("name", group.region.as_str().into())]);
            let others = self.fall_back(group);
            if !others.is_empty() {
                region.set("fall_back", Value::List(others));
            }
            let _ = write!(text, "\n[[region]]\n{region}");
        }
        text
    }

    fn fall_back(&self, group: &Group) -> Vec<Value> {
        if group.edges == 0 {
            return Vec::new();
        }
        let mut found: Vec<&str> = Vec::new();
        let stated = group.stand_ins.iter().filter_map(|name| self.named(name));
        let near = group.at.filter(|_| group.to_closest).map(|at| self.by_distance(at));
        for other in stated.chain(near.into_iter().flatten()) {
            let is_new = other.region != group.region && !found.contains(&other.region.as_str());
            if other.edges > 0 && is_new {
                found.push(&other.region);
            }
        }
        found.into_iter().map(Value::from).collect()
    }

    /// The address of an edge of each region.
    pub(super) fn name_servers(&self) -> impl Iterator<Item = IpAddr> {
        self.groups.iter().filter_map(|group| group.first)
    }

    /// The region that asks origins for all others: the parent of most edges, or else the one with most mids.
    pub(super) fn shield(&self) -> Option<&str> {
        let children = |mid: &Group| {
            let own = self.groups.iter().filter(|group| group.parent == mid.name);
            own.map(|group| group.edges).sum::<usize>()
        };
        let mids = self.mids().map(|mid| ((children(mid), mid.mids), mid));
        let most = mids.reduce(|best, next| if next.0 > best.0 { next } else { best });
        most.map(|(_, mid)| mid.region.as_str())
    }

    /// The groups with mids.
    pub(super) fn mids(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| group.mids > 0)
    }
}

impl Group {
    /// Whether clients have no node in it.
    pub(super) fn is_mid(&self) -> bool {
        self.edges == 0
    }

    /// Its place, if it has edges.
    fn edge_at(group: &Self) -> Option<Point> {
        group.at.filter(|_| group.edges > 0)
    }
}

/// The part of the globe's diameter between two places, squared (haversine): it orders them as their distance does.
fn distance((latitude, longitude): Point, to: Point) -> f64 {
    let half = |one: f64, other: f64| ((one - other).to_radians() / 2.0).sin().powi(2);
    let across = latitude.to_radians().cos() * to.0.to_radians().cos();
    half(latitude, to.0) + across * half(longitude, to.1)
}
