//! A node as a process: how it starts, changes while it runs, is asked by its operators, and ends.
//!
//! Start with `run.rs`. A request's way through the node is in levada-edge.
//!
//! ```text
//! run ─ listeners                      threads, sockets, signals, an orderly end
//! tend ─ route ─ members ─ watch ─ fleet ─ watched_files  background tasks
//! reload ─ replace ─ upgrade           changes without outage: settings, then the process
//! dns                                  the name server, in a node or alone
//! admin ─ admin_places ─ page ─ explain  the port of operators
//! ```

mod admin;
mod admin_places;
mod counts;
mod dns;
pub mod explain;
mod expressions;
mod fleet;
mod guard;
mod listeners;
mod members;
mod page;
mod reload;
mod replace;
mod route;
mod run;
mod start_error;
mod tend;
mod upgrade;
mod watch;
mod watched_files;

pub use counts::Counts;
pub use dns::run_dns;
pub use levada_tls::pem::TlsError;
pub use run::{Running, check, run};
pub use start_error::StartError;
pub use upgrade::{Addresses, Predecessor};
pub use watched_files::WatchedFiles;
