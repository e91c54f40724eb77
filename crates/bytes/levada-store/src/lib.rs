//! The store of a node: responses, found by the hash of their URI, in memory and on disk.
//!
//! ```text
//! store ─┬─ memory      entries by key, bounded in bytes
//!        ├─ disk        records by key, one file each
//!        └─ codec       an entry as a record, in the encoding of both tiers
//! object, block         a response; a part of the body of a long one
//! packed, template      the head of a response in few bytes; the fields of a hit from them
//! identity              a URI as responses are found by it
//! variants              URIs with several objects
//! label                 the facts that purges go by
//! loan                  bytes that readers hold outside the tiers
//! ```
//!
//! The store does not know who asks, which purges hold and how bytes leave: callers pass purges as
//! closures, and take bodies as segments or as parts of files.

mod block;
mod choice;
mod codec;
pub mod disk;
mod encoding;
pub mod identity;
pub mod label;
pub mod loan;
mod memory;
mod metrics;
mod node_name;
mod object;
mod packed;
mod remembered;
mod segments;
mod settings;
mod store;
mod template;
mod variants;
mod weight;
mod window_room;

/// The memory tier alone, for measurements.
#[doc(hidden)]
pub mod measuring;

pub use block::{Block, block_key, new_version};
pub use choice::{AlgorithmStatus, EvictionStatus, SwitchStatus};
pub use label::{Label, TAGS};
pub use loan::{Loan, Loans};
pub use metrics::CacheMetrics;
pub use node_name::NodeName;
pub use object::{Blocks, Object, StoredBody, StoredHead};
pub use remembered::Remembered;
pub use segments::Gathering;
pub use settings::{CacheSettings, DiskCache};
pub use store::{ArrivingEntry, DepartingEntry, LabelVerdict, Sought, Store, reread};
pub use template::HitFields;
pub use window_room::{NoWindow, WindowRoom, WindowShare};
