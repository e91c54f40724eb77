//! The files of Apache Traffic Control's Traffic Router: coverage zones, deep coverage zones, federations. They are
//! JSON; members that are not about networks are passed over.

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};

use super::{
    Regions,
    networks::{Networks, NetworksBuilder, Overlap, Prefix},
};
use crate::wire::{Name, NoName};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CoverageError {
    /// It is no JSON of this form.
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    /// A network is in two zones.
    #[error("{network} is in both {first} and {other}: leave it in one of them")]
    Twice {
        /// The network.
        network: Prefix,
        /// A zone.
        first: String,
        /// Another one.
        other: String,
    },
    /// A target of a federation is no name.
    #[error("a federation of {service}: {why}")]
    Target {
        /// The delivery service.
        service: String,
        /// The reason.
        why: NoName,
    },
    /// There are too many.
    #[error("has more than {} zones", u16::MAX - 1)]
    TooMany,
}

#[derive(Deserialize)]
struct CoverageFile {
    #[serde(rename = "coverageZones")]
    zones: BTreeMap<String, CoverageZone>,
}

#[derive(Deserialize)]
struct DeepFile {
    #[serde(rename = "deepCoverageZones")]
    zones: BTreeMap<String, CoverageZone>,
}

#[derive(Deserialize)]
struct CoverageZone {
    #[serde(default)]
    network: Prefixes,
    #[serde(default)]
    network6: Prefixes,
    #[serde(default)]
    caches: Vec<Arc<str>>,
}

/// Networks that are parsed as they are read: a file may have a million.
#[derive(Default)]
struct Prefixes(Vec<Prefix>);

impl<'de> Deserialize<'de> for Prefixes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Prefixes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of networks such as \"192.0.2.0/24\"")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Prefixes, S::Error> {
                let mut prefixes = Vec::new();
                while let Some(text) = list.next_element::<std::borrow::Cow<'de, str>>()? {
                    prefixes.push(text.parse().map_err(S::Error::custom)?);
                }
                Ok(Prefixes(prefixes))
            }
        }

        deserializer.deserialize_seq(List)
    }
}

impl CoverageZone {
    fn networks(&self) -> impl Iterator<Item = Prefix> {
        self.network.0.iter().chain(&self.network6.0).copied()
    }
}

/// The regions of networks, by a coverage zone file. A zone that is the region of no node becomes one without nodes.
///
/// # Errors
/// When it is no such file, or a network is in two zones.
pub fn coverage_zones(text: &[u8], regions: &mut Regions) -> Result<Networks, CoverageError> {
    let file: CoverageFile = serde_json::from_slice(text)?;
    let mut builder = NetworksBuilder::default();
    for (name, zone) in &file.zones {
        let region = regions.number(name).ok_or(CoverageError::TooMany)?;
        zone.networks().for_each(|network| builder.add(network, region));
    }
    drop(file);
    built(builder, |region| regions.name(region).to_owned())
}

fn built(
    builder: NetworksBuilder,
    name: impl Fn(u16) -> String,
) -> Result<Networks, CoverageError> {
    match builder.build() {
        (networks, overlaps) if overlaps.is_empty() => Ok(networks),
        (_, overlaps) => {
            let Overlap { network, values: [first, other] } = overlaps[0];
            Err(CoverageError::Twice { network, first: name(first), other: name(other) })
        }
    }
}

/// Networks with nodes of their own.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DeepZones {
    networks: Networks,
    /// The names of the nodes of each zone.
    nodes: Vec<Vec<Arc<str>>>,
}

impl DeepZones {
    /// Reads a deep coverage zone file.
    ///
    /// # Errors
    /// When it is no such file, or a network is in two zones.
    pub fn read(text: &[u8]) -> Result<Self, CoverageError> {
        let file: DeepFile = serde_json::from_slice(text)?;
        if file.zones.len() >= usize::from(u16::MAX) {
            return Err(CoverageError::TooMany);
        }
        let mut builder = NetworksBuilder::default();
        for (number, zone) in (0..).zip(file.zones.values()) {
            zone.networks().for_each(|network| builder.add(network, number));
        }
        let names: Vec<_> = file.zones.keys().cloned().collect();
        let nodes = file.zones.into_values().map(|zone| zone.caches).collect();
        let networks = built(builder, |number| names[usize::from(number)].clone())?;
        Ok(Self { networks, nodes })
    }

    /// The nodes of an address, and the scope.
    pub fn find(&self, address: IpAddr) -> (&[Arc<str>], u8) {
        let (zone, scope) = self.networks.find(address);
        (zone.map_or(&[], |zone| &self.nodes[usize::from(zone)]), scope)
    }

    /// The names of all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.iter().flatten()
    }
}

/// Networks whose clients get another name in the place of addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Federations(Vec<Service>);

#[derive(Debug, PartialEq, Eq)]
struct Service {
    /// The delivery service.
    name: String,
    networks: Networks,
    targets: Vec<Federation>,
}

/// The name that clients get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Federation {
    /// The target of the CNAME record.
    pub target: Name,
    /// Its TTL, in seconds.
    pub ttl: u32,
}

