//! Policies that choose the node which serves a request.
//!
//! All policies of the papers, and the common ones of today's proxies, implement one trait. This
//! crate uses no clock, socket, thread or source of randomness. The driver, an edge or the
//! simulator, passes in the time, the generator and a view of the [`Cluster`], and carries out the
//! decision.
//!
//! To add a policy, add one file with its `ENTRIES` and one line in [`POLICIES`].
#![doc = include_str!("../README.md")]

mod choose;
pub mod classify;
mod cluster;
mod distance;
mod entry;
mod lard_admission;
mod lazy;
mod load;
mod moved;
mod order;
mod parameter;
mod per_node;
mod policy;
mod registry;
mod relative_load;
mod rotation;
mod schedule;
mod shared;
mod table;
#[cfg(test)]
mod testing;
mod turns;
mod view;

mod adaptive;
mod bounded_hash;
mod cap;
mod dynamic;
mod first;
mod lard;
mod lb;
mod least_conn;
mod maglev;
mod modulo;
mod p2c;
mod peak_ewma;
mod prequal;
mod random;
mod replicas;
mod round_robin;
mod weighted_round_robin;
mod wrr;

pub use cluster::{Cluster, Node, NodeIndex};
pub use distance::{NOISE, distances};
pub use entry::{Deployment, Need, PolicyEntry};
pub use lard_admission::{lard_admission_limit, lard_thresholds, weighted_lard_admission_limit};
pub use load::{LoadTable, Outstanding};
pub use moved::moved;
pub use order::rendezvous;
pub use parameter::{Kind, Parameter, ParameterError, ParameterValue, Parameters, Setting};
pub use policy::{
    Candidates, Fork, LoadBound, Pick, PickContext, PickReason, Policy, RequestOutcome, Tracked,
};
pub use registry::{BuildError, build, build_shards, find};
pub use turns::{ClientShare, Full, Ticket, Turns};

/// All policies, in the order of the documentation: those of other proxies first, then each
/// paper's. Command lines, documents and the conformance tests iterate over this list.
pub const POLICIES: &[&[PolicyEntry]] = &[
    random::ENTRIES,
    round_robin::ENTRIES,
    weighted_round_robin::ENTRIES,
    least_conn::ENTRIES,
    p2c::ENTRIES,
    peak_ewma::ENTRIES,
    prequal::ENTRIES,
    modulo::ENTRIES,
    maglev::ENTRIES,
    first::ENTRIES,
    bounded_hash::ENTRIES,
    adaptive::ENTRIES,
    // OSDI'02
    replicas::ENTRIES,
    dynamic::ENTRIES,
    // ASPLOS'98
    wrr::ENTRIES,
    lb::ENTRIES,
    lard::ENTRIES,
    // WWW10
    cap::ENTRIES,
];

/// The name of the policy where none is chosen: docs/policies has the measurements that support it.
pub const DEFAULT_POLICY: &str = "adaptive";
