//! `[peering]` and `[[peer]]`: the nodes of a cluster, and how they connect.

use std::time::Duration;

use levada_upstream::HealthCheck;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{Address, HostPort, IpAddress, NodeName, Root, Time};

/// The connections between the nodes of a cluster.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["listen"]))]
pub struct Peering {
    /// The address for peers only.
    #[schemars(extend("examples" = ["10.0.0.1:7070"]))]
    pub listen: Option<Address>,
    /// The secret that all peers share, at least 16 bytes. It is never sent: each connection begins with a proof
    /// that the caller knows it. Prefer `${NAME}` or `secret_file` to a literal
    /// value.
    #[schemars(extend("writeOnly" = true, "examples" = ["${LEVADA_SECRET}"]))]
    pub secret: Option<String>,
    /// Instead of `secret`, several: the first signs, each is accepted. With two of them a cluster changes its
    /// secret by reloads: docs/operate/change.md.
    #[schemars(extend("writeOnly" = true, "examples" = [["${LEVADA_SECRET}", "${LEVADA_OLD_SECRET}"]]))]
    pub secrets: Option<Vec<String>>,
    /// A file with the secret, or with several, one in a line, as in `secrets`; white space around them is ignored.
    #[schemars(extend("examples" = ["/etc/levada/secret"]))]
    pub secret_file: Option<String>,
    /// Certificates that authenticate peers, instead of a secret. Redirects are still signed with a secret.
    pub tls: Option<PeerTls>,
    /// The name of a `[[discovery]]` table with the nodes of the cluster, in addition to the `[[peer]]` tables. Each node's
    /// `name` must be the one that the source gives it: docs/operate/discovery.md.
    #[schemars(extend("examples" = ["nodes"]))]
    pub discovery: Option<NodeName>,
    /// The region of this node, if a source names the nodes and no `[[peer]]` table this one. See docs/operate/regions.md.
    #[schemars(extend("examples" = ["eu"]))]
    pub region: Option<NodeName>,
    /// The protocol between peers.
    pub protocol: Protocol,
    /// Time in which a node that came up reaches its full share of requests; `"0s"` is at once.
    #[schemars(extend("x-maximum" = "1h"))]
    pub slow_start: Time,
    /// How long a node that starts tries to reach a peer, to learn what was purged while it was away, before
    /// it serves clients without: docs/operate/purging.md.
    #[schemars(extend("x-maximum" = "1h"))]
    pub catch_up: Time,
    /// Health checks of peers.
    pub health_check: HealthCheck,
}

impl Default for Peering {
    fn default() -> Self {
        Self {
            listen: None,
            secret: None,
            secrets: None,
            secret_file: None,
            tls: None,
            discovery: None,
            region: None,
            protocol: Protocol::default(),
            slow_start: Time::default(),
            catch_up: Time(Duration::from_secs(10)),
            health_check: HealthCheck::default(),
        }
    }
}

/// Certificates that authenticate peers.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["certificate", "key", "authority"]))]
pub struct PeerTls {
    /// A PEM file with this node's chain.
    #[schemars(extend("examples" = ["/etc/levada/node.pem"]))]
    pub certificate: Option<String>,
    /// A PEM file with its private key.
    #[schemars(extend("examples" = ["/etc/levada/node.key"]))]
    pub key: Option<String>,
    /// A PEM file with the authority that signed every node's certificate.
    #[schemars(extend("examples" = ["/etc/levada/cluster-ca.pem"]))]
    pub authority: Option<String>,
}

/// The protocol of servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1 over a pool of connections: the least work per byte.
    #[default]
    Http1,
    /// HTTP/2, over TLS where there is TLS, else without (h2c): the fewest connections, and what gRPC needs.
    H2,
}

/// A node of the cluster.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "address"]))]
pub struct Peer {
    /// The `name` in that node's own configuration. It decides which objects are the node's: renaming a node empties its cache.
    #[schemars(extend("examples" = ["b"]))]
    pub name: Option<NodeName>,
    /// Its address for peers.
    #[schemars(extend("examples" = ["10.0.0.2:7070"]))]
    pub address: Option<HostPort>,
    /// Its capacity, relative to the other nodes.
    #[schemars(range(min = 0.001, max = 1000))]
    pub weight: f64,
    /// The round-trip time from this node to it, for policies that prefer near nodes. By default it is measured: docs/operate/regions.md.
    #[schemars(extend("examples" = ["12ms"], "x-maximum" = "1m"))]
    pub rtt: Option<Time>,
    /// Its URL for clients: the target of `delivery = "redirect"`.
    #[schemars(extend("examples" = ["https://b.cdn.example"]))]
    pub client_url: Option<Root>,
    /// Its region, such as a data centre. Policies choose among the nodes of one region. Either all nodes have one or
    /// none. See docs/operate/regions.md.
    #[schemars(extend("examples" = ["eu"]))]
    pub region: Option<NodeName>,
    /// Its addresses for clients, which a name server answers with: docs/operate/dns.md.
    #[schemars(extend("examples" = [["192.0.2.1", "2001:db8::1"]]))]
    pub public: Vec<IpAddress>,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            name: None,
            address: None,
            weight: 1.0,
            rtt: None,
            client_url: None,
            region: None,
            public: Vec::new(),
        }
    }
}
