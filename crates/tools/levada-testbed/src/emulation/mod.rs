//! Emulated Web servers in real processes, and their surroundings in the labs of LARD, CAP and policies:
//! a front-end, clients, and processor times.
//!
//! ```text
//! clients (this process) ──> front-end (levada run) ──> back-ends (levada lab backend, one process each)
//!      client                     cluster                    backend: a machine of levada-sim on a clock
//! ```

pub mod backend;
pub mod client;
pub mod cluster;
pub mod open_load;
pub mod predict;
mod processor;
pub mod report;
pub mod requests;
pub mod run;
pub mod strategy;
pub mod trace;
