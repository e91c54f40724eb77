//! The metrics of a node.
//!
//! ```text
//!   counters, times, sizes, family   the values that are counted: atomics, which a crate keeps and changes
//!        │ registered by the crate whose work they count
//!   registry     their names, help texts and order
//!        │ read once for a page
//!   snapshot     the same as data: metrics, their samples, the labels of these
//!        ├─> text       Prometheus' text format and OpenMetrics
//!        ├─> protobuf   Prometheus' protobuf, with native histograms
//!        └─> otel       OTLP
//!   cpu          CPU seconds by kind of work
//!   requests     requests by site
//! ```
//!
//! Names have base units and no prefix but the node's; a URL is never a label. The crate `prometheus-client` shows
//! its values as text only, or in protobuf by a compiler of protobuf in each build: so the registry is our own.

mod cache_result;
mod counters;
mod cpu;
mod family;
mod page;
mod protobuf;
mod registry;
mod requests;
mod sizes;
mod snapshot;
mod text;
mod times;

pub use cache_result::CacheResult;
pub use counters::{Counted, Counter, Gauge, NumberGauge, TimeCounter};
pub use cpu::{CpuMetrics, Timed, Work, cpu_time, did};
pub use family::{Family, Labels};
pub use page::PageFormat;
pub use registry::{Metric, Registry};
pub use requests::{AnsweredRequest, RequestMetrics, SiteMetrics};
pub use sizes::SizeHistogram;
pub use snapshot::{Buckets, Label, MetricKind, MetricSnapshot, NativeBuckets, Reading, Sample};
pub use text::text;
pub use times::{SCHEMA, TimeHistogram, zero_threshold};
