//! The state that a page shows.

use std::{collections::BTreeMap, future::Future, pin::Pin};

use crate::status::{NodeStatus, Sample, SetSize};
use levada_cluster::events::{Events, unix_time};
use serde::Serialize;

/// The source of a page: a node shows its cluster, a demo its nodes.
pub trait Shown: Send + Sync + 'static {
    /// The first words to a viewer who may give these orders.
    fn hello(&self, orders: Orders) -> Hello;

    /// The state now. Asked once a second while there are viewers, and never twice at a time.
    fn snapshot(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>>;

    /// The last minutes of nodes, as far as they are known, by the nodes' names.
    fn history(&self) -> BTreeMap<String, Vec<Sample>>;

    /// The sizes of the sets of hot objects over the last two minutes, by URL.
    fn set_sizes(&self) -> BTreeMap<String, Vec<SetSize>>;

    /// The events.
    fn events(&self) -> &Events;
}

/// The orders that a viewer may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Orders {
    /// Without a token: the viewer is on this machine, and there is no token.
    Here,
    /// With the token.
    Token,
    /// None.
    Refused,
}

/// The first words to a viewer.
#[derive(Clone, Debug, Serialize)]
pub struct Hello {
    /// `node` or `demo`.
    pub kind: &'static str,
    /// The name of the node, or of the demo.
    pub name: String,
    /// Its version.
    pub version: &'static str,
    /// The orders that the viewer may give.
    pub orders: Orders,
}

/// The state at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Unix time in milliseconds.
    pub at: u64,
    /// The node that serves the page; none for a demo.
    #[serde(rename = "self")]
    pub own: Option<String>,
    /// The nodes of the cluster, this one included.
    pub nodes: Vec<SeenNode>,
    /// The fleet of the node, as `levada-fleet` describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<serde_json::Value>,
    /// The course of a demo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demo: Option<Story>,
}

impl Snapshot {
    /// The state of these nodes now.
    pub fn now(own: Option<String>, nodes: Vec<SeenNode>) -> Self {
        Self { at: (unix_time() * 1e3) as u64, own, nodes, fleet: None, demo: None }
    }
}

/// A node as this process sees it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SeenNode {
    /// Its name.
    pub name: String,
    /// Its address for its peers or its operators.
    pub address: String,
    /// Whether requests may be sent to it.
    pub up: bool,
    /// The round trip to it, stated or measured, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<f64>,
    /// The age of its last answer in seconds; `None` before the first.
    pub age_seconds: Option<f64>,
    /// Its last answer.
    pub status: Option<NodeStatus>,
}

/// The course of a demo.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// The phase that runs.
    pub phase: &'static str,
    /// All phases in order.
    pub phases: Vec<StoryPhase>,
    /// The present scene, in a sentence.
    pub words: String,
    /// The policy.
    pub policy: String,
    /// The policies that the nodes may change to.
    pub policies: Vec<&'static str>,
}

/// A phase of a demo, with its times in Unix seconds.
#[derive(Clone, Debug, Serialize)]
pub struct StoryPhase {
    /// Its name.
    pub name: &'static str,
    /// Its begin.
    pub begin: f64,
    /// Its end.
    pub end: f64,
}
