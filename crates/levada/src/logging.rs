//! The event log, on standard error, and at the collector of a node that has one.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use levada_client::command::color;
use levada_observe::log::{LineQueue, LogTarget};
use levada_observe::otel::{LogRecord, Severity, Value, send_event};
use parking_lot::Mutex;
use tracing::{Event, Level, Subscriber, field};
use tracing_subscriber::{
    EnvFilter, Layer, fmt::MakeWriter, layer::Context as Around, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::cli::Logging;

/// The most lines in one period; further lines are left out. These are the bounds of systemd's journal.
const LINES: u32 = 10_000;
/// The period of that count.
const RATE_INTERVAL: Duration = Duration::from_secs(30);
/// How long the end of the process waits for a reader of standard error.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The running log. When it is dropped, the lines that wait are written.
pub(crate) struct EventLog(LineQueue);

/// Starts logging for the rest of the process.
///
/// # Errors
/// If the level is invalid, or logging was started before.
pub(crate) fn start(logging: &Logging) -> anyhow::Result<EventLog> {
    let filter = EnvFilter::try_new(logging.filter())
        .with_context(|| format!("--log-level {:?} (or LEVADA_LOG)", logging.log_level))?;
    let lines = LineQueue::start(LogTarget::Stderr, Duration::ZERO, Default::default())?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(EventWriter { lines: lines.clone(), rate: Mutex::default() })
        .with_ansi(color::is_wanted(&io::stderr()))
        .finish()
        .with(Collected)
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))?;
    Ok(EventLog(lines))
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.0.flush(FLUSH_TIMEOUT);
    }
}

/// Sends events to the collector of a node that exports them.
struct Collected;

impl<S: Subscriber> Layer<S> for Collected {
    fn on_event(&self, event: &Event<'_>, _: Around<'_, S>) {
        send_event(|| record(event));
    }
}

/// An event as a record: its message, and its other fields as attributes.
fn record(event: &Event<'_>) -> LogRecord {
    let severity = match *event.metadata().level() {
        Level::TRACE => Severity::Trace,
        Level::DEBUG => Severity::Debug,
        Level::INFO => Severity::Info,
        Level::WARN => Severity::Warn,
        Level::ERROR => Severity::Error,
    };
    let mut fields = Fields::default();
    event.record(&mut fields);
    let mut record = LogRecord::new(severity, &fields.message);
    record.add("levada.module", event.metadata().target());
    for (name, value) in fields.others {
        record.add(name, value);
    }
    record
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &field::Field, value: impl Into<Value>) {
        self.others.push((field.name(), value.into()));
    }
}

impl field::Visit for Fields {
    fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &field::Field, value: &str) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &field::Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &field::Field, value: u64) {
        self.add(field, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_f64(&mut self, field: &field::Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &field::Field, value: bool) {
        self.add(field, value);
    }
}

/// Passes events on as far as their rate allows.
struct EventWriter {
    lines: LineQueue,
    rate: Mutex<LineRate>,
}

impl<'a> MakeWriter<'a> for EventWriter {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

/// Each event is written by one call.
impl Write for &EventWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let (fits, left_out) = self.rate.lock().admit(Instant::now());
        if left_out > 0 {
            self.lines.push(&format!(
                "levada: {left_out} lines of this log were left out: more than {LINES} in {} s",
                RATE_INTERVAL.as_secs()
            ));
        }
        if fits {
            self.lines.push(String::from_utf8_lossy(event).trim_end_matches('\n'));
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines of the current period.
#[derive(Default)]
struct LineRate {
    begun: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LineRate {
    /// Whether a line may be written now, and how many were left out in a period that is over.
    fn admit(&mut self, now: Instant) -> (bool, u64) {
        let mut reported = 0;
        if self.begun.is_none_or(|begun| now - begun >= RATE_INTERVAL) {
            reported = self.left_out;
            *self = Self { begun: Some(now), ..Self::default() };
        }
        self.lines += 1;
        let fits = self.lines <= LINES;
        self.left_out += u64::from(!fits);
        (fits, reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_rate_are_left_out_and_told() {
        let (mut rate, start) = (LineRate::default(), Instant::now());
        let fit = (0..LINES + 5).filter(|_| rate.admit(start).0).count();
        assert_eq!(fit as u32, LINES);
        assert_eq!(rate.admit(start + RATE_INTERVAL), (true, 5));
        assert_eq!(rate.admit(start + RATE_INTERVAL), (true, 0));
    }
}
