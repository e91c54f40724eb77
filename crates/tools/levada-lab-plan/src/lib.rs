//! `levada lab plan`: a plan from the logs of real nodes, next to the figures of the nodes that it proposes.
//!
//! ```text
//! lab              all phases, from top to bottom
//! cluster          the hosts, and nodes with the configurations that `levada plan` writes
//! origin           the slow origin, which counts its bytes
//! planning         the two plans: the figures of the logged cluster, and another cluster that does as well
//! measure          the figures of a running cluster
//! compare, report  predicted and measured figures, their bounds, and what is printed
//! ```

mod args;
#[cfg(target_os = "linux")]
mod cluster;
#[cfg(target_os = "linux")]
mod compare;
#[cfg(target_os = "linux")]
mod lab;
#[cfg(target_os = "linux")]
mod measure;
#[cfg(target_os = "linux")]
mod origin;
#[cfg(target_os = "linux")]
mod planning;
#[cfg(target_os = "linux")]
mod report;

pub use args::PlanLabArgs;
#[cfg(target_os = "linux")]
pub use lab::run;
