//! Coverage zones and deep coverage zones: in the same form, with the names of regions and nodes, and without what
//! leads to no cache group.

use std::collections::BTreeMap;

use super::{groups::Groups, json::Json, networks::Network};
use crate::ledger::{Ledger, Outcome, TAKEN, differs, left};

/// Networks of regions, and what leads nowhere taken out of them.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// By region.
    pub(super) networks: BTreeMap<String, Vec<Network>>,
}

/// The networks of a file, each once: of two zones, the first has it.
#[derive(Default)]
struct Owners(BTreeMap<Network, (usize, String)>);

impl Owners {
    /// Adds the networks of a zone that has the value of this number.
    fn add(&mut self, name: &str, zone: &Json, number: usize, ledger: &mut Ledger) {
        for list in ["network6", "network"].iter().filter_map(|key| zone.get(key)) {
            for network in list.items() {
                let statement = format!("{name} {}", network.text());
                let outcome = self.network(name, network.text(), number);
                if outcome != TAKEN {
                    ledger.enter_line(&network.place, &statement, outcome);
                }
            }
        }
    }

    fn network(&mut self, name: &str, text: &str, number: usize) -> Outcome {
        let parsed = text.parse().map_err(|why| format!("{why}: Traffic Router uses no such file"));
        let (_, first) = self.0.entry(parsed?).or_insert_with(|| (number, name.to_owned()));
        match first == name {
            true => TAKEN,
            false => differs(format!("the network is of zone {first} already, and stays there")),
        }
    }
}

impl Coverage {
    pub(super) fn read(file: &Json, groups: &Groups, ledger: &mut Ledger) -> Self {
        let mut owners = Owners::default();
        let mut regions: Vec<Option<&str>> = Vec::new();
        for (name, zone) in file.get("coverageZones").map_or(&[][..], Json::members) {
            let coordinates = zone.get("coordinates");
            let at = coordinates.and_then(|at| at.number("latitude").zip(at.number("longitude")));
            let found = groups.of_zone(name, at).map(|group| group.region.as_str());
            let outcome = match found {
                Ok(region) if region == name => TAKEN,
                Ok(region) => differs(format!("its clients go to {region}")),
                Err(why) => left(format!("{why}: its clients are of no coverage zone")),
            };
            ledger.enter_line(&zone.place, &format!("coverageZones {name}"), outcome);
            owners.add(name, zone, regions.len(), ledger);
            regions.push(found.ok());
        }
        let region = |number: &usize| regions[*number];
        let holes = owners.0.iter().filter(|(_, (number, _))| region(number).is_none());
        let holes: Vec<_> = holes.map(|(network, _)| *network).collect();
        let mut networks: BTreeMap<String, Vec<_>> = BTreeMap::new();
        let all: Vec<_> = owners.0.keys().copied().collect();
        for (index, (network, (number, _))) in owners.0.iter().enumerate() {
            let Some(region) = region(number) else { continue };
            let found = networks.entry(region.to_owned()).or_default();
            let before = found.len();
            network.without(&holes, found);
            // The rest of it must not be a network of another zone as well.
            if found.get(before) != Some(network) {
                found.truncate(before);
                network.without(&all[index + 1..], found);
            }
        }
        Self { networks }
    }

    /// In Traffic Router's form.
    pub(super) fn file(&self) -> String {
        let zones = self.networks.iter().map(|(region, own)| (region, zone(own, None))).collect();
        written("coverageZones", zones)
    }
}

