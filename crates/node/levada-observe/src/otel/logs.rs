//! Lines of logs as records, and their way into the queue. The writer of a line never waits: what does not fit is
//! lost and counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::SystemTime,
};

use parking_lot::RwLock;
use prost::Message as _;
use tokio::sync::mpsc;

use crate::metrics::Counter;
use crate::otel::{
    TraceContext,
    export::Batched,
    message::{AnyValue, Value, attribute, logs},
    metrics::nanos,
};

/// Records that wait for their export.
pub(crate) const QUEUE: usize = 4096;
/// Bytes of these records.
const BOUND: usize = 4 << 20;

/// How serious a line is: the numbers of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Details of details.
    Trace = 1,
    /// Details.
    Debug = 5,
    /// Things that happen.
    Info = 9,
    /// Something that should not be.
    Warn = 13,
    /// A failure.
    Error = 17,
}

impl Severity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// A line on its way.
pub struct LogRecord(logs::LogRecord);

impl LogRecord {
    /// A line of this moment.
    pub fn new(severity: Severity, line: &str) -> Self {
        let now = nanos(SystemTime::now());
        Self(logs::LogRecord {
            time_unix_nano: now,
            observed_time_unix_nano: now,
            severity_number: severity as i32,
            severity_text: severity.as_str().to_owned(),
            body: Some(AnyValue { value: Some(line.into()) }),
            ..logs::LogRecord::default()
        })
    }

    /// Adds an attribute.
    pub fn add(&mut self, key: &str, value: impl Into<Value>) {
        self.0.attributes.push(attribute(key, value));
    }

    /// Names the span that the line belongs to.
    pub fn belongs_to(&mut self, span: TraceContext) {
        self.0.trace_id = span.trace.to_be_bytes().to_vec();
        self.0.span_id = span.span.to_be_bytes().to_vec();
        self.0.flags = span.sampled.into();
    }
}

/// The queue of records.
#[derive(Clone)]
pub struct LogSender {
    pub(crate) queue: mpsc::Sender<WaitingRecord>,
    waiting: Arc<AtomicUsize>,
    dropped: Counter,
}

impl LogSender {
    pub(crate) fn new(queue: mpsc::Sender<WaitingRecord>, dropped: Counter) -> Self {
        Self { queue, waiting: Arc::default(), dropped }
    }

    /// Adds a record, unless too much waits already.
    pub fn send(&self, record: LogRecord) {
        let bytes = record.0.encoded_len();
        let before = self.waiting.fetch_add(bytes, Relaxed);
        let record = WaitingRecord { record: record.0, bytes, waiting: self.waiting.clone() };
        if before + bytes > BOUND || self.queue.try_send(record).is_err() {
            self.dropped.inc();
        }
    }
}

/// A record with its place among the bytes that wait.
pub(crate) struct WaitingRecord {
    record: logs::LogRecord,
    bytes: usize,
    waiting: Arc<AtomicUsize>,
}

impl Drop for WaitingRecord {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Relaxed);
    }
}

impl Batched for WaitingRecord {
    type Item = logs::LogRecord;

    fn count(&self) -> usize {
        1
    }

    fn move_to(mut self, batch: &mut Vec<logs::LogRecord>) {
        batch.push(std::mem::take(&mut self.record));
    }
}

/// The queue that gets the events of this process.
static EVENTS: RwLock<Option<LogSender>> = RwLock::new(None);

/// Sends an event of this process, if a node of it exports them.
pub fn send_event(record: impl FnOnce() -> LogRecord) {
    if let Some(queue) = &*EVENTS.read() {
        queue.send(record());
    }
}

/// From now on, events are sent to this queue.
pub(crate) fn export_events(queue: Option<LogSender>) {
    *EVENTS.write() = queue;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_beyond_the_bounds_are_dropped_and_counted() {
        let ((queue, mut records), dropped) = (mpsc::channel(QUEUE), Counter::default());
        let sender = LogSender::new(queue, dropped.clone());
        let large = "x".repeat(1 << 20);
        for _ in 0..5 {
            sender.send(LogRecord::new(Severity::Info, &large));
        }
        assert_eq!((records.len(), dropped.get()), (3, 2));
        drop(records.try_recv());
        sender.send(LogRecord::new(Severity::Info, &large));
        assert_eq!((records.len(), dropped.get()), (3, 2));
        while records.try_recv().is_ok() {}
        for _ in 0..QUEUE + 7 {
            sender.send(LogRecord::new(Severity::Info, "x"));
        }
        assert_eq!((records.len(), dropped.get()), (QUEUE, 2 + 7));
        while records.try_recv().is_ok() {}
        assert_eq!(sender.waiting.load(Relaxed), 0);
    }
}
