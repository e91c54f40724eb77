//! The result of a purge, node by node.

use serde::Serialize;

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
    /// The order is sent again when the node can be reached.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
}

/// Whether a node has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// The order is in force there, also after a restart.
    Confirmed,
    /// The node has answered with an error.
    Refused,
    /// The node cannot be reached.
    Unreachable,
    /// The node has not answered in time.
    TimedOut,
}
