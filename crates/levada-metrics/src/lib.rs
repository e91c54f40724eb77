//! What a node counts of its work, in Prometheus' text format: base units, `_total`, never a URL as a label.
//!
//! ```text
//! node     Metrics: one registry, and every counter that has no crate of its own
//! site     requests by site
//! large    transfers in pieces
//! process  the process itself
//! counts   what runs at one moment
//! page     the page in the formats of the field
//! ```

mod cache_result;
mod counts;
mod label_value;
mod large;
mod node;
mod page;
mod process;
mod site;

pub use cache_result::CacheResult;
pub use counts::Counts;
pub use large::LargeMetrics;
pub use node::Metrics;
pub use page::PageFormat;
pub use site::{AnsweredRequest, SiteMetrics};
