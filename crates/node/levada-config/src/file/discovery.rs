//! `[[discovery]]` and `[resolver]`: members from where they already are, and how names are resolved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Etcd, Kubernetes};
use crate::text::{Address, HostPort, NodeName};

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
