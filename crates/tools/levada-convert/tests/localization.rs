//! Clients get to the cache group that Traffic Router's rules name: a reference that is written from these rules, and
//! knows nothing of the converter, is asked about 10,000 addresses, and so are the files of the fleet.
//!
//! The rules are those of Traffic Router's documentation and of its method `getCoverageZoneCacheLocation`: the longest
//! prefix of the coverage zone file decides; its zone is the name of a cache group; where that has no servers, those of
//! its list stand in, then, unless it forbids this, the one nearest to the coordinates of the zone; a zone without a
//! group goes by its coordinates; a group that is not for coverage zones, or none at all, is no answer. Deep zones come
//! before, if a cache of theirs exists.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use levada_convert::{FleetDirectory, InputFile, trafficcontrol};
use serde_json::{Value, json};

/// Random numbers that are the same in each run (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// A cache group of the reference.
struct Group {
    name: String,
    at: (f64, f64),
    edges: usize,
    methods: Vec<&'static str>,
    list: Option<Vec<String>>,
    to_closest: bool,
}

impl Group {
    fn takes_zones(&self) -> bool {
        self.methods.is_empty() || self.methods.contains(&"CZ")
    }
}

struct Zone {
    name: String,
    at: Option<(f64, f64)>,
    networks: Vec<(IpAddr, u8)>,
}

/// The angle between two places, by their vectors.
fn angle(one: (f64, f64), other: (f64, f64)) -> f64 {
    let vector = |(latitude, longitude): (f64, f64)| {
        let (latitude, longitude) = (latitude.to_radians(), longitude.to_radians());
        [latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()]
    };
    let (one, other) = (vector(one), vector(other));
    one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>().clamp(-1.0, 1.0).acos()
}

fn is_in(address: IpAddr, (network, length): (IpAddr, u8)) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => {
            length == 0 || (a.to_bits() ^ n.to_bits()) >> (32 - u32::from(length)) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(n)) => {
            length == 0 || (a.to_bits() ^ n.to_bits()) >> (128 - u32::from(length)) == 0
        }
        _ => false,
    }
}

/// The zone of the longest prefix; of two with the same prefix, the first of the file.
fn longest(zones: &[Zone], address: IpAddr) -> Option<&Zone> {
    let mut best: Option<(u8, &Zone)> = None;
    for zone in zones {
        for network in zone.networks.iter().filter(|network| is_in(address, **network)) {
            if best.is_none_or(|(length, _)| network.1 > length) {
                best = Some((network.1, zone));
            }
        }
    }
    best.map(|(_, zone)| zone)
}

/// The cache group of an address, as Traffic Router finds it by coverage zones.
fn reference(groups: &[Group], zones: &[Zone], address: IpAddr) -> Option<String> {
    let zone = longest(zones, address)?;
    let find = |name: &str| groups.iter().find(|group| group.name == name);
    if let Some(group) = find(&zone.name) {
        if !group.takes_zones() {
            return None;
        }
        if group.edges > 0 {
            return Some(group.name.clone());
        }
        if let Some(list) = &group.list {
            for other in list.iter().filter_map(|name| find(name)) {
                if other.takes_zones() && other.edges > 0 {
                    return Some(other.name.clone());
                }
            }
            if !group.to_closest {
                return None;
            }
        }
    }
    let at = zone.at?;
    let good = groups.iter().filter(|group| group.takes_zones() && group.edges > 0);
    let nearest = good.min_by(|one, other| angle(at, one.at).total_cmp(&angle(at, other.at)));
    nearest.map(|group| group.name.clone())
}

/// The caches that a deep zone has for an address.
fn deep_reference(zones: &[(Zone, Vec<String>)], known: &[String], address: IpAddr) -> Vec<String> {
    let best = zones
        .iter()
        .flat_map(|(zone, caches)| zone.networks.iter().map(move |network| (network, caches)))
        .filter(|(network, _)| is_in(address, **network))
        .fold(None::<(&(IpAddr, u8), &Vec<String>)>, |best, next| match best {
            Some(best) if best.0.1 >= next.0.1 => Some(best),
            _ => Some(next),
        });
    let caches = best.map_or_else(Vec::new, |(_, caches)| caches.clone());
    let mut caches: Vec<_> = caches.into_iter().filter(|cache| known.contains(cache)).collect();
    caches.sort();
    caches
}

