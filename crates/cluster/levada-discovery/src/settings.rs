//! The settings of sources: where members are to be found.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use levada_types::text::{Address, As, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Member;
pub use crate::tls::ClientTls;

/// The sources of a node, and how it resolves names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiscoverySettings {
    /// How names are resolved.
    pub resolver: ResolverSettings,
    /// The sources that the configuration gives a name.
    pub sources: Vec<NamedSource>,
    /// The entry that this node writes about itself; `None` if it writes none.
    pub registration: Option<Registration>,
}

/// How host names are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResolverSettings {
    /// The DNS servers. The default are those of `/etc/resolv.conf`.
    #[schemars(extend("examples" = [["10.0.0.2:53"]]))]
    #[serde(with = "As::<Vec<Address>>")]
    pub servers: Vec<SocketAddr>,
    /// Shortest time for which a record counts, whatever its TTL says.
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1h"))]
    #[serde(with = "As::<Time>")]
    pub min_ttl: Duration,
    /// Longest time for which a record counts.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "24h"))]
    #[serde(with = "As::<Time>")]
    pub max_ttl: Duration,
    /// Time that a DNS server may take to answer.
    #[schemars(extend("x-minimum" = "10ms", "x-maximum" = "1m"))]
    #[serde(with = "As::<Time>")]
    pub timeout: Duration,
    /// The kinds of addresses that are asked for.
    pub family: AddressFamily,
    /// The files by which the system resolves names.
    #[serde(skip)]
    pub system: SystemFiles,
}

/// The files by which the system resolves names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemFiles {
    /// DNS servers, search domains and options.
    pub resolv_conf: PathBuf,
    /// Names that need no DNS server.
    pub hosts: PathBuf,
}

impl Default for SystemFiles {
    fn default() -> Self {
        Self { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() }
    }
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_secs(300),
            timeout: Duration::from_secs(2),
            family: AddressFamily::Any,
            system: SystemFiles::default(),
        }
    }
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
    /// Keys of etcd.
    Etcd(EtcdSource),
    /// A service of Kubernetes.
    Kubernetes(KubernetesSource),
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

/// The keys with a prefix in etcd.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdSource {
    /// The servers of etcd. They are asked in this order, another one when one fails.
    pub endpoints: Vec<Endpoint>,
    /// The prefix; the rest of a key is the name of a member.
    pub prefix: Arc<str>,
    /// The user that reads; `None` if etcd asks for none.
    pub user: Option<EtcdUser>,
    /// The files for endpoints with TLS.
    pub tls: ClientTls,
}

/// A member that keeps itself among those of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Where it is written.
    pub source: EtcdSource,
    /// The member.
    pub me: Member,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EtcdUser {
    /// Its name.
    pub name: Arc<str>,
    /// Its password.
    pub password: Arc<str>,
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A server of an API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// `https` rather than `http`.
    pub tls: bool,
    /// A name or an IP address, the latter without brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// Host and port, as URLs and `Host` fields have them.
    pub(crate) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// The ready endpoints of a service in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KubernetesSource {
    /// The service.
    pub service: Arc<str>,
    /// Its namespace; `None`: that of the pod or of the kubeconfig's context.
    pub namespace: Option<Arc<str>>,
    /// The port of its pods; `None` if there is only one.
    pub port: Option<ServicePort>,
    /// The way to the API server.
    pub access: ClusterAccess,
}

/// A port of a service's pods: the number that they have, or the name that the service gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ServicePort {
    /// By its number.
    Number(#[schemars(range(min = 1))] u16),
    /// By its name.
    Name(#[schemars(length(min = 1, max = 63))] Arc<str>),
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// The way to the API server of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClusterAccess {
    /// By the service account of the pod in which this process runs.
    Pod,
    /// By a kubeconfig file.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context in it; `None`: the current one.
        context: Option<Arc<str>>,
    },
}
