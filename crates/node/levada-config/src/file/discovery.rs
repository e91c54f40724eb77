//! `[[discovery]]` and `[resolver]`: members from where they already are, and how names are resolved.

use crate::settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Etcd, Kubernetes};
use crate::text::{Address, HostPort, NodeName, Time};

/// A source of members: one of `dns`, `srv`, `file`, `etcd` and `kubernetes`. See docs/operate/discovery.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct Discovery {
    /// Its name: `http://discovery:NAME` stands for its members.
    #[schemars(extend("examples" = ["app"]))]
    pub name: Option<NodeName>,
    /// A host name and a port: each address of the name is a member.
    #[schemars(extend("examples" = ["app.internal:8000"]))]
    pub dns: Option<HostPort>,
    /// A service with SRV records (RFC 2782): each server of it is a member.
    #[schemars(length(min = 1, max = 253), extend("examples" = ["_http._tcp.app.example.com"]))]
    pub srv: Option<String>,
    /// A JSON file in the format of Prometheus' `file_sd`: each target is a member. Changes are noticed within
    /// a second.
    #[schemars(length(min = 1), extend("examples" = ["/etc/levada/members.json"]))]
    pub file: Option<String>,
    /// Keys with a prefix in etcd: each is a member.
    pub etcd: Option<Etcd>,
    /// A service in Kubernetes: each ready endpoint is a member.
    pub kubernetes: Option<Kubernetes>,
    /// The DNS server for `dns` and `srv`, such as Consul's. The default is that of `[resolver]`.
    #[schemars(extend("examples" = ["127.0.0.1:8600"]))]
    pub resolver: Option<Address>,
}

/// How host names are resolved.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resolver {
    /// The DNS servers. The default are those of `/etc/resolv.conf`.
    #[schemars(extend("examples" = [["10.0.0.2:53"]]))]
    pub servers: Vec<Address>,
    /// Shortest time for which a record counts, whatever its TTL says.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    pub min_ttl: Time,
    /// Longest time for which a record counts.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "24h"))]
    pub max_ttl: Time,
    /// Time that a DNS server may take to answer.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1m"))]
    pub timeout: Time,
    /// The kinds of addresses that are asked for.
    pub family: AddressFamily,
}

/// The kinds of addresses that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddressFamily {
    /// IPv4 and IPv6.
    #[default]
    Any,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

impl Default for Resolver {
    fn default() -> Self {
        let settings::ResolverSettings { min_ttl, max_ttl, timeout, .. } =
            settings::ResolverSettings::default();
        let (min_ttl, max_ttl, timeout) = (Time(min_ttl), Time(max_ttl), Time(timeout));
        Self { servers: Vec::new(), min_ttl, max_ttl, timeout, family: AddressFamily::Any }
    }
}

impl From<&Resolver> for settings::ResolverSettings {
    fn from(file: &Resolver) -> Self {
        Self {
            servers: file.servers.iter().map(|server| server.0).collect(),
            min_ttl: file.min_ttl.0,
            max_ttl: file.max_ttl.0,
            timeout: file.timeout.0,
            family: match file.family {
                AddressFamily::Any => settings::AddressFamily::Any,
                AddressFamily::Ipv4 => settings::AddressFamily::Ipv4,
                AddressFamily::Ipv6 => settings::AddressFamily::Ipv6,
            },
            system: settings::SystemFiles::default(),
        }
    }
}