/// The zone of the longest prefix in a file of the fleet. A prefix that is there twice fails the test.
fn in_file(file: &Value, address: IpAddr) -> Option<String> {
    let mut best: Option<(u8, String)> = None;
    for (name, zone) in file.as_object().unwrap() {
        for key in ["network", "network6"] {
            for network in zone[key].as_array().unwrap() {
                let (at, length) = network.as_str().unwrap().split_once('/').unwrap();
                let network = (at.parse().unwrap(), length.parse().unwrap());
                if is_in(address, network) {
                    assert!(
                        best.as_ref().is_none_or(|own| own.0 != network.1),
                        "twice: {at}/{length}"
                    );
                    if best.as_ref().is_none_or(|own| own.0 < network.1) {
                        best = Some((network.1, name.clone()));
                    }
                }
            }
        }
    }
    best.map(|(_, name)| name)
}

/// A place in a small part of the address space, so that networks meet, and often the first or last address of one.
fn address(random: &mut Random) -> IpAddr {
    let low = random.below(1 << 16) as u32;
    let edge = [low, low & !0xff, low | 0xff][random.below(3) as usize];
    match random.below(4) {
        0 => {
            let high = 0x2001_0db8_0000_0000_0000_0000_0000_0000_u128;
            IpAddr::V6(Ipv6Addr::from_bits(high | u128::from(edge) << 64))
        }
        _ => IpAddr::V4(Ipv4Addr::from_bits(0xc612_0000 | edge)),
    }
}

fn networks(random: &mut Random) -> Vec<(IpAddr, u8)> {
    let count = 1 + random.below(6);
    let network = |random: &mut Random| match address(random) {
        IpAddr::V4(address) => {
            let length = 16 + random.below(17) as u8;
            let bits = address.to_bits() & (u32::MAX << (32 - u32::from(length)));
            (IpAddr::V4(Ipv4Addr::from_bits(bits)), length)
        }
        IpAddr::V6(address) => {
            let length = 48 + random.below(17) as u8;
            let bits = address.to_bits() & (u128::MAX << (128 - u32::from(length)));
            (IpAddr::V6(Ipv6Addr::from_bits(bits)), length)
        }
    };
    (0..count).map(|_| network(random)).collect()
}

fn place(random: &mut Random) -> (f64, f64) {
    (random.below(1400) as f64 / 10.0 - 70.0, random.below(3600) as f64 / 10.0 - 180.0)
}

fn groups(random: &mut Random) -> Vec<Group> {
    let names: Vec<_> = (0..12).map(|number| format!("group-{number}")).collect();
    let group = |name: &String| {
        let list = (0..random.below(3)).map(|_| names[random.below(12) as usize].clone()).collect();
        Group {
            name: name.clone(),
            at: place(random),
            edges: random.below(3) as usize,
            methods: [vec![], vec!["CZ", "GEO"], vec!["GEO"], vec!["DEEP_CZ", "CZ"]]
                [random.below(4) as usize]
                .clone(),
            list: Some(list).filter(|_| random.below(3) > 0),
            to_closest: random.below(2) == 0,
        }
    };
    names.iter().map(group).collect()
}

fn in_json(zone: &Zone) -> Value {
    let of = |is_v6| {
        let own = zone.networks.iter().filter(move |(address, _)| address.is_ipv6() == is_v6);
        own.map(|(address, length)| format!("{address}/{length}")).collect::<Vec<_>>()
    };
    let mut json = json!({"network": of(false), "network6": of(true)});
    if let Some((latitude, longitude)) = zone.at {
        json["coordinates"] = json!({"latitude": latitude, "longitude": longitude});
    }
    json
}

