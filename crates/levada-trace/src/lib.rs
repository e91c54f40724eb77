//! Access logs and traces: read from files, generated from models, held compactly for replay.
//!
//! ```text
//! file -> source (decompress) -> lines (bounded) -> format (parse) -> Reader: Record, Record, ...
//!                                                                        |
//!                            generate (RICE, IBM) -> Population ----> Trace -> Workload
//! ```
//!
//! [`open`] recognises compression and format by content, never by file name. [`Trace`] is what the
//! simulator replays; [`Workload`] draws requests for ever. Deliberately absent: a clock, threads,
//! sockets, and guesses: what a log does not say is `None` in its [`Record`].

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

pub use format::{FORMATS, Format};
pub use generate::{IBM, Model, Population, RICE};
pub use lines::MAX_LINE;
pub use reader::{LineError, OpenError, Reader, open};
pub use record::{Problem, Record, Taken};
pub use summary::Summary;
pub use trace::{Cut, Limits, Object, Reason, Skipped, Trace};
pub use workload::Workload;
