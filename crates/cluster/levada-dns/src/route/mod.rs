//! Which nodes a client gets: a pure function of the name, the client's network, the tables, and the nodes of this
//! moment.
//!
//! ```text
//!   networks   a value for each network, and how far an answer is the same around an address
//!   coverage   Traffic Control's files: coverage zones, deep coverage zones, federations
//!   geo        a database in MaxMind's format, as networks and regions
//!   measured   the region near a network, as nodes have measured
//!   nodes      the nodes of this moment, those of each region that can be answered
//!   decide     all of these in their order
//! ```

mod coverage;
mod decide;
mod geo;
mod measured;
mod networks;
mod nodes;

pub use coverage::{CoverageError, DeepZones, Federation, Federations, coverage_zones};
pub use decide::{Choice, Reason, Tables, Wanted, Way};
pub use geo::{Geo, GeoError, GeoRegions};
pub use measured::{RoundTrip, nearest, round_trips};
pub use networks::{Networks, NetworksBuilder, Overlap, Prefix};
pub use nodes::{Family, MOST_NODES, NodeState, Nodes, Picked, Regions, label};