fn snapshot(groups: &[Group]) -> (Value, Vec<String>) {
    let mut locations = serde_json::Map::new();
    let (mut servers, mut names) = (serde_json::Map::new(), Vec::new());
    for group in groups {
        let mut location = json!({
            "latitude": group.at.0, "longitude": group.at.1, "localizationMethods": group.methods,
            "backupLocations": {"fallbackToClosest": group.to_closest.to_string()},
        });
        if let Some(list) = &group.list {
            location["backupLocations"]["list"] = json!(list);
        }
        locations.insert(group.name.clone(), location);
        for number in 0..group.edges {
            let name = format!("{}-edge-{number}", group.name);
            servers.insert(
                name.clone(),
                json!({"cacheGroup": group.name, "ip": "192.0.2.1", "type": "EDGE", "status": "REPORTED"}),
            );
            names.push(name);
        }
    }
    let services = json!({"live": {
        "routingName": "cdn", "domains": ["live.cdn.test"], "deepCachingType": "ALWAYS", "coverageZoneOnly": "true",
        "protocol": {"acceptHttps": "true"},
        "matchsets": [{"protocol": "HTTP", "matchlist": [{"match-type": "HOST", "regex": ".*\\.live\\..*"}]}],
    }});
    let config = json!({"domain_name": "cdn.test"});
    let snapshot = json!({
        "config": config, "edgeLocations": locations, "contentServers": servers, "deliveryServices": services,
    });
    (snapshot, names)
}

fn converted(files: &[(&str, &Value)]) -> FleetDirectory {
    let file = |(name, json): &(&str, &Value)| InputFile {
        name: (*name).to_owned(),
        text: json.to_string(),
    };
    trafficcontrol(&files.iter().map(file).collect::<Vec<_>>()).unwrap()
}

