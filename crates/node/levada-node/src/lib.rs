//! A node as a process: how it starts, changes while it runs, is asked by its operators, and ends.
//!
//! Start with `run.rs`. A request's way through the node is in levada-edge.
//!
//! ```text
//! run ─ listeners ─ quic               threads, sockets, signals, an orderly end
//! tend ─ route ─ members ─ watch       background tasks
//! reload ─ upgrade                     changes without outage
//! admin ─ page                         the port of operators
//! ```

mod admin;
mod expressions;
mod listeners;
mod members;
mod page;
mod quic;
mod reload;
mod route;
mod run;
mod tend;
mod upgrade;
mod watch;

pub use levada_control::Counts;
pub use levada_control::status::explain_settings as explain;
pub use levada_control::upgrade::{Addresses, Predecessor};
pub use levada_edge::start_error::StartError;
pub use levada_tls::pem::TlsError;
pub use run::{Running, check, run};
