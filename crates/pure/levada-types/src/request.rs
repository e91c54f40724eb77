//! The facts about a request that a policy may use.

use serde::{Deserialize, Serialize};

use crate::Key;

/// The resources that requests of a class load (CAP, WWW10, Sec. 2; its N, DB, CB and DCB).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize,
)]
#[cfg_attr(feature = "config", derive(schemars::JsonSchema))]
pub enum ServiceClass {
    /// Static or lightly dynamic: no resource in particular.
    #[default]
    #[serde(rename = "normal")]
    Normal,
    /// The disk.
    #[serde(rename = "disk")]
    DiskBound,
    /// The processor.
    #[serde(rename = "cpu")]
    CpuBound,
    /// Both.
    #[serde(rename = "disk_and_cpu")]
    DiskAndCpuBound,
}

impl ServiceClass {
    /// All four classes, in the paper's order.
    pub const ALL: [Self; 4] =
        [Self::Normal, Self::DiskBound, Self::CpuBound, Self::DiskAndCpuBound];

    /// The name as configuration, logs and reports print it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::DiskBound => "disk",
            Self::CpuBound => "cpu",
            Self::DiskAndCpuBound => "disk_and_cpu",
        }
    }
}

/// One request, reduced to what a policy needs to choose a node.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The object.
    pub key: Key,
    /// Its cost class.
    pub class: ServiceClass,
    /// The size of the whole object in bytes, if a response has stated it.
    pub size: Option<u64>,
}

impl Request {
    /// A request of the normal class for an object of unknown size.
    pub fn new(key: Key) -> Self {
        Self { key, class: ServiceClass::default(), size: None }
    }
}
