//! The result of a purge, node by node, and the path at which peers receive orders.

use serde::Serialize;

/// Peers post orders to this path.
pub(crate) const PATH: &str = "/.levada/purge";

/// The result of an order at one node.
#[derive(Debug, Serialize)]
pub(crate) struct NodeReport {
    pub(crate) node: String,
    pub(crate) result: Confirmation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// The order is sent again when the node can be reached.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) pending: bool,
}

/// Whether a node has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Confirmation {
    Confirmed,
    Refused,
    Unreachable,
    TimedOut,
}