#[derive(Deserialize)]
struct FederationFile {
    response: Vec<FederatedService>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FederatedService {
    delivery_service: String,
    mappings: Vec<Mapping>,
}

#[derive(Deserialize)]
struct Mapping {
    cname: String,
    #[serde(deserialize_with = "seconds")]
    ttl: u32,
    #[serde(default)]
    resolve4: Prefixes,
    #[serde(default)]
    resolve6: Prefixes,
}

/// Traffic Router takes a number in quotes too.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(u32),
        Text(String),
    }
    match Form::deserialize(deserializer)? {
        Form::Number(number) => Ok(number),
        Form::Text(text) => text.parse().map_err(D::Error::custom),
    }
}

impl Federations {
    /// Reads a file of federations, as Traffic Ops answers for `federations`.
    ///
    /// # Errors
    /// When it is no such file.
    pub fn read(text: &[u8]) -> Result<Self, CoverageError> {
        let file: FederationFile = serde_json::from_slice(text)?;
        let mut services = Vec::new();
        for FederatedService { delivery_service, mappings } in file.response {
            let (mut builder, mut targets) = (NetworksBuilder::default(), Vec::new());
            for (number, mapping) in (0..u16::MAX).zip(mappings) {
                let networks = mapping.resolve4.0.iter().chain(&mapping.resolve6.0);
                networks.for_each(|network| builder.add(*network, number));
                let target = mapping.cname.parse();
                let target = target.map_err(|why| CoverageError::Target {
                    service: delivery_service.clone(),
                    why,
                })?;
                targets.push(Federation { target, ttl: mapping.ttl });
            }
            let networks =
                built(builder, |number| targets[usize::from(number)].target.to_string())?;
            services.push(Service { name: delivery_service, networks, targets });
        }
        Ok(Self(services))
    }

    /// The number of the service whose name a routed name has: as a whole, or as its label next to the zone, where
    /// Traffic Router has it.
    pub fn service(&self, name: &Name, zone: &Name) -> Option<u16> {
        let whole = name.to_string();
        let below = whole.strip_suffix(&zone.to_string())?.trim_end_matches('.');
        let label = below.rsplit('.').next().filter(|label| !label.is_empty());
        let is_of = |service: &Service| service.name == whole || Some(&*service.name) == label;
        self.0.iter().position(is_of)?.try_into().ok()
    }

    /// The federation of an address, and the scope.
    pub fn find(&self, service: u16, address: IpAddr) -> (Option<&Federation>, u8) {
        let Some(service) = self.0.get(usize::from(service)) else { return (None, 0) };
        let (found, scope) = service.networks.find(address);
        (found.map(|number| &service.targets[usize::from(number)]), scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn coverage_zones_of_traffic_router_are_read() {
        let text = br#"{"revision": "1", "coverageZones": {
            "eu": {"coordinates": {"latitude": 1.5}, "network": ["192.0.2.0/24"], "network6": ["2001:db8::/32"]},
            "us": {"network": ["198.51.100.7/24"]}}}"#;
        let mut regions = Regions::new(["us"]);
        let networks = coverage_zones(text, &mut regions).unwrap();
        let region = |address| networks.find(at(address)).0.map(|region| regions.name(region));
        assert_eq!(region("192.0.2.1"), Some("eu"));
        assert_eq!(region("2001:db8::1"), Some("eu"));
        assert_eq!(region("198.51.100.1"), Some("us"));
        assert_eq!(region("203.0.113.1"), None);
    }

    #[test]
    fn bad_coverage_zones_are_said() {
        let wrong = |text: &str| {
            coverage_zones(text.as_bytes(), &mut Regions::new([])).unwrap_err().to_string()
        };
        let twice = r#"{"coverageZones": {"a": {"network": ["10.0.0.0/8"]}, "b": {"network": ["10.0.0.0/8"]}}}"#;
        assert_eq!(wrong(twice), "10.0.0.0/8 is in both a and b: leave it in one of them");
        assert!(
            wrong(r#"{"coverageZones": {"a": {"network": ["10.0.0/8"]}}}"#)
                .contains("is no network")
        );
        assert!(wrong("{}").contains("coverageZones"));
        assert!(wrong("{").contains("EOF"));
    }

    #[test]
    fn deep_zones_have_nodes() {
        let text =
            br#"{"deepCoverageZones": {"a": {"network": ["192.0.2.0/25"], "caches": ["x", "y"]}}}"#;
        let deep = DeepZones::read(text).unwrap();
        let (nodes, scope) = deep.find(at("192.0.2.1"));
        assert_eq!((nodes.len(), scope), (2, 25));
        assert_eq!(deep.find(at("192.0.2.200")), (&[][..], 25));
    }

    #[test]
    fn federations_are_found_by_the_label_next_to_the_zone() {
        let text = br#"{"response": [{"deliveryService": "demo1", "mappings": [
            {"cname": "foo.example.", "ttl": "60", "resolve4": ["192.0.2.7/24"], "resolve6": ["2001:db8::/32"]}]}]}"#;
        let federations = Federations::read(text).unwrap();
        let (zone, name): (Name, Name) =
            ("cdn.test".parse().unwrap(), "edge.demo1.cdn.test".parse().unwrap());
        assert_eq!(federations.service(&name, &zone), Some(0));
        assert_eq!(federations.service(&"demo1.other.cdn.test".parse().unwrap(), &zone), None);
        let (found, scope) = federations.find(0, at("192.0.2.1"));
        assert_eq!(
            (found.unwrap().target.to_string(), found.unwrap().ttl, scope),
            ("foo.example".to_owned(), 60, 24)
        );
        assert_eq!(federations.find(0, at("192.0.3.1")).0, None);
    }
}
