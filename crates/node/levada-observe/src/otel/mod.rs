//! A node's data for OpenTelemetry: traces of requests, its metrics, its logs, and their way to a collector.
//!
//! ```text
//!   context   traceparent: which trace a request belongs to (W3C Trace Context)
//!   trace     Tracer: which requests are traced; Trace: the spans of one request
//!   logs      LogSender: lines of logs as records
//!      │ bounded queues, beyond which spans and records are dropped and counted
//!   metrics   the metrics of a node as a message
//!   export    batches on their way to a collector
//!   exporter  all exports of a node, from its start to its end
//!   message   the same in OTLP's protobuf
//! ```
//!
//! A node without a collector has none of this: the caller holds an `Option`. The crate opens no connection; the
//! caller hands it a [`Collector`].

mod context;
mod export;
mod exporter;
mod logs;
mod message;
mod metrics;
mod trace;

pub use context::{TRACEPARENT, TraceContext};
pub use export::{Collector, Delivery, DeliveryError, ExportCounts, ExportMetrics, Signal};
pub use exporter::{ExportSettings, Exporter};
pub use logs::{LogRecord, LogSender, Severity, send_event};
pub use message::Value;
pub use trace::{Attempt, AttemptKind, BegunRequest, EndedRequest, Trace, Tracer};
