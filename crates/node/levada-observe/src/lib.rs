//! The metrics, traces and logs of a node.
//!
//! ```text
//! log      log lines on their way to files, pipes, syslog and collectors; the formats of access logs
//! metrics  counters of all crates, and the page of them for Prometheus
//! redact   query arguments whose values logs and spans leave out
//! otel     OpenTelemetry: which requests are traced, their spans, metrics and logs, and their way to a collector
//! ```

pub mod log;
pub mod metrics;
pub mod otel;
pub mod redact;
