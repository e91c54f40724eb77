//! The settings of the route to a node.

use std::{path::PathBuf, time::Duration};

/// The route to a node, and the BGP daemon that announces it.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSettings {
    /// The BGP daemon.
    pub speaker: Speaker,
    /// The rules for changes.
    pub rules: RouteRules,
    /// How long routers may take to notice a withdrawal.
    pub settle: Duration,
    /// Decisions are logged and not carried out.
    pub dry_run: bool,
}

/// A BGP daemon, and how it announces the route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// BIRD, over its control socket.
    Bird {
        /// The socket.
        socket: PathBuf,
        /// The protocol that has the route.
        protocol: String,
        /// The protocol that has the route with a lower preference.
        backup: Option<String>,
    },
    /// ExaBGP, over a process that polls the node.
    ExaBgp {
        /// The prefixes to announce.
        prefixes: Vec<String>,
        /// The text after a prefix: next hop and attributes, in ExaBGP's syntax.
        attributes: String,
        /// The text after a prefix of a backup route.
        backup: Option<String>,
    },
}

/// The rules for changes of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteRules {
    /// The least time between changes for load, and before the route of a node that was unwell is
    /// announced again.
    pub dwell: Duration,
    /// From this load on the route is a backup; `None`: load does not change the route.
    pub load_high: Option<f64>,
    /// At or below this load a backup route is announced normally again.
    pub load_low: Option<f64>,
    /// The level of the route while all servers of a site are down.
    pub unwell: RouteLevel,
}

/// How a route is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteLevel {
    /// Not announced.
    Withdrawn,
    /// Announced with a lower preference than other nodes' routes.
    Backup,
    /// Announced normally.
    Announced,
}

impl RouteLevel {
    /// The level of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Withdrawn, Self::Backup, Self::Announced]
            .into_iter()
            .find(|one| one.as_str() == name)
    }

    /// The name used in logs, in metrics and between nodes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawn => "withdrawn",
            Self::Backup => "backup",
            Self::Announced => "announced",
        }
    }
}
