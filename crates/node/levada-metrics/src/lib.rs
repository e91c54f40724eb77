//! What a node counts of its work, in Prometheus' text format: base units, `_total`, never a URL as a label.
//!
//! ```text
//! node       Metrics: one registry, and every counter that has no crate of its own
//! site       requests by site
//! upstreams  the servers that the node has now
//! cpu        CPU seconds by kind of work
//! large      transfers in pieces
//! process    the process itself
//! counts     what runs at one moment
//! page       the page in the text formats of the field
//! protobuf   the page with native histograms
//! ```

mod cache_result;
mod counts;
mod cpu;
mod label_value;
mod large;
mod node;
mod page;
mod process;
mod protobuf;
mod site;
mod upstreams;

pub use cache_result::CacheResult;
pub use counts::Counts;
pub use cpu::{CpuMetrics, Timed, Work, did};
pub use large::LargeMetrics;
pub use node::Metrics;
pub use page::PageFormat;
pub use site::{AnsweredRequest, SiteMetrics};
pub use upstreams::ShownUpstreams;
