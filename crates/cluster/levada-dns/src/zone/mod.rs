//! Zones: what they have, and which of their names is asked for.
//!
//! ```text
//!   file   a zone file as its records
//!   times  times with units in a zone file
//!   zone   the names of one zone: exact, below `*`, handed to others (delegated)
//!   zones  all zones, by their names
//! ```

mod file;
mod times;
#[allow(clippy::module_inception)]
mod zone;
mod zones;

pub use file::{FileRecord, ZoneFile, ZoneFileError};
pub use zone::{Found, Node, Route, Routed, Routing, Zone, ZoneError};
pub use zones::Zones;
