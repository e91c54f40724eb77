//! A summary of access logs: requests and bytes over time, hit ratio, errors, latency, and the objects, paths,
//! hosts, clients, user agents and referrers that cause most of them.
//!
//! ```text
//! files ── levada-trace: batches of lines ── four threads, a Census each ── merge ── Summary ── text, JSON, page
//! ```
//!
//! Lines are hostile input: memory is bounded whatever they say ([`Census`]), and what is shown of them can
//! change neither a terminal nor a page.

mod census;
pub mod chart;
mod command;
mod latency;
mod page;
mod ranking;
mod read;
mod shown;
mod summary;
mod text;
mod timeline;

pub use census::{Census, is_hit, is_memory_hit};
pub use command::{LogsArgs, run};
pub use page::page;
pub use ranking::{Ranked, RankedName};
pub use read::read;
pub use shown::grouped;
pub use summary::{
    CacheCount, Interval, LatencySummary, SlowRequest, StatusCount, Summary, Unreadable,
};
pub use text::text;
