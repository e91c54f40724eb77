//! `[route]`: the route by which clients reach a node that is anycast.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use crate::text::Time;

/// The route by which clients reach this node: announced, kept as a backup or withdrawn by a BGP daemon beside it. One of the tables `bird` and `exabgp` says which. See docs/operate/anycast.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// BIRD, over its control socket.
    pub bird: Option<Bird>,
    /// ExaBGP, which runs `levada route exabgp`.
    pub exabgp: Option<ExaBgp>,
    /// The least time between two changes for load, and until a node that was cut off from its servers is back.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub dwell: Time,
    /// The load from which the route is a backup: requests in service relative to `limits.capacity`, averaged over some 10 s.
    #[schemars(range(min = 0.01, max = 100))]
    pub load_high: f64,
    /// The load at which it is one no longer.
    #[schemars(range(min = 0, max = 100))]
    pub load_low: f64,
    /// What becomes of the route while every server of a site is down. `backup` where there is one.
    pub unwell: Option<Unwell>,
    /// How long routers may take to notice that the route is gone, before downloads are ended or the node stops.
    #[schemars(extend("x-maximum" = "1m"))]
    pub settle: Time,
    /// Whether decisions are only logged and shown.
    pub dry_run: bool,
}

/// What becomes of the route while every server of a site is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unwell {
    /// It carries what other nodes do not.
    Backup,
    /// It is withdrawn.
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
    /// The one that has it less preferred.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"), extend("examples" = ["levada_backup"]))]
    pub backup_protocol: Option<String>,
}

/// ExaBGP, which runs `levada route exabgp`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["prefixes"]))]
pub struct ExaBgp {
    /// What is announced.
    #[schemars(extend("examples" = [["192.0.2.0/24"]]))]
    pub prefixes: Option<OneOrMany<String>>,
    /// Next hop and attributes, in ExaBGP's words.
    #[schemars(regex(pattern = "^[ -~]+$"))]
    pub attributes: String,
    /// The same for the route as a backup.
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
