//! EndpointSlices (discovery.k8s.io/v1), with the fields that matter here, and the members in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use serde::Deserialize;

use super::{Metadata, Object};
use crate::{Member, ServicePort};

/// A part of a service's endpoints.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slice {
    metadata: Metadata,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

impl Object for Slice {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
    target_ref: Option<Target>,
}

#[derive(Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Deserialize)]
struct Target {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Port {
    name: Option<String>,
    port: Option<u16>,
}

/// Why slices have no members, though there are endpoints.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PortError {
    #[error("it has no port {asked}; it has {}", shown(.present))]
    Absent { asked: ServicePort, present: BTreeSet<String> },
    #[error("it has several ports: {}; choose one with `port`", shown(.present))]
    Several { present: BTreeSet<String> },
}

/// The ready endpoints of all slices of a service. While endpoints move from one slice to another they may be in
/// both.
pub(super) fn members<'a>(
    slices: impl IntoIterator<Item = &'a Slice> + Clone,
    asked: Option<&ServicePort>,
) -> Result<Vec<Member>, PortError> {
    let mut members: BTreeMap<String, Member> = BTreeMap::new();
    let mut is_port_found = false;
    let mut is_any_ready = false;
    for slice in slices.clone() {
        let port = slice.port(asked)?;
        is_port_found |= port.is_some();
        for endpoint in slice.endpoints.iter().flatten().filter(|endpoint| endpoint.is_ready()) {
            is_any_ready = true;
            let (Some(port), Some(ip)) = (port, endpoint.ip()) else { continue };
            let address = SocketAddr::new(ip, port);
            let name = endpoint.name(ip);
            // A pod with two families of addresses is one member: the IPv4 address sorts first.
            let member = members.entry(name.clone()).or_insert_with(|| Member::new(name, address));
            member.address = member.address.min(address);
        }
    }
    match asked {
        Some(asked) if is_any_ready && !is_port_found => {
            let present = slices.into_iter().flat_map(Slice::port_names).collect();
            Err(PortError::Absent { asked: asked.clone(), present })
        }
        _ => Ok(members.into_values().collect()),
    }
}

impl Slice {
    fn port(&self, asked: Option<&ServicePort>) -> Result<Option<u16>, PortError> {
        let mut ports = self.ports.iter().flatten();
        let found = match asked {
            Some(ServicePort::Name(name)) => ports.find(|port| port.name.as_deref() == Some(name)),
            Some(ServicePort::Number(number)) => ports.find(|port| port.port == Some(*number)),
            None => match (ports.next(), ports.next()) {
                (_, Some(_)) => {
                    return Err(PortError::Several { present: self.port_names().collect() });
                }
                (only, None) => only,
            },
        };
        Ok(found.and_then(|port| port.port))
    }

    fn port_names(&self) -> impl Iterator<Item = String> {
        self.ports.iter().flatten().map(|port| match (port.name.as_deref(), port.port) {
            (None | Some(""), number) => number.unwrap_or_default().to_string(),
            (Some(name), number) => format!("{name} ({})", number.unwrap_or_default()),
        })
    }
}

impl Endpoint {
    /// A condition that is absent counts as ready.
    fn is_ready(&self) -> bool {
        let Conditions { ready, terminating } = self.conditions;
        ready.unwrap_or(true) && !terminating.unwrap_or(false)
    }

    /// All addresses of an endpoint are of the same pod; slices of names have none.
    fn ip(&self) -> Option<IpAddr> {
        self.addresses.first()?.parse().ok()
    }

    fn name(&self, ip: IpAddr) -> String {
        match &self.target_ref {
            Some(target) if target.kind == "Pod" && !target.name.is_empty() => target.name.clone(),
            _ => ip.to_string(),
        }
    }
}

fn shown(ports: &BTreeSet<String>) -> String {
    match ports.len() {
        0 => "none".to_owned(),
        _ => ports.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(slices: &[Value], port: Option<ServicePort>) -> Result<Vec<String>, String> {
        let slices: Vec<Slice> =
            slices.iter().map(|slice| serde_json::from_value(slice.clone()).unwrap()).collect();
        let members = members(&slices, port.as_ref()).map_err(|error| error.to_string())?;
        Ok(members.iter().map(|member| format!("{} {}", member.name, member.address)).collect())
    }

    fn slice(endpoints: &Value, ports: &Value) -> Value {
        json!({ "metadata": { "name": "s" }, "endpoints": endpoints, "ports": ports })
    }

    fn pod(name: &str, ip: &str) -> Value {
        json!({
            "addresses": [ip], "conditions": { "ready": true },
            "targetRef": { "kind": "Pod", "name": name },
        })
    }

    fn named(name: &str) -> Option<ServicePort> {
        Some(ServicePort::Name(name.into()))
    }

    #[test]
    fn ready_endpoints_are_members_and_terminating_ones_are_not() {
        let endpoints = json!([
            pod("web-1", "10.0.0.1"),
            { "addresses": ["10.0.0.2"] },
            { "addresses": ["10.0.0.3"], "conditions": { "ready": null } },
            { "addresses": ["10.0.0.4"], "conditions": { "ready": false } },
            { "addresses": ["10.0.0.5"], "conditions": { "ready": true, "terminating": true } },
            { "addresses": ["web.example.com"] },
        ]);
        let ports = json!([{ "name": "http", "port": 80 }]);
        let expected = ["10.0.0.2 10.0.0.2:80", "10.0.0.3 10.0.0.3:80", "web-1 10.0.0.1:80"];
        assert_eq!(read(&[slice(&endpoints, &ports)], None).unwrap(), expected);
    }

    #[test]
    fn endpoint_in_two_slices_and_pod_of_two_families_are_one_member() {
        let ports = json!([{ "name": "", "port": 80 }]);
        let slices =
            ["10.0.0.1", "fd00::1", "10.0.0.1"].map(|ip| slice(&json!([pod("web-1", ip)]), &ports));
        assert_eq!(read(&slices, None).unwrap(), ["web-1 10.0.0.1:80"]);
        let reverse = [slices[1].clone(), slices[0].clone()];
        assert_eq!(read(&reverse, None).unwrap(), ["web-1 10.0.0.1:80"]);
    }

    #[test]
    fn port_is_chosen_by_name_or_number() {
        let ports = json!([{ "name": "http", "port": 8080 }, { "name": "admin", "port": 9090 }]);
        let slices = [slice(&json!([pod("a", "10.0.0.1")]), &ports)];
        assert_eq!(read(&slices, named("admin")).unwrap(), ["a 10.0.0.1:9090"]);
        assert_eq!(read(&slices, Some(ServicePort::Number(8080))).unwrap(), ["a 10.0.0.1:8080"]);
        let several = "it has several ports: admin (9090), http (8080); choose one with `port`";
        assert_eq!(read(&slices, None).unwrap_err(), several);
        let absent = "it has no port https; it has admin (9090), http (8080)";
        assert_eq!(read(&slices, named("https")).unwrap_err(), absent);
    }

    #[test]
    fn slices_without_endpoints_or_ports_have_no_members() {
        let null = Value::Null;
        assert_eq!(read(&[slice(&null, &null)], named("http")).unwrap(), [""; 0]);
        assert_eq!(read(&[slice(&json!([pod("a", "10.0.0.1")]), &null)], None).unwrap(), [""; 0]);
        assert_eq!(read(&[], None).unwrap(), [""; 0]);
    }
}
