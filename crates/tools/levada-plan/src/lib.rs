//! `levada plan`: how many nodes, how much memory, which policy and eviction, from access logs.
//!
//! ```text
//! logs ── read ── clean ── peak ──┬── backtest: the log's own hit ratio, predicted
//!                                 └── one_cache: levada-curves ── search: candidates ── evaluate: levada-sim
//!                                                                      │
//!                            answer: the smallest that meets the aims ─┴── text, page, JSON, configuration
//! ```
//!
//! The evictions are those of `levada-cache` and the policies those of `levada-policy`, which a node runs.

mod aims;
mod answer;
mod backtest;
mod clean;
mod cluster;
mod command;
mod configuration;
mod costs;
mod evaluate;
mod expiry;
mod one_cache;
mod page;
mod peak;
mod read;
mod report;
mod resume;
mod search;
mod text;
mod watch;

pub use answer::{Answer, words};
pub use backtest::Backtest;
pub use command::{PlanArgs, plan, run, watched_plan};
pub use configuration::node_configuration;
pub use evaluate::{Candidate, Figures, Range};
pub use report::Plan;
pub use search::Row;
pub use watch::Watch;
