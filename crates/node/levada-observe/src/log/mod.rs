//! Log lines on their way to files, pipes, syslog and collectors, and the lines of access logs.
//!
//! ```text
//!   request ── AccessLine ── LogEntry ── LogFormat: a line ─┬─ LineQueue ── a thread ──> file, standard output, syslog
//!                                                           └─ record ── otel ────────> collector
//! ```
//!
//! A request never waits for the reader of a log: see [`LineQueue`]. A [`LogFormat`] is read with the
//! configuration; nothing that a client or a server sends can end a field or a line (`escape`).

pub mod access_log;
mod entry;
mod escape;
mod format;
mod output;
mod queue;
mod record;
mod syslog;
mod timestamp;

pub use entry::{AccessLine, CapturedFields, LogEntry, Pieces};
pub use format::{FORMAT_NAMES, FormatError, LogFormat, variables};
pub use output::{FILE_MODE, LogTarget};
pub use queue::{LineQueue, WeakLineQueue};
pub use syslog::{FACILITIES, Syslog, SyslogTransport, TransportError};
