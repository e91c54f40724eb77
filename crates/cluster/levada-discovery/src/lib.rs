//! Members from where they already are: the addresses of a name, the servers of a service, the targets of a
//! watched file, keys of etcd, endpoints of Kubernetes.
//!
//! ```text
//!   a source (dns, srv, file): asks, watches ──> Report: the whole list, or why there is none
//!                                                   │
//!                                                Damping: which members are in use
//!                                                   │
//!   sites, switches, peers <── Discovery::changed ── Followed::members
//! ```
//!
//! Each source has a file with `async fn follow(settings, .., report)`, which runs until it is dropped and never
//! ends by itself. A source that fails, or names no members, keeps its last ones.

mod api;
mod backoff;
mod clock;
mod damping;
mod discovery;
mod dns;
mod etcd;
mod file;
mod file_version;
mod kubernetes;
mod member;
mod metrics;
mod report;
mod resolver;
mod settings;
mod srv;
mod tls;

pub use api::{Api, ApiError, IdleConnections};
pub use discovery::{Discovery, Followed};
pub use etcd::{
    Change, Etcd, Event, KeyValue, Leave, Listing, NameState, Quality, Watch, WatchError, register,
};
pub use file_version::FileVersion;
pub use kubernetes::{
    AccessError, ListError, Metadata, Object, ObjectFollower, Objects, Resource, patch,
};
pub use member::Member;
pub use metrics::DiscoveryMetrics;
pub use report::{IsUp, Report};
pub use resolver::ResolverPlan;
pub use settings::{
    AddressFamily, ClientTls, ClusterAccess, DiscoverySettings, DnsSource, Endpoint, EtcdSource,
    EtcdUser, FileSource, KubernetesSource, NamedSource, Registration, ResolverSettings,
    ServicePort, Source, SrvSource, SystemFiles,
};
pub use tls::TlsError;
