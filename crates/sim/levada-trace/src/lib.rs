//! Access logs and traces: read from files, generated from models, and stored compactly for replay.
//!
//! ```text
//! file -> source (decompress) -> lines (bounded) -> format (parse) -> Reader: Record, Record, ...
//!                                                                        |
//!                            generate (RICE, IBM) -> Population ----> Trace -> Workload
//! ```
//!
//! [`open`] recognises compression and format by content, not by file name. The simulator replays a
//! [`Trace`]; a [`Workload`] draws requests without end. This crate deliberately has no clock,
//! threads or sockets, and does not guess: a fact that a log does not state is `None` in its
//! [`LogRecord`].

mod date;
pub mod format;
pub mod generate;
mod lines;
mod reader;
mod record;
mod source;
mod summary;
mod trace;
mod workload;

pub use format::{FORMATS, LineFormat};
pub use generate::{IBM, Model, Population, RICE};
pub use lines::MAX_LINE;
pub use reader::{LineBatch, LineError, OpenError, TraceReader, open};
pub use record::{LineProblem, LogRecord, StatedSize, TimeTaken};
pub use summary::TraceSummary;
pub use trace::{CutReason, SkipReason, Skipped, Trace, TraceLimits, TraceObject};
pub use workload::Workload;
