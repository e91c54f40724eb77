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
}

/// Whether a node has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// The order is in force there, also after a restart.
    Confirmed,
    /// The node can be reached and has not confirmed yet. It will be told again.
    Pending,
    /// The node cannot be reached. It will be told when it is back.
    Unreachable,
    /// The node has refused the message: it is another cluster's, or of another version. It will be
    /// asked again.
    Refused,
}
