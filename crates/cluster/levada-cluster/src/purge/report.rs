//! The result of a purge, node by node.

use serde::Serialize;

use crate::purge::OrderId;

/// The result of an order at one node.
#[derive(Debug, Serialize)]
pub struct NodeReport {
    /// The node's name.
    pub node: String,
    /// Whether it has confirmed.
    pub result: Confirmation,
    /// Why it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Whether a node has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// The order is in force there, also after a restart.
    Confirmed,
    /// The node can be reached and has not confirmed yet. It gets the purge again.
    Pending,
    /// The node cannot be reached. It gets the purge when it is back.
    Unreachable,
    /// The node has refused the message: it is another cluster's, or of another version. It will be
    /// asked again.
    Refused,
}

/// The result of an order, node by node.
#[derive(Debug, Serialize)]
pub struct PurgeReport {
    /// The name of the order, to ask about it later.
    pub order: String,
    /// The targets, in the answer to the order itself.
    #[serde(flatten)]
    pub what: Option<PurgeSummary>,
    /// Every node that may have had a copy has confirmed.
    pub confirmed: bool,
    /// All nodes.
    pub nodes: Vec<NodeReport>,
}

/// The responses that an order purges.
#[derive(Debug, Serialize)]
pub struct PurgeSummary {
    /// The scope.
    pub purged: &'static str,
    /// The targets.
    pub count: usize,
    /// Whether the responses become stale instead.
    pub soft: bool,
}

impl PurgeReport {
    /// The report on an order. `what` says what it purges, for who gave it.
    pub fn new(id: OrderId, what: Option<PurgeSummary>, nodes: Vec<NodeReport>) -> Self {
        let confirmed = nodes.iter().all(|node| node.result == Confirmation::Confirmed);
        Self { order: id.to_string(), what, confirmed, nodes }
    }
}
