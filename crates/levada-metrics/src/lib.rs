//! What a node counts of its work, in Prometheus' text format: base units, `_total`, never a URL as a label.
//!
//! ```text
//! node     Metrics: one registry, and every counter that has no crate of its own
//! large    transfers in pieces
//! ```

mod cache_result;
mod label_value;
mod large;
mod node;

pub use cache_result::CacheResult;
pub use large::LargeMetrics;
pub use node::Metrics;
