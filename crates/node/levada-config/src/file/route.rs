//! `[route]`: the anycast route by which clients reach a node.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::OneOrMany;
use crate::text::Time;

/// The route by which clients reach this node: a BGP daemon on the same machine announces it, keeps it as a
/// backup or withdraws it. The table `bird` or `exabgp` chooses the daemon. See docs/operate/anycast.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// BIRD, over its control socket.
    pub bird: Option<Bird>,
    /// ExaBGP, which runs `levada route exabgp`.
    pub exabgp: Option<ExaBgp>,
    /// Minimum time between two changes because of load, and before a node that was cut off from its servers
    /// announces its route again.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub dwell: Time,
    /// The load at which the route becomes a backup: requests in service relative to `limits.capacity`,
    /// averaged over some 10 s.
    #[schemars(range(min = 0.01, max = 100))]
    pub load_high: f64,
    /// The load at which the route is no longer a backup.
    #[schemars(range(min = 0, max = 100))]
    pub load_low: f64,
    /// The state of the route while every server of a site is down. The default is `backup` where
    /// there is one.
    pub unwell: Option<Unwell>,
    /// Time that routers have to notice a withdrawn route before downloads are ended or the node stops.
    #[schemars(extend("x-maximum" = "1m"))]
    pub settle: Time,
    /// Whether decisions are only logged and shown.
    pub dry_run: bool,
}

/// The state of the route while every server of a site is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unwell {
    /// The route is a backup: it carries only traffic that other nodes cannot.
    Backup,
    /// The route is withdrawn.
    Withdraw,
}

/// BIRD, over its control socket.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["protocol"]))]
pub struct Bird {
    /// Its control socket.
    #[schemars(length(min = 1))]
    pub socket: String,
    /// The static protocol of BIRD's configuration that has the route.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"), extend("examples" = ["levada"]))]
    pub protocol: Option<String>,
    /// The static protocol that has the route with lower preference.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"), extend("examples" = ["levada_backup"]))]
    pub backup_protocol: Option<String>,
}

/// ExaBGP, which runs `levada route exabgp`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["prefixes"]))]
pub struct ExaBgp {
    /// The announced prefix.
    #[schemars(extend("examples" = [["192.0.2.0/24"]]))]
    pub prefixes: Option<OneOrMany<String>>,
    /// Next hop and attributes, in ExaBGP's syntax.
    #[schemars(regex(pattern = "^[ -~]+$"))]
    pub attributes: String,
    /// Next hop and attributes of the route as a backup.
    #[schemars(regex(pattern = "^[ -~]+$"), extend("examples" = ["next-hop self med 100 community [65535:0]"]))]
    pub backup_attributes: Option<String>,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            bird: None,
            exabgp: None,
            dwell: Time(Duration::from_secs(120)),
            load_high: 0.9,
            load_low: 0.6,
            unwell: None,
            settle: Time(Duration::from_secs(1)),
            dry_run: false,
        }
    }
}

impl Default for Bird {
    fn default() -> Self {
        Self { socket: "/run/bird/bird.ctl".to_owned(), protocol: None, backup_protocol: None }
    }
}

impl Default for ExaBgp {
    fn default() -> Self {
        Self { prefixes: None, attributes: "next-hop self".to_owned(), backup_attributes: None }
    }
}
