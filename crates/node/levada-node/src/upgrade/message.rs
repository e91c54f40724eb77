//! The messages of the two processes, in this order.
//!
//! ```text
//! old: Offer, descriptors     new: Prepared
//! old: LetGo                  new: Ready
//! old: Open                   new: Serving
//! old: entries (`record`)     new: TakenOver
//! ```

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of this exchange. A process refuses another one.
pub(crate) const VERSION: u32 = 1;

/// The old process offers its sockets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) version: u32,
    pub(crate) pid: u32,
    pub(crate) sockets: Vec<OfferedSockets>,
    /// The directory of the disk tier.
    pub(crate) disk: Option<PathBuf>,
    /// The format of the entries of the memory tier.
    #[serde(default)]
    pub(crate) format: u16,
}

/// The sockets of one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfferedSockets {
    /// The address as the file has it.
    pub address: String,
    /// How many there are.
    pub count: usize,
}

/// The new process can go on alone.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// Whether it goes on with the sockets of each listener that was offered.
    pub taken: Vec<bool>,
    /// Whether it wants the entries of the memory tier.
    pub memory: bool,
}

/// The old process has let go of the disk tier.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LetGoMessage {
    /// The state of its purges, if it has no disk tier that has it.
    pub(crate) purges: Option<String>,
}

/// The new process can accept connections at once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready;

/// The old process accepts none any more.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Open;

/// The new process accepts connections.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Serving;

/// The entries that the new process keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// How many.
    pub objects: u64,
    /// The bytes of their heads and bodies.
    pub bytes: u64,
}
