//! The papers' systems in virtual time: which policy, how many nodes, what latency.
//!
//! The simulator drives the code of levada-policy and of levada-cache's eviction unchanged, over
//! simulated servers and a simulated network. A [`Scenario`] describes a simulation.
//! [`Scenario::prepare`] reports every mistake in it and loads its traces and topologies. [`run`]
//! plays it and returns an [`Outcome`].
//!
//! ```text
//! Scenario --prepare(Library)--> Prepared --run--> Outcome: readings, series, servers, links
//!    |                                      |
//!    |  TOML, --set key=value               |  kernel: one event queue; world: a request's life
//! levada_paper::Table: cases with the paper's own numbers
//! ```
//!
//! A run is single-threaded and repeatable: the same seed gives the same bytes of [`Outcome`].
//! Deliberately absent: a clock, threads, files (a [`Source`] reads them), progress on a terminal.

mod collect;
mod library;
pub mod machine;
mod network;
pub mod prototype;
pub mod queueing;
mod redirector;
mod regions;
mod run;
mod scenario;
pub mod scenario_file;
mod server;
mod slab;
mod workload;
mod world;

use levada_outcome::kernel;
pub use levada_outcome::{
    End, LinkUse, METRICS, Metric, Outcome, ParseReadingError, Progress, Reading, RegionUse,
    Remark, Series, ServerUse, Unit,
};
pub use library::{Library, Source};
pub use network::{Fidelity, Transfer, Transferred, transfer};
pub use regions::{Region, Regions};
pub use run::run;
pub use scenario::{
    Admission, Arrivals, Cache, CatalogueGrowth, Entrance, Failure, Flash, Freshness,
    FreshnessClass, FrontEnds, Measure, NetworkModel, Origin, Policy, Prepared, Problem, Problems,
    Purge, Scenario, Servers, Share, Size, Time, TopologyChoice, Workload,
};
pub use world::BYTES_PER_REQUEST;

/// The network of packets by itself, with the event queue that drives it: for worlds of other crates.
pub mod packets {
    pub use levada_outcome::kernel::Agenda;

    pub use crate::network::{Arrival, NetworkEvent, PacketNetwork};
}