/// Deep coverage zones, in the same form.
pub(super) fn deep(file: &Json, groups: &Groups, ledger: &mut Ledger) -> String {
    let mut owners = Owners::default();
    let mut zones: Vec<(&String, Vec<Network>, Vec<String>)> = Vec::new();
    for (name, own) in file.get("deepCoverageZones").map_or(&[][..], Json::members) {
        let nodes = own.texts("caches").into_iter();
        let (known, others): (Vec<_>, Vec<_>) =
            nodes.partition(|name| groups.nodes.contains_key(*name));
        let outcome = match (known.is_empty(), others.is_empty()) {
            (false, true) => TAKEN,
            (false, false) => differs(format!("the snapshot has no {}", others.join(", "))),
            (true, _) => differs("the snapshot has none of its caches: coverage zones decide"),
        };
        ledger.enter_line(&own.place, &format!("deepCoverageZones {name}"), outcome);
        owners.add(name, own, zones.len(), ledger);
        let known = known.into_iter().map(|name| groups.nodes[name].clone()).collect();
        zones.push((name, Vec::new(), known));
    }
    for (network, (number, _)) in owners.0 {
        zones[number].1.push(network);
    }
    let zone = |(name, own, nodes): &(_, Vec<_>, Vec<_>)| (*name, zone(own, Some(nodes)));
    written("deepCoverageZones", zones.iter().map(zone).collect())
}

type Zone = BTreeMap<&'static str, Vec<String>>;

fn zone(networks: &[Network], caches: Option<&Vec<String>>) -> Zone {
    let of = |is_v6| networks.iter().filter(move |own| own.is_v6 == is_v6);
    let lists = [("network", false), ("network6", true)];
    let lists = lists.map(|(key, is_v6)| (key, of(is_v6).map(ToString::to_string).collect()));
    lists.into_iter().chain(caches.map(|caches| ("caches", caches.clone()))).collect()
}

fn written(key: &str, zones: BTreeMap<&String, Zone>) -> String {
    let file = BTreeMap::from([(key, zones)]);
    serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
}

/// Federations, in Traffic Router's form. It asks coverage zones before them, and takes the first that has an address:
/// a network stays with the first one.
pub(super) fn federations(
    services: &[Json],
    coverage: &Coverage,
    ledger: &mut Ledger,
) -> Option<String> {
    let mut found = Vec::new();
    for service in services {
        let name = service.member("deliveryService");
        let mut taken: Vec<_> = coverage.networks.values().flatten().copied().collect();
        let mut mappings = Vec::new();
        for mapping in service.get("mappings").map_or(&[][..], Json::items) {
            taken.sort();
            let outcome = federation(mapping, &mut taken, &mut mappings);
            let statement = format!("federation {name} {}", mapping.member("cname"));
            ledger.enter_line(&mapping.place, &statement, outcome);
        }
        if !mappings.is_empty() {
            found.push(serde_json::json!({"deliveryService": name, "mappings": mappings}));
        }
    }
    let file = serde_json::json!({"response": found});
    (!found.is_empty()).then(|| serde_json::to_string_pretty(&file).unwrap_or_default() + "\n")
}

fn federation(
    mapping: &Json,
    taken: &mut Vec<Network>,
    mappings: &mut Vec<serde_json::Value>,
) -> Outcome {
    let (cname, ttl) = (mapping.member("cname"), mapping.member("ttl").parse::<u32>());
    let ttl = ttl.map_err(|_| "its TTL is no number")?;
    let (mut rest, mut is_whole) = (Vec::new(), true);
    for text in [mapping.texts("resolve4"), mapping.texts("resolve6")].concat() {
        let network: Network = text.parse().map_err(|why| format!("{text} {why}"))?;
        let before = rest.len();
        if !taken.iter().any(|own| own.contains(network)) {
            network.without(taken, &mut rest);
        }
        is_whole &= rest.get(before) == Some(&network);
    }
    if rest.is_empty() {
        return left("coverage zones, which are asked before it, have all of its networks");
    }
    let texts = |is_v6| {
        let own = rest.iter().filter(move |own| own.is_v6 == is_v6);
        own.map(ToString::to_string).collect::<Vec<_>>()
    };
    let (v4, v6) = (texts(false), texts(true));
    mappings.push(serde_json::json!({"cname": cname, "ttl": ttl, "resolve4": v4, "resolve6": v6}));
    taken.extend(rest);
    match is_whole {
        true => TAKEN,
        false => differs("without the networks of coverage zones, which are asked before it"),
    }
}
