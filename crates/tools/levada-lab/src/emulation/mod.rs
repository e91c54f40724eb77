//! Emulated Web servers in real processes, and their surroundings in the labs of LARD, CAP and policies:
//! a front-end, clients, and processor times.
//!
//! ```text
//! clients (this process) ──> front-end (levada run) ──> back-ends (levada lab backend, one process each)
//!      client                     cluster                    backend: a machine of levada-sim on a clock
//! ```

pub(super) mod backend;
pub(super) mod client;
pub(super) mod cluster;
pub(super) mod predict;
mod processor;
pub(super) mod report;
pub(super) mod run;
pub(super) mod strategy;
pub(super) mod trace;
