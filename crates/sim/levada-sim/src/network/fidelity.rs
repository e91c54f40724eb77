//! The choice between the two networks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Level of detail of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fidelity {
    /// Rounds of TCP and shares of links: one event per transfer without congestion.
    #[default]
    Flow,
    /// Every packet through every queue, with two-way TCP: for validation; it takes far longer.
    Packet,
}
