//! The message by which two nodes compare their purge logs.
//!
//! A node sends what it knows, and the orders that it believes the other lacks. The answer has the same
//! form: what the other knows then, and the orders that the sender lacks. Each repeats this until
//! neither lacks anything.

use serde::{Deserialize, Serialize};

use crate::purge::{
    log::{LogStates, LoggedOrder},
    order::OrderError,
};

/// The message of one node to another about its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The sender serves clients, and did not stand still. While it does not, it may lack orders that it
    /// had no chance to learn.
    pub serves: bool,
    /// How far the sender knows each log.
    pub logs: LogStates,
    /// Orders that the receiver may lack, those of one log in the order of their numbers.
    #[serde(default)]
    pub orders: Vec<LoggedOrder>,
}

impl Exchange {
    /// Parses a message from a peer.
    ///
    /// # Errors
    /// When it is no such message.
    pub fn from_json(bytes: &[u8]) -> Result<Self, OrderError> {
        Ok(serde_json::from_slice(bytes)?)
    }

    /// Writes the JSON that [`from_json`](Self::from_json) parses.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
