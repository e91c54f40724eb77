//! The settings of sources: where members are to be found.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// How names are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverSettings {
    /// The DNS servers; empty: those of the system.
    pub servers: Vec<SocketAddr>,
    /// A record counts for at least this long, whatever its TTL says.
    pub min_ttl: Duration,
    /// A record counts for at most this long.
    pub max_ttl: Duration,
    /// How long one question to one server may take.
    pub timeout: Duration,
    /// The kinds of addresses that are asked for.
    pub family: AddressFamily,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_secs(300),
            timeout: Duration::from_secs(2),
            family: AddressFamily::Any,
        }
    }
}

/// The kinds of addresses that a name is resolved to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4 and IPv6.
    #[default]
    Any,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

impl AddressFamily {
    /// Whether `address` is of it.
    pub fn has(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
        }
    }
}

/// A source that the configuration gives a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSource {
    /// Its name.
    pub name: Arc<str>,
    /// Where the members are to be found.
    pub source: Source,
}

/// Where members are to be found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The addresses of a name.
    Dns(DnsSource),
    /// The servers of a service (RFC 2782).
    Srv(SrvSource),
    /// A watched file.
    File(FileSource),
}

/// The addresses of a name: records A and AAAA.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DnsSource {
    /// The name.
    pub host: Arc<str>,
    /// The port of every member.
    pub port: u16,
    /// The DNS server; `None`: those of [`ResolverSettings`].
    pub resolver: Option<SocketAddr>,
}

/// The servers of a service: records SRV, and the addresses of their targets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SrvSource {
    /// The name of the service, such as `_http._tcp.example.com`.
    pub name: Arc<str>,
    /// The DNS server; `None`: those of [`ResolverSettings`].
    pub resolver: Option<SocketAddr>,
}

/// A watched file, in the format of Prometheus' `file_sd`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileSource {
    /// The file.
    pub path: PathBuf,
}