/// Whether the list of addresses of a site lets a client pass.
fn admits(site: &toml::Table, address: IpAddr) -> bool {
    for rule in site["site"][0]["access"].as_array().unwrap() {
        match rule.as_str().unwrap().split_once(' ').unwrap() {
            ("deny", "all") => return false,
            ("allow", network) => {
                let (at, length) = network.split_once('/').unwrap();
                if is_in(address, (at.parse().unwrap(), length.parse().unwrap())) {
                    return true;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    true
}

#[test]
fn ten_thousand_addresses_get_to_the_cache_group_that_traffic_router_names() {
    let mut random = Random(36);
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..20 {
        let groups = groups(&mut random);
        let (snapshot, servers) = snapshot(&groups);
        if servers.is_empty() {
            continue;
        }
        let zone = |number: u64, name: &str, random: &mut Random| Zone {
            name: format!("{name}-{number}"),
            at: Some(place(random)).filter(|_| random.below(2) == 0),
            networks: networks(random),
        };
        // Numbers beyond the groups are zones of no group.
        let zones: Vec<_> = (0..16).map(|number| zone(number, "group", &mut random)).collect();
        let deep: Vec<_> = (0..4)
            .map(|number| {
                let caches = (0..random.below(3)).map(|_| match random.below(3) {
                    0 => "an-edge-of-before".to_owned(),
                    _ => servers[random.below(servers.len() as u64) as usize].clone(),
                });
                let caches = caches.collect::<Vec<_>>();
                (zone(number, "deep", &mut random), caches)
            })
            .collect();
        let in_order = |pairs: Vec<(String, Value)>, key: &str| {
            // The order of the file counts, which a map of serde_json may not keep.
            let pairs = pairs.iter().map(|(name, zone)| format!("{}:{zone}", json!(name)));
            format!("{{{}:{{{}}}}}", json!(key), pairs.collect::<Vec<_>>().join(","))
        };
        let coverage = zones.iter().map(|zone| (zone.name.clone(), in_json(zone))).collect();
        let deep_file = deep.iter().map(|(zone, caches)| {
            let mut json = in_json(zone);
            json["caches"] = json!(caches);
            (zone.name.clone(), json)
        });
        let texts = [
            ("snapshot.json", snapshot.to_string()),
            ("coverage.json", in_order(coverage, "coverageZones")),
            ("deep.json", in_order(deep_file.collect(), "deepCoverageZones")),
        ];
        let files = texts.map(|(name, text)| InputFile { name: name.to_owned(), text });
        let fleet = trafficcontrol(&files).unwrap();
        let json = |name: &str, key: &str| {
            let file: Value = serde_json::from_str(&fleet.files[name]).unwrap();
            file[key].clone()
        };
        let coverage = json("files/coverage.json", "coverageZones");
        let deep_zones = json("files/deep-coverage.json", "deepCoverageZones");
        for _ in 0..500 {
            let address = address(&mut random);
            let wanted = reference(&groups, &zones, address);
            assert_eq!(
                in_file(&coverage, address),
                wanted,
                "{address}: {zones}",
                zones = texts_of(&zones)
            );
            let wanted_deep = deep_reference(&deep, &servers, address);
            let found = in_file(&deep_zones, address).map_or_else(Vec::new, |zone| {
                let caches = deep_zones[&zone]["caches"].as_array().unwrap();
                let mut caches: Vec<_> =
                    caches.iter().map(|cache| cache.as_str().unwrap().to_owned()).collect();
                caches.sort();
                caches
            });
            assert_eq!(found, wanted_deep, "{address}");
            let kind = match (&wanted, longest(&zones, address), wanted_deep.is_empty()) {
                (_, _, false) => "deep",
                (Some(group), Some(zone), _) if *group == zone.name => "own group",
                (Some(_), _, _) => "another group",
                (None, Some(_), _) => "a zone without an answer",
                (None, None, _) => "no zone",
            };
            *met.entry(kind).or_default() += 1;
        }
    }
    assert_eq!(met.values().sum::<usize>(), 10_000, "{met:?}");
    // Each rule decides about some hundred addresses.
    assert!(met.len() == 5 && met.values().all(|count| *count >= 300), "{met:?}");
    println!("{met:?}");
}

fn texts_of(zones: &[Zone]) -> String {
    zones.iter().map(|zone| format!("{} {:?}\n", zone.name, zone.networks)).collect()
}

#[test]
fn a_limit_to_coverage_zones_admits_the_clients_of_cache_groups_alone() {
    let mut random = Random(37);
    let groups = groups(&mut random);
    let (snapshot, _) = snapshot(&groups);
    let zones: Vec<_> = (0..16)
        .map(|number| Zone {
            name: format!("group-{number:02}").replace("-0", "-"),
            at: Some(place(&mut random)).filter(|_| number % 2 == 0),
            networks: networks(&mut random),
        })
        .collect();
    let mut ordered: Vec<_> = zones.iter().collect();
    ordered.sort_by(|one, other| one.name.cmp(&other.name));
    let list: serde_json::Map<_, _> =
        ordered.iter().map(|zone| (zone.name.clone(), in_json(zone))).collect();
    let zones: Vec<_> = ordered
        .into_iter()
        .map(|zone| Zone { name: zone.name.clone(), at: zone.at, networks: zone.networks.clone() })
        .collect();
    let coverage = json!({"coverageZones": list});
    let services = json!({"response": [{
        "active": true, "xmlId": "live", "type": "HTTP", "orgServerFqdn": "http://origin.test", "protocol": 2,
    }]});
    let files = [("a.json", &snapshot), ("b.json", &coverage), ("c.json", &services)];
    let fleet = converted(&files);
    let site: toml::Table = fleet.files["sites/live.toml"].parse().unwrap();
    let (mut admitted, mut refused) = (0, 0);
    for _ in 0..2_000 {
        let address = address(&mut random);
        let wanted = reference(&groups, &zones, address).is_some();
        assert_eq!(admits(&site, address), wanted, "{address}");
        *if wanted { &mut admitted } else { &mut refused } += 1;
    }
    assert!(admitted > 200 && refused > 200, "{admitted} {refused}");
}
